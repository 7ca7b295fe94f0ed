# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A deployment plan as text for eyes."""

from __future__ import annotations

from cam_hccl_plugin.cli.deployment import DeploymentPlan, RolePlan, window_verdict
from cam_hccl_plugin.cli.memory_bar import memory_bars
from cam_hccl_plugin.ledger import LedgerEntry, ledger_table
from cam_hccl_plugin.model import MiB, Role
from cam_hccl_plugin.sizing import decimal_text

ROLE_LABEL = {Role.ATTENTION: "Attention", Role.FFN: "FFN"}


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
    rows = [["", *(ROLE_LABEL[role.plan.role] for role in roles)]]
    rows += [[label, *(cell(role) for role in roles)] for label, cell in _ROWS]
    today = result.deployment.hccl_buffsize_mib
    if today is not None:
        label = f"saved against HCCL_BUFFSIZE={today}"
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
    bars = memory_bars([(ROLE_LABEL[r], plan) for r, plan in result.roles.items()])
    sections = [bars, _communicators(result), _windows(result), _remarks(result)]
    return "\n".join([*head, *table, *(line for section in sections for line in section)])


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
        lines += ["", f"HCCL communicators of an {ROLE_LABEL[role]} rank", *table]
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
                ROLE_LABEL[check.role],
                shown,
                f"{check.believed_mib} MB",
                window_verdict(check),
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
        if window_verdict(check) not in ("ok", "followed")
        for line in (f"# {check.build.name}, {ROLE_LABEL[check.role]} ranks", check.export_line)
    ]
    if lines:
        lines = ["", "lines that you could add by hand for the build that you run:", *lines]
    return ["", *table, *lines]


def _remarks(result: DeploymentPlan) -> list[str]:
    notes = [
        f"note: {role.value}: {note}" for role, plan in result.roles.items() for note in plan.notes
    ]
    notes = [*(f"note: {note}" for note in result.deployment.notes), *notes]
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
