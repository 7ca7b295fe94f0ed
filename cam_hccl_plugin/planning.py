# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""From settings, topology and needs to a plan: which group gets which size, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.model import (
    HCCL_DEFAULT_MIB,
    BufferPlan,
    ConnectorClaim,
    GroupRequest,
    MiB,
    PlannedGroup,
    Role,
    RoleNeed,
    SizeSource,
    Topology,
)
from cam_hccl_plugin.operators import MAX_WINDOW_MIB
from cam_hccl_plugin.settings import MAX_BUFFER_MIB, Settings
from cam_hccl_plugin.sizing import buffer_mib

ANY_GROUP = "*"
"""Name under which the plan keeps what a group gets that it does not list."""


@dataclass(frozen=True)
class PlanRequest:
    """Everything that :func:`plan_buffers` decides from.

    ``listed`` is every HCCL group of both roles, ``None`` where only the connector knows.
    ``needs`` holds the needs that could be computed; a role is missing where its inputs
    are, and ``missing_inputs`` then says why. ``caller_mib`` is a size that the user gave
    to the connector itself, ``environment_mib`` what a group without any size gets.
    """

    connector: str
    claim: ConnectorClaim
    listed: tuple[GroupRequest, ...] | None
    role: Role
    settings: Settings
    needs: Mapping[Role, RoleNeed]
    missing_inputs: str = ""
    caller_mib: int | None = None
    environment_mib: int = HCCL_DEFAULT_MIB


def derive_mib(need: RoleNeed, sizing: str, headroom: Fraction) -> int:
    """The derived size of a role, in MiB.

    Formula: auto: max(ceil(headroom * published / MiB), ceil(operator / MiB));
    published and operator: headroom times the one number.
    Rounding: up, once, exact.

    Raises:
        PlanError: ``sizing`` is "operator" and the operators' need is not known.
    """
    if sizing == "operator":
        if need.operator_bytes is None:
            raise PlanError(
                'sizing "operator": the operator need of this connector is not known; '
                'use "auto" or "published" in cam_hccl.sizing, or set buffer_size_mb'
            )
        return buffer_mib(need.operator_bytes, headroom)
    published = buffer_mib(need.published_bytes, headroom)
    if sizing == "published" or need.operator_bytes is None:
        return published
    return max(published, buffer_mib(need.operator_bytes))


def plan_buffers(request: PlanRequest) -> BufferPlan:
    """Decide the size of each HCCL group of ``request.role``.

    Precedence per group: caller, ``group_buffer_size_mb``, ``buffer_size_mb``, derived.

    Raises:
        PlanError: an unknown group name, a size that cannot be derived, or ``scope``
            "group" where this role cannot know the other role's size.
    """
    _check_group_names(request)
    _check_group_scope(request)
    sizes = _Sizes(request)
    known = request.listed is not None
    groups = tuple(sizes.plan(g) for g in request.listed or () if request.role in g.roles)
    need = request.needs.get(request.role)
    plan = BufferPlan(
        connector=request.connector,
        claim=request.claim,
        role=request.role,
        groups_known=known,
        groups=groups,
        fallback=sizes.plan(GroupRequest(ANY_GROUP), optional=known),
        need=need,
        derived_mib=sizes.derived(request.role) if need else None,
        unsized_mib=request.caller_mib or request.environment_mib,
    )
    return _explained(plan, request)


def plan_unlisted(plan: BufferPlan, settings: Settings, name: str) -> PlannedGroup:
    """The size of a group that the plan does not list: its own fixed size, else the role's."""
    request = GroupRequest(name)
    if name in settings.group_sizes_mib:
        size = settings.group_sizes_mib[name]
        if size is None:
            return _planned(request, None, plan.unsized_mib, SizeSource.LEFT_ALONE)
        return _planned(request, size, size, SizeSource.GROUP)
    return replace(plan.fallback, request=request)


def _planned(
    request: GroupRequest, size: int | None, effective: int, source: SizeSource
) -> PlannedGroup:
    return PlannedGroup(request, size, effective, source, source)


class _Sizes:
    """The size of one group after another, for one request."""

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        self._settings = request.settings

    def derived(self, role: Role) -> int:
        need = self._request.needs.get(role)
        if need is None:
            raise PlanError(self._request.missing_inputs or f"the {role.value} need is unknown")
        return derive_mib(need, self._settings.sizing, self._settings.headroom)

    def plan(self, group: GroupRequest, optional: bool = False) -> PlannedGroup:
        """Plan one group; an ``optional`` one may stay without a size."""
        caller, environment = self._request.caller_mib, self._request.environment_mib
        try:
            size, source = self._pick(group)
        except PlanError:
            if caller is None and not optional:
                raise
            size, source = None, SizeSource.UNKNOWN
        if size is not None and size > MAX_BUFFER_MIB:
            raise PlanError(
                f"group {group.name} would need {size} MB and HCCL takes at most "
                f"{MAX_BUFFER_MIB}; lower max_num_batched_tokens"
            )
        if caller is not None and source is not SizeSource.LEFT_ALONE:
            return PlannedGroup(group, size, caller, SizeSource.CALLER, source)
        return _planned(group, size, size or caller or environment, source)

    def _pick(self, group: GroupRequest) -> tuple[int | None, SizeSource]:
        settings, role = self._settings, self._request.role
        if group.name in settings.group_sizes_mib:
            size = settings.group_sizes_mib[group.name]
            return size, SizeSource.LEFT_ALONE if size is None else SizeSource.GROUP
        wide = settings.scope == "group" and group.spans_roles
        fixed = settings.role_sizes_mib
        if role in fixed:
            both = wide and len(fixed) == len(Role)
            return max(fixed.values()) if both else fixed[role], SizeSource.FIXED
        if wide:
            return max(self.derived(each) for each in Role), SizeSource.DERIVED
        return self.derived(role), SizeSource.DERIVED


def _check_group_names(request: PlanRequest) -> None:
    """Refuse a group name that the connector will never create."""
    if request.listed is None:
        return
    names = [g.name for g in request.listed]
    unknown = sorted(set(request.settings.group_sizes_mib) - set(names))
    if unknown:
        raise PlanError(
            f"cam_hccl.group_buffer_size_mb names {', '.join(unknown)}, which "
            f"{request.connector} does not create; its groups are {', '.join(names)}"
        )


def _check_group_scope(request: PlanRequest) -> None:
    """Refuse scope "group" where a rank cannot know the size of the other role."""
    settings, claim = request.settings, request.claim
    if settings.scope != "group" or claim.tokens_shared or request.caller_mib is not None:
        return
    if len(settings.role_sizes_mib) == len(Role):
        return
    spanning = [g.name for g in request.listed or () if g.spans_roles]
    if spanning and all(settings.group_sizes_mib.get(name) is not None for name in spanning):
        return
    if len(request.needs) == len(Role):
        return
    each = f", or give each of {', '.join(spanning)} a size in group_buffer_size_mb"
    raise PlanError(
        f'cam_hccl.scope is "group", but with {request.connector} a rank cannot know the other '
        "role's max_num_batched_tokens; set buffer_size_mb to an integer, or to both attention "
        f"and ffn{each if spanning else ''}; `cam-hccl plan --scope group` prints the value"
    )


def _explained(plan: BufferPlan, request: PlanRequest) -> BufferPlan:
    """The plan with its warnings and notes."""
    need, settings = plan.need, request.settings
    warnings = list(need.warnings) if need else []
    notes = []
    if need is None:
        notes.append(f"operator check skipped: {request.missing_inputs}")
    elif need.operator_bytes is None:
        notes.append(
            f"operator need unknown for {plan.connector}: the published requirement decides"
        )
    fixed = settings.role_sizes_mib
    if settings.scope == "group" and len(fixed) == 1:
        warnings.append(
            'scope "group" with buffer_size_mb for one role only: the other role derives its '
            "size and the two may differ; set both roles"
        )
    for group in plan.groups or (plan.fallback,):
        warnings.extend(size_warnings(plan, group, group.effective_mib))
    return replace(
        plan,
        warnings=tuple(dict.fromkeys(warnings)),
        notes=tuple(notes),
        floor_note=_floor_note(plan, settings),
    )


def _floor_note(plan: BufferPlan, settings: Settings) -> str:
    derived = any(group.source is SizeSource.DERIVED for group in plan.groups or (plan.fallback,))
    if plan.need is None or plan.derived_mib is None or settings.sizing != "auto" or not derived:
        return ""
    published = buffer_mib(plan.need.published_bytes, settings.headroom)
    if plan.derived_mib <= published:
        return ""
    return (
        f"operator floor: the published requirement gives {published} MB, the operators need "
        f"{plan.need.operator_bytes} bytes, so the size is raised to {plan.derived_mib} MB"
    )


def size_warnings(plan: BufferPlan, group: PlannedGroup, effective_mib: int) -> list[str]:
    """Sentences about a group that gets less than it should, or more than is possible."""
    found = []
    need = plan.need
    label = f"group {group.name}" if group.name != ANY_GROUP else "every group"
    origin = f"{effective_mib} MB ({group.source.value})"
    if (
        need is not None
        and need.operator_bytes is not None
        and group.request.spans_roles
        and effective_mib * MiB < need.operator_bytes
    ):
        found.append(
            f"{label} gets {origin}, below the operator need of {need.operator_bytes} bytes "
            f"({buffer_mib(need.operator_bytes)} MB); raise it"
        )
    derived = plan.derived_mib
    if group.source is SizeSource.CALLER and derived is not None and effective_mib < derived:
        found.append(
            f"{label} gets {origin}, smaller than the derived {derived} MB; the caller's size "
            "wins, raise or remove hccl_buffer_size in connector_extra_config"
        )
    if effective_mib > MAX_WINDOW_MIB:
        found.append(
            f"{label} gets {origin}, operator limit: a window is at most {MAX_WINDOW_MIB} MB"
        )
    return found


def npus_disagreement(role: Role, topology: Topology) -> str | None:
    """A sentence if the witnesses of the ranks per Attention DP group differ, else ``None``."""
    witnesses = {
        "num_npus_per_dp_group": topology.npus_per_dp_group,
        "attn_ranks_per_dp": topology.attn_ranks_per_dp,
        "TP x PCP": topology.tp_pcp_ranks if role is Role.ATTENTION else None,
    }
    known = {name: value for name, value in witnesses.items() if value is not None}
    if len(set(known.values())) < 2:
        return None
    listed = ", ".join(f"{name}={value}" for name, value in known.items())
    return (
        f"ranks per Attention DP group disagree: {listed}; make them equal (cam_hccl."
        "num_npus_per_dp_group, connector_extra_config.attn_ranks_per_dp)"
    )
