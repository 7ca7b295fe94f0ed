# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""One deployment at many values of its tokens or ranks, with the real planner."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from cam_hccl_plugin.cli.deployment import Deployment, RoleLaunch, claim_connector, plan_roles
from cam_hccl_plugin.cli.from_options import deployment_from
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.memory import cannot_fit, check_guard
from cam_hccl_plugin.model import BufferPlan, ConnectorIdentity, ModelShape, Role
from cam_hccl_plugin.plugin_host import PluginHost
from cam_hccl_plugin.sizing import buffer_mib, ceil_div

OVER = {
    "tokens": "max_num_batched_tokens",
    "attention-ranks": "attention_ranks",
    "ffn-ranks": "ffn_ranks",
}
"""What can be swept, and the option that it replaces."""


@dataclass(frozen=True)
class RolePoint:
    """One role at one value; sizes in MiB. ``memory`` is "" where no device is given."""

    tokens: int
    published_mib: int
    operator_mib: int | None
    selected_mib: int
    device_memory_mib: int
    memory: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class SweepPoint:
    """Both roles at one value."""

    value: int
    roles: dict[Role, RolePoint]


@dataclass(frozen=True)
class SweptDeployment:
    """Makes the deployment at a value of the swept option."""

    host: PluginHost
    arguments: argparse.Namespace
    shape: ModelShape

    def at(self, **changed: int) -> Deployment:
        """The deployment with these options changed.

        Where the roles do not share their tokens, and FFN's are not given, FFN gets what
        Attention sends it: A x tokens / F, rounded up.
        """
        arguments = argparse.Namespace(**{**vars(self.arguments), **changed})
        if self.ffn_scaled:
            sent = arguments.attention_ranks * arguments.max_num_batched_tokens
            arguments.ffn_max_num_batched_tokens = ceil_div(sent, arguments.ffn_ranks)
        return deployment_from(arguments, self.host, self.shape)

    @property
    def ffn_scaled(self) -> bool:
        """Whether FFN's tokens follow from Attention's."""
        if self.arguments.ffn_max_num_batched_tokens is not None:
            return False
        name = self.arguments.connector
        claim = claim_connector(self.host, ConnectorIdentity(name, (name,)), "--connector")
        return not claim.tokens_shared


def sweep(swept: SweptDeployment, over: str, values: Sequence[int]) -> list[SweepPoint]:
    """Plan both roles at each value.

    Raises:
        PlanError: a size cannot be decided; the message names the value.
    """
    points = []
    for value in values:
        try:
            deployment = swept.at(**{OVER[over]: value})
            plans = plan_roles(swept.host, deployment)
        except PlanError as error:
            raise PlanError(f"at {over} {value}: {error}") from error
        points.append(SweepPoint(value, {r: _point(deployment, r, p) for r, p in plans.items()}))
    return points


def _point(deployment: Deployment, role: Role, plan: BufferPlan) -> RolePoint:
    launch = deployment.roles[role]
    need = plan.need
    if need is None:
        raise PlanError(f"the {role.value} need is unknown")
    operator = None if need.operator_bytes is None else buffer_mib(need.operator_bytes)
    memory = "short" if memory_problem(deployment, launch, plan) else "ok"
    return RolePoint(
        tokens=launch.inputs.max_num_batched_tokens,
        published_mib=buffer_mib(need.published_bytes, launch.settings.headroom),
        operator_mib=operator,
        selected_mib=plan.selected_mib,
        device_memory_mib=plan.device_memory_mib,
        memory="" if deployment.device_memory_bytes is None else memory,
        warnings=plan.warnings,
    )


def memory_problem(deployment: Deployment, launch: RoleLaunch, plan: BufferPlan) -> str:
    """The condition that the die's memory breaks, as a sentence; "" if none."""
    total = deployment.device_memory_bytes
    if total is None:
        return ""
    buffers = [group.effective_mib for group in plan.groups or (plan.fallback,)]
    guard = check_guard(total, launch.utilization, launch.settings.memory_guard_ratio, buffers)
    if guard.short:
        return str(guard)
    return cannot_fit(total, buffers) or ""
