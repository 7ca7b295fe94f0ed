# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Plans the roles of one deployment, with the same rules as a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.memory import GuardReport, cannot_fit, check_guard
from cam_hccl_plugin.model import (
    AREAS_PER_COMMUNICATOR,
    HCCL_DEFAULT_MIB,
    BufferPlan,
    ConnectorClaim,
    ConnectorIdentity,
    PlannedGroup,
    Role,
    RoleNeed,
    SizingInputs,
)
from cam_hccl_plugin.operator_window import BUILDS, WindowCheck
from cam_hccl_plugin.planning import PlanRequest, npus_disagreement, plan_buffers
from cam_hccl_plugin.plugin_host import PluginHost
from cam_hccl_plugin.settings import Settings
from cam_hccl_plugin.sizing import buffer_mib

MAX_UBATCHES = 1024
"""Far beyond any launch; each ubatch is a group of its own in CAMP2P."""

DEFAULT_UTILIZATION = Fraction(9, 10)
"""``gpu_memory_utilization`` where nobody gives one; vLLM's own default differs by version."""


@dataclass(frozen=True)
class RoleLaunch:
    """Everything that decides the buffers of one role.

    ``caller_mib`` is a size given to the connector itself, ``environment_mib`` what a group
    without a size gets, ``variables`` the raw values of the operators' window variables.
    """

    settings: Settings
    inputs: SizingInputs
    caller_mib: int | None = None
    environment_mib: int = HCCL_DEFAULT_MIB
    utilization: Fraction = DEFAULT_UTILIZATION
    variables: Mapping[str, str | None] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deployment:
    """One or both roles of a deployment; ``hccl_buffsize_mib`` is today's practice to compare.

    ``sized_apart`` says that each role plans alone, as a worker does; otherwise each knows
    the other's need (``cam-hccl plan --scope group`` from numbers).
    """

    identity: ConnectorIdentity
    claim: ConnectorClaim
    roles: Mapping[Role, RoleLaunch]
    device_memory_bytes: int | None = None
    hccl_buffsize_mib: int | None = None
    sized_apart: bool = False
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RolePlan:
    """One role: its plan, its inputs, and what the memory guard says."""

    plan: BufferPlan
    launch: RoleLaunch
    published_mib: int
    guard: GuardReport | None
    saved_mib: int | None
    windows: tuple[WindowCheck, ...]
    warnings: tuple[str, ...]

    @property
    def inputs(self) -> SizingInputs:
        """What the sizes were computed from."""
        return self.launch.inputs

    @property
    def need(self) -> RoleNeed:
        """The role's need; always known here."""
        if self.plan.need is None:
            raise PlanError(f"the {self.plan.role.value} need is unknown")
        return self.plan.need

    @property
    def notes(self) -> list[str]:
        """Remarks on the sizes: the plan's own, and what following the operators' window does."""
        followed = [
            f'operator_window "follow": with the build {check.build.name} loaded, a worker raises '
            f"group {check.group} to {check.believed_mib} MB "
            f"({AREAS_PER_COMMUNICATOR * check.believed_mib} MB of device memory)"
            for check in self.windows
            if check.followed
        ]
        return [
            *self.plan.notes,
            *([self.plan.floor_note] if self.plan.floor_note else []),
            *followed,
        ]

    @property
    def groups(self) -> tuple[PlannedGroup, ...]:
        """The groups, or the one entry that stands for any group."""
        return self.plan.groups or (self.plan.fallback,)


@dataclass(frozen=True)
class DeploymentPlan:
    """The planned roles of a deployment."""

    deployment: Deployment
    roles: dict[Role, RolePlan]

    @property
    def connector(self) -> str:
        """Class name of the connector."""
        return self.deployment.identity.class_name

    @property
    def settings(self) -> Settings:
        """The settings, of Attention where the roles have different ones."""
        return next(iter(self.roles.values())).launch.settings

    @property
    def warnings(self) -> list[str]:
        """Every warning once, with the role in front where it is one role's."""
        of_roles = [
            f"{role.value}: {w}" for role, plan in self.roles.items() for w in plan.warnings
        ]
        return [*self.deployment.warnings, *of_roles]


def claim_connector(host: PluginHost, identity: ConnectorIdentity, label: str) -> ConnectorClaim:
    """The claim on a connector.

    Raises:
        PlanError: it is not CAM-type; ``label`` says where its name was given.
    """
    claim = host.claim_connector(identity)
    if claim is None:
        raise PlanError(
            f"{label} {identity.class_name} is not CAM-type: allowed are CAMAsyncAFDConnector, "
            "CAMP2pAFDConnector, any class whose name starts with CAM, and what an installed "
            "extension claims"
        )
    return claim


def plan_roles(host: PluginHost, deployment: Deployment) -> dict[Role, BufferPlan]:
    """The bare plans, without any check of device memory.

    Raises:
        PlanError: a size cannot be decided.
    """
    claim, launches = deployment.claim, deployment.roles
    for launch in launches.values():
        ubatches = launch.inputs.topology.num_ubatches
        if ubatches > MAX_UBATCHES:
            raise PlanError(
                f"{ubatches} ubatches (--num-ubatches; --ubatch-size in a command): allowed are 1 "
                f"to {MAX_UBATCHES}"
            )
    needs = {r: host.role_need(claim, r, launch.inputs) for r, launch in launches.items()}
    plans = {}
    for role, launch in launches.items():
        known: Mapping[Role, RoleNeed] = needs
        if deployment.sized_apart:
            both = claim.tokens_shared and launch.settings.scope == "group"
            wanted = tuple(Role) if both else (role,)
            known = {r: host.role_need(claim, r, launch.inputs) for r in wanted}
        plans[role] = plan_buffers(
            PlanRequest(
                connector=deployment.identity.class_name,
                claim=claim,
                listed=host.describe_groups(claim, launch.inputs.topology),
                role=role,
                settings=launch.settings,
                needs=known,
                caller_mib=launch.caller_mib,
                environment_mib=launch.environment_mib,
            )
        )
    return plans


def plan_deployment(host: PluginHost, deployment: Deployment) -> DeploymentPlan:
    """Plan the roles and check them against the device.

    Raises:
        PlanError: a size cannot be decided, or the groups cannot fit the device.
    """
    roles = {}
    for role, plan in plan_roles(host, deployment).items():
        host.plan_ready(plan)
        roles[role] = _role_plan(plan, deployment.roles[role], deployment)
    return DeploymentPlan(deployment, roles)


def _role_plan(plan: BufferPlan, launch: RoleLaunch, deployment: Deployment) -> RolePlan:
    buffers = [group.effective_mib for group in plan.groups or (plan.fallback,)]
    warnings = [*launch.remarks, *plan.warnings]
    disagreement = npus_disagreement(plan.role, launch.inputs.topology)
    if disagreement:
        warnings.append(disagreement)
    guard = None
    if deployment.device_memory_bytes is not None:
        total, settings = deployment.device_memory_bytes, launch.settings
        too_large = cannot_fit(total, buffers)
        if too_large:
            raise PlanError(f"{plan.role.value}: {too_large}")
        guard = check_guard(total, launch.utilization, settings.memory_guard_ratio, buffers)
        if guard.short:
            warnings.append(str(guard))
    saved = None
    if deployment.hccl_buffsize_mib is not None:
        before = AREAS_PER_COMMUNICATOR * deployment.hccl_buffsize_mib * len(buffers)
        saved = before - plan.device_memory_mib
    if plan.need is None:
        raise PlanError(f"the {plan.role.value} need is unknown")
    published = buffer_mib(plan.need.published_bytes, launch.settings.headroom)
    windows = _windows(plan, launch)
    warnings += _shortage_if_followed(plan, launch, deployment.device_memory_bytes, windows)
    return RolePlan(plan, launch, published, guard, saved, windows, tuple(warnings))


def _shortage_if_followed(
    plan: BufferPlan, launch: RoleLaunch, total: int | None, windows: Sequence[WindowCheck]
) -> list[str]:
    """What a worker will say of the die's memory once it has raised the groups."""
    found = []
    for build in BUILDS if total else ():
        raised = {w.group: w.believed_mib for w in windows if w.build == build and w.followed}
        buffers = [max(g.effective_mib, raised.get(g.name, 0)) for g in plan.groups]
        guard = check_guard(
            total or 0, launch.utilization, launch.settings.memory_guard_ratio, buffers
        )
        if raised and guard.short:
            problem = cannot_fit(total or 0, buffers) or str(guard)
            found.append(f'operator_window "follow" with the build {build.name}: {problem}')
    return found


def _windows(plan: BufferPlan, launch: RoleLaunch) -> tuple[WindowCheck, ...]:
    """Both operator builds against each group of both roles, as their variables are set."""
    if not plan.claim.async_operators:
        return ()
    return tuple(
        WindowCheck(
            build=build,
            role=plan.role,
            group=group.name,
            raw=launch.variables.get(build.variable),
            buffer_mib=group.effective_mib,
            operator_bytes=plan.need.operator_bytes if plan.need else None,
            source=group.source,
            follow=launch.settings.operator_window == "follow",
        )
        for build in BUILDS
        for group in plan.groups
        if group.request.spans_roles
    )


def window_verdict(check: WindowCheck) -> str:
    """One or two words on a window check."""
    if check.too_small:
        return "too small"
    if check.followed:
        return "followed"
    return "too large" if check.too_large else "ok"
