# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A deployment plan as text for eyes and as JSON."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from cam_hccl_plugin.cli.deployment import DeploymentPlan, RolePlan
from cam_hccl_plugin.ledger import LedgerEntry, ledger_table
from cam_hccl_plugin.model import MiB, Role
from cam_hccl_plugin.operator_window import WindowCheck
from cam_hccl_plugin.report import decimal_text

_LABEL = {Role.ATTENTION: "Attention", Role.FFN: "FFN"}


def as_json(result: DeploymentPlan) -> dict[str, Any]:
    """The plan as one JSON object; sizes in MB (MiB) end in ``_mb``, bytes in ``_bytes``."""
    return {
        "connector": result.connector,
        "kind": result.kind,
        "sizing": result.settings.sizing,
        "headroom": decimal_text(result.settings.headroom),
        "scope": result.settings.scope,
        "roles": {role.value: _role_json(plan) for role, plan in result.roles.items()},
        "warnings": result.warnings,
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
        "notes": [*role.plan.notes, *([role.plan.floor_note] if role.plan.floor_note else [])],
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
        "verdict": _verdict(check),
        "warnings": check.warnings(),
        "export": check.export_line,
    }


def _verdict(check: WindowCheck) -> str:
    if check.too_small:
        return "too small"
    return "too large" if check.too_large else "ok"


def as_text(result: DeploymentPlan) -> str:
    """The plan as an aligned table with the reasons below it."""
    roles = list(result.roles.values())
    first = roles[0].inputs
    topology, model = first.topology, first.model
    head = [
        f"{result.connector}: {topology.attention_ranks} Attention + {topology.ffn_ranks} FFN "
        f"ranks, hidden {model.hidden_size}, topk {model.topk}, {model.routed_experts} experts, "
        f"dynamic quant {int(first.dynamic_quant)}",
        f"sizing {result.settings.sizing}, headroom {decimal_text(result.settings.headroom)}, "
        f"scope {result.settings.scope}",
        "",
    ]
    rows = [["", *(_LABEL[role.plan.role] for role in roles)]]
    rows += [[label, *(cell(role) for role in roles)] for label, cell in _ROWS]
    if result.hccl_buffsize_mib is not None:
        label = f"saved against HCCL_BUFFSIZE={result.hccl_buffsize_mib}"
        rows.append([label, *(f"{role.saved_mib} MB" for role in roles)])
    if any(role.guard for role in roles):
        rows.append(["memory guard", *(_guard_cell(role) for role in roles)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    return "\n".join([*head, *table, *_communicators(result), *_windows(result), *_remarks(result)])


def _communicators(result: DeploymentPlan) -> list[str]:
    """The ledger of the CAM groups, as a worker prints it."""
    lines = []
    for role, plan in result.roles.items():
        ranks = {Role.ATTENTION: plan.inputs.topology.attention_ranks}
        ranks[Role.FFN] = plan.inputs.topology.ffn_ranks
        entries = [
            LedgerEntry(
                group.name,
                sum(ranks[each] for each in group.request.roles),
                group.effective_mib,
                group.source.value,
            )
            for group in plan.groups
        ]
        table = ledger_table(entries).splitlines()
        lines += ["", f"HCCL communicators of an {_LABEL[role]} rank", *table]
    return lines


def _windows(result: DeploymentPlan) -> list[str]:
    checks = [check for role in result.roles.values() for check in role.windows]
    if not checks:
        return []
    rows = [["operator window of a build", "rank", "variable", "believes", "verdict"]]
    for check in checks:
        shown = f"{check.build.variable}={'unset' if check.raw is None else check.raw}"
        rows.append(
            [
                check.build.name,
                _LABEL[check.role],
                shown,
                f"{check.believed_mib} MB",
                _verdict(check),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines = [
        line
        for check in checks
        if _verdict(check) != "ok"
        for line in (f"# {check.build.name}, {_LABEL[check.role]} ranks", check.export_line)
    ]
    if lines:
        lines = ["", "lines that you could add by hand for the build that you run:", *lines]
    return ["", *table, *lines]


def _remarks(result: DeploymentPlan) -> list[str]:
    notes = [
        f"note: {role.value}: {note}"
        for role, plan in result.roles.items()
        for note in (*plan.plan.notes, plan.plan.floor_note)
        if note
    ]
    remarks = [*notes, *(f"warning: {warning}" for warning in result.warnings)]
    return ["", *remarks] if remarks else []


def _operator_cell(role: RolePlan) -> str:
    operator = role.need.operator_bytes
    return "unknown" if operator is None else f"{operator} B = {operator / MiB:.2f} MiB"


def _groups_cell(role: RolePlan) -> str:
    return ", ".join(f"{group.name} {group.effective_mib}" for group in role.groups)


def _guard_cell(role: RolePlan) -> str:
    if role.guard is None:
        return "-"
    return "short" if role.guard.short else "ok"


_ROWS = (
    ("max_num_batched_tokens", lambda role: str(role.inputs.max_num_batched_tokens)),
    ("published need x headroom", lambda role: f"{role.published_mib} MB"),
    ("operator need", _operator_cell),
    ("selected", lambda role: f"{role.plan.selected_mib} MB"),
    ("groups (MB)", _groups_cell),
    ("device memory (2 x MB, summed)", lambda role: f"{role.plan.device_memory_mib} MB"),
)
