# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A deployment plan as one JSON object."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from cam_hccl_plugin.cli.deployment import DeploymentPlan, RolePlan, window_verdict
from cam_hccl_plugin.model import MiB
from cam_hccl_plugin.operator_window import WindowCheck
from cam_hccl_plugin.sizing import decimal_text


def as_json(result: DeploymentPlan) -> dict[str, Any]:
    """The plan as one JSON object; sizes in MB (MiB) end in ``_mb``, bytes in ``_bytes``."""
    return {
        "connector": result.connector,
        "kind": result.deployment.claim.kind,
        "sizing": result.settings.sizing,
        "headroom": decimal_text(result.settings.headroom),
        "scope": result.settings.scope,
        "roles": {role.value: _role_json(plan) for role, plan in result.roles.items()},
        "warnings": result.warnings,
        "notes": list(result.deployment.notes),
    }


def _role_json(role: RolePlan) -> dict[str, Any]:
    guard = role.guard
    return {
        "published_bytes": role.need.published_bytes,
        "published_mb": role.published_mib,
        "operator_bytes": role.need.operator_bytes,
        "selected_mb": role.plan.selected_mib,
        "groups": {group.name: group.effective_mib for group in role.groups},
        "device_memory_mb": role.plan.device_memory_mib,
        "npus_per_dp_group": role.need.npus_per_dp_group,
        "max_num_batched_tokens": role.inputs.max_num_batched_tokens,
        "saved_mb": role.saved_mib,
        "memory_guard": None
        if guard is None
        else {
            "short": guard.short,
            "outside_mb": _number(guard.outside_bytes / MiB),
            "ratio_need_mb": _number(guard.ratio_need_bytes / MiB),
            "groups_need_mb": guard.groups_need_bytes // MiB,
            "largest_utilization": None
            if guard.best_utilization_percent is None
            else guard.best_utilization_percent / 100,
        },
        "operator_windows": [_window_json(check) for check in role.windows],
        "warnings": list(role.warnings),
        "notes": role.notes,
    }


def _number(value: Fraction) -> int | float:
    """For JSON: whole where whole, of any size."""
    return value.numerator if value.denominator == 1 else float(value)


def _window_json(check: WindowCheck) -> dict[str, Any]:
    return {
        "build": check.build.name,
        "variable": check.build.variable,
        "value": check.raw,
        "believed_mb": check.believed_mib,
        "group": check.group,
        "verdict": window_verdict(check),
        "warnings": check.warnings(),
        "export": check.export_line,
    }
