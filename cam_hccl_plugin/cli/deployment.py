# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Plans both roles of one deployment, with the same rules as a worker."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from cam_hccl_plugin.environment import HCCL_BUFFSIZE, LCCL_BUFFER_SIZE
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.memory import GuardReport, cannot_fit, check_guard
from cam_hccl_plugin.model import (
    AREAS_PER_COMMUNICATOR,
    BufferPlan,
    ConnectorClaim,
    ConnectorIdentity,
    MiB,
    PlannedGroup,
    Role,
    RoleNeed,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.operator_window import BUILDS, WindowCheck
from cam_hccl_plugin.planning import PlanRequest, npus_disagreement, plan_buffers
from cam_hccl_plugin.plugin_host import PluginHost, build_host
from cam_hccl_plugin.settings import Settings
from cam_hccl_plugin.sizing import buffer_mib
from cam_hccl_plugin.vllm_adapter import window_variables


@dataclass(frozen=True)
class RolePlan:
    """One role: its plan, its inputs, and what the memory guard says."""

    plan: BufferPlan
    inputs: SizingInputs
    published_mib: int
    guard: GuardReport | None
    saved_mib: int | None
    windows: tuple[WindowCheck, ...]
    warnings: tuple[str, ...]

    @property
    def need(self) -> RoleNeed:
        """The role's need; always known here."""
        if self.plan.need is None:
            raise PlanError(f"the {self.plan.role.value} need is unknown")
        return self.plan.need

    @property
    def groups(self) -> tuple[PlannedGroup, ...]:
        """The groups, or the one entry that stands for any group."""
        return self.plan.groups or (self.plan.fallback,)


@dataclass(frozen=True)
class DeploymentPlan:
    """Both roles of a deployment."""

    connector: str
    kind: str
    settings: Settings
    roles: dict[Role, RolePlan]
    hccl_buffsize_mib: int | None

    @property
    def warnings(self) -> list[str]:
        """Every warning once, with the role in front."""
        return [f"{role.value}: {w}" for role, plan in self.roles.items() for w in plan.warnings]


def plan_deployment(arguments: argparse.Namespace) -> DeploymentPlan:
    """Plan both roles from parsed arguments.

    Raises:
        PlanError: the connector is not CAM-type, or a size cannot be decided.
    """
    settings = Settings(
        sizing=arguments.sizing,
        headroom=arguments.headroom,
        scope=arguments.scope,
        memory_guard_ratio=arguments.memory_guard_ratio,
    )
    host = build_host()
    identity = ConnectorIdentity(arguments.connector, (arguments.connector,))
    claim = host.claim_connector(identity)
    if claim is None:
        raise PlanError(
            f"--connector {arguments.connector} is not CAM-type: allowed are CAMAsyncAFDConnector, "
            "CAMP2pAFDConnector, any class whose name starts with CAM, and what an installed "
            "extension claims"
        )
    inputs = _inputs(arguments, claim)
    requests = _requests(host, arguments.connector, claim, settings, inputs)
    roles = {}
    for role in Role:
        plan = plan_buffers(requests[role])
        host.plan_ready(plan)
        roles[role] = _role_plan(plan, inputs[role], settings, arguments)
    buffsize = arguments.hccl_buffsize
    return DeploymentPlan(arguments.connector, claim.kind, settings, roles, buffsize)


def _inputs(arguments: argparse.Namespace, claim: ConnectorClaim) -> dict[Role, SizingInputs]:
    topology = Topology(
        attention_ranks=arguments.attention_ranks,
        ffn_ranks=arguments.ffn_ranks,
        num_ubatches=arguments.num_ubatches,
        attn_ranks_per_dp=arguments.attn_ranks_per_dp or arguments.npus_per_dp_group,
        npus_per_dp_group=arguments.npus_per_dp_group,
    )
    tokens = {
        Role.ATTENTION: arguments.max_num_batched_tokens,
        Role.FFN: arguments.ffn_max_num_batched_tokens or arguments.max_num_batched_tokens,
    }
    if claim.tokens_shared and len(set(tokens.values())) > 1:
        raise PlanError(
            f"--ffn-max-num-batched-tokens {tokens[Role.FFN]}: {arguments.connector} needs the "
            f"same max_num_batched_tokens on both roles, Attention has {tokens[Role.ATTENTION]}; "
            "leave the option out"
        )
    shape, quant = arguments.model_shape, arguments.dynamic_quant
    return {role: SizingInputs(shape, topology, tokens[role], quant) for role in Role}


def _requests(
    host: PluginHost,
    connector: str,
    claim: ConnectorClaim,
    settings: Settings,
    inputs: dict[Role, SizingInputs],
) -> dict[Role, PlanRequest]:
    needs = {role: host.role_need(claim, role, inputs[role]) for role in Role}
    listed = host.describe_groups(claim, inputs[Role.ATTENTION].topology)
    return {
        role: PlanRequest(
            connector=connector,
            claim=claim,
            listed=listed,
            role=role,
            settings=settings,
            needs=needs,
        )
        for role in Role
    }


def _role_plan(
    plan: BufferPlan, inputs: SizingInputs, settings: Settings, arguments: argparse.Namespace
) -> RolePlan:
    buffers = [group.effective_mib for group in plan.groups or (plan.fallback,)]
    warnings = list(plan.warnings)
    disagreement = npus_disagreement(plan.role, inputs.topology)
    if disagreement:
        warnings.append(disagreement)
    guard = None
    if arguments.device_memory_gib is not None:
        total = int(arguments.device_memory_gib * 1024 * MiB)
        too_large = cannot_fit(total, buffers)
        if too_large:
            raise PlanError(f"{plan.role.value}: {too_large}")
        utilization = arguments.gpu_memory_utilization
        guard = check_guard(total, utilization, settings.memory_guard_ratio, buffers)
        if guard.short:
            warnings.append(str(guard))
    saved = None
    if arguments.hccl_buffsize is not None:
        before = AREAS_PER_COMMUNICATOR * arguments.hccl_buffsize * len(buffers)
        saved = before - plan.device_memory_mib
    if plan.need is None:
        raise PlanError(f"the {plan.role.value} need is unknown")
    published = buffer_mib(plan.need.published_bytes, settings.headroom)
    windows = _windows(plan, arguments)
    return RolePlan(plan, inputs, published, guard, saved, windows, tuple(warnings))


def _windows(plan: BufferPlan, arguments: argparse.Namespace) -> tuple[WindowCheck, ...]:
    """Both operator builds against each group of both roles, from the flags or the environment."""
    if not plan.claim.async_operators:
        return ()
    given = {
        HCCL_BUFFSIZE: arguments.hccl_buffsize,
        LCCL_BUFFER_SIZE: arguments.lccl_buffer_size,
    }
    environment = window_variables()
    return tuple(
        WindowCheck(
            build=build,
            role=plan.role,
            group=group.name,
            raw=environment[build.variable]
            if given[build.variable] is None
            else str(given[build.variable]),
            buffer_mib=group.effective_mib,
            operator_bytes=plan.need.operator_bytes if plan.need else None,
        )
        for build in BUILDS
        for group in plan.groups
        if group.request.spans_roles
    )
