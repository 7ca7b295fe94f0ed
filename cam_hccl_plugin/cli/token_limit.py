# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The largest ``max_num_batched_tokens`` that a die takes: exact, with the real planner."""

from __future__ import annotations

from dataclasses import dataclass

from cam_hccl_plugin.cli.deployment import plan_roles
from cam_hccl_plugin.cli.sweep_points import SweptDeployment, memory_problem
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.model import Role

MOST_TOKENS = 2**40
"""Beyond any deployment; every derived size is far past 32 bits there."""


@dataclass(frozen=True)
class Obstacle:
    """Why a number of tokens does not do; ``role`` is ``None`` where it is not one role's."""

    role: Role | None
    reason: str


@dataclass(frozen=True)
class TokenLimit:
    """The largest number that does, 0 if not even 1; and what stops the next one."""

    tokens: int
    obstacles: tuple[Obstacle, ...]


def largest_tokens(swept: SweptDeployment) -> TokenLimit:
    """Bisect: every need grows with the tokens, so what does not fit never fits again.

    Conditions: the memory guard, the device itself, the operators' own limits as far as
    they depend on the tokens, and the largest size that HCCL takes.
    """
    constant = set(_operator_limits(swept, 1))
    low, high = 0, 1
    while high <= MOST_TOKENS and not _obstacles(swept, high, constant):
        low, high = high, 2 * high
    if high > MOST_TOKENS:
        return TokenLimit(low, ())
    while high - low > 1:
        middle = (low + high) // 2
        if _obstacles(swept, middle, constant):
            high = middle
        else:
            low = middle
    return TokenLimit(low, tuple(_obstacles(swept, high, constant)))


def _operator_limits(swept: SweptDeployment, tokens: int) -> list[str]:
    plans = plan_roles(swept.host, swept.at(max_num_batched_tokens=tokens))
    return [w for plan in plans.values() if plan.need for w in plan.need.warnings]


def _obstacles(swept: SweptDeployment, tokens: int, constant: set[str]) -> list[Obstacle]:
    deployment = swept.at(max_num_batched_tokens=tokens)
    try:
        plans = plan_roles(swept.host, deployment)
    except PlanError as error:
        return [Obstacle(None, str(error))]
    found = []
    for role, plan in plans.items():
        shortage = memory_problem(deployment, deployment.roles[role], plan)
        limits = plan.need.warnings if plan.need else ()
        reasons = [*([shortage] if shortage else []), *(w for w in limits if w not in constant)]
        found += [Obstacle(role, reason) for reason in reasons]
    return found
