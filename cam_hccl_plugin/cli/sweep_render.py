# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A sweep as an aligned table, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

from cam_hccl_plugin.cli.render import ROLE_LABEL
from cam_hccl_plugin.cli.sweep_points import RolePoint, SweepPoint
from cam_hccl_plugin.cli.token_limit import TokenLimit
from cam_hccl_plugin.model import Role

_EXPLANATION = (
    "in MB: published need x headroom, operator need, selected buffer, device memory",
    "(2 x selected, summed over the role's groups)",
)


def as_table(title: str, over: str, points: Sequence[SweepPoint], limit: TokenLimit | None) -> str:
    """The sweep for eyes, the limit and the distinct warnings below it."""
    blocks = {role: _block(points, role) for role in points[0].roles}
    values = [over, *(str(point.value) for point in points)]
    width = max(map(len, values))
    lines = [" " * width, *(value.rjust(width) for value in values)]
    for role, block in blocks.items():
        wide = max(len(block[0]), len(ROLE_LABEL[role]))
        column = [ROLE_LABEL[role].center(wide), *(line.rjust(wide) for line in block)]
        lines = [f"{left} | {right}" for left, right in zip(lines, column, strict=True)]
    text = [title, "", *(line.rstrip() for line in lines), "", *_EXPLANATION]
    if limit is not None:
        text += ["", *limit_lines(limit)]
    return "\n".join([*text, *_warnings(points)])


def _block(points: Sequence[SweepPoint], role: Role) -> list[str]:
    """The columns of one role, aligned; tokens only where they are not the swept value."""
    each = [point.roles[role] for point in points]
    columns = {
        "published": [str(p.published_mib) for p in each],
        "operator": ["unknown" if p.operator_mib is None else str(p.operator_mib) for p in each],
        "selected": [str(p.selected_mib) for p in each],
        "device": [str(p.device_memory_mib) for p in each],
    }
    if any(p.tokens != point.value for p, point in zip(each, points, strict=True)):
        columns = {"tokens": [str(p.tokens) for p in each], **columns}
    if any(p.memory for p in each):
        columns["memory"] = [p.memory for p in each]
    cells = [[name, *values] for name, values in columns.items()]
    widths = [max(map(len, column)) for column in cells]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in zip(*cells, strict=True)
    ]


def limit_lines(limit: TokenLimit) -> list[str]:
    """The largest tokens and what stops the next one, as sentences."""
    if not limit.obstacles:
        return [f"no limit found up to max_num_batched_tokens {limit.tokens}"]
    if limit.tokens == 0:
        head = "not even max_num_batched_tokens 1 fits:"
    else:
        head = f"largest max_num_batched_tokens that fits: {limit.tokens}; one more breaks"
    return [head, *(f"  {_where(o.role)}: {o.reason}" for o in limit.obstacles)]


def _where(role: Role | None) -> str:
    return "both roles" if role is None else ROLE_LABEL[role]


def _warnings(points: Sequence[SweepPoint]) -> list[str]:
    """Each kind of warning once, as it stands at the first value that has it."""
    first: dict[str, str] = {}
    for point in points:
        for role, each in point.roles.items():
            for warning in each.warnings:
                text = f"{ROLE_LABEL[role]}: {warning}"
                first.setdefault(re.sub(r"[0-9]+", "N", text), f"warning at {point.value}: {text}")
    return ["", *first.values()] if first else []


def as_csv(over: str, points: Sequence[SweepPoint]) -> str:
    """One line per value; sizes in MB end in ``_mb``."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    roles = list(points[0].roles)
    names = list(_role_json(points[0].roles[roles[0]]))[:-1]
    writer.writerow([over, *(f"{role.value}_{name}" for role in roles for name in names)])
    for point in points:
        values = [list(_role_json(point.roles[role]).values())[:-1] for role in roles]
        writer.writerow([point.value, *(v for role_values in values for v in role_values)])
    return stream.getvalue().rstrip("\n")


def as_json(over: str, points: Sequence[SweepPoint], limit: TokenLimit | None) -> dict[str, Any]:
    """The sweep as one JSON object."""
    return {
        "over": over,
        "points": [
            {
                "value": point.value,
                "roles": {role.value: _role_json(each) for role, each in point.roles.items()},
            }
            for point in points
        ],
        "largest_max_num_batched_tokens": None
        if limit is None
        else {
            "tokens": limit.tokens,
            "stopped_by": [
                {"role": o.role.value if o.role else None, "reason": o.reason}
                for o in limit.obstacles
            ],
        },
    }


def _role_json(point: RolePoint) -> dict[str, Any]:
    return {
        "max_num_batched_tokens": point.tokens,
        "published_mb": point.published_mib,
        "operator_mb": point.operator_mib,
        "selected_mb": point.selected_mib,
        "device_memory_mb": point.device_memory_mib,
        "memory": point.memory or None,
        "warnings": list(point.warnings),
    }
