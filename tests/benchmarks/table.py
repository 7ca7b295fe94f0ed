# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A table for eyes and for JSON, and the targets that a figure is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows under ``columns`` (JSON key -> heading); a cell is text, a number or ``None``."""

    name: str
    title: str
    columns: dict[str, str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = field(default_factory=list)

    def as_text(self) -> str:
        """Title, aligned columns (numbers to the right), notes."""
        body = [[cell_text(cell) for cell in row] for row in self.rows]
        lines = [list(self.columns.values()), *body]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        right = [
            any(isinstance(cell, int | float) for cell in column)
            for column in zip(*self.rows, strict=True)
        ] or [False] * len(widths)
        text = [
            "  ".join(
                cell.rjust(width) if to_right else cell.ljust(width)
                for cell, width, to_right in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, "", *text, *(f"  {note}" for note in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """The same as values: one object per row, in the keys of ``columns``."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"name": self.name, "title": self.title, "rows": rows, "notes": list(self.notes)}


def cell_text(cell: Any) -> str:
    """A dash for nothing, two decimals below 100, else whole numbers with group marks."""
    if cell is None:
        return "-"
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return str(cell)
    if isinstance(cell, int) or abs(cell) >= 100:
        return f"{round(cell):,}".replace(",", " ")
    return f"{cell:.2f}"


@dataclass(frozen=True)
class Target:
    """A limit and what was measured; ``met`` is decided here and nowhere else."""

    name: str
    measured: float
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether the measured figure is within the limit."""
        return self.measured <= self.limit


def target_table(targets: Sequence[Target]) -> Table:
    """All targets of a run, met or missed."""
    return Table(
        "targets",
        "Targets",
        {"target": "target", "limit": "limit", "measured": "measured", "unit": "", "met": "met"},
        [(t.name, t.limit, t.measured, t.unit, "met" if t.met else "MISSED") for t in targets],
    )


@dataclass
class Figures:
    """What a section brings home."""

    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
