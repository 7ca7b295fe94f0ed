# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The ledger: what each HCCL communicator of a process takes, and who decided it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cam_hccl_plugin.model import AREAS_PER_COMMUNICATOR

FROM_PLUGIN = "cam_hccl"
FROM_CALLER = "caller's options"
FROM_ENVIRONMENT = "HCCL_BUFFSIZE"
FROM_DEFAULT = "HCCL default"


@dataclass(frozen=True)
class LedgerEntry:
    """One communicator: ``ranks`` in the group, buffer in MiB, and where the size came from."""

    name: str
    ranks: int
    buffer_mib: int
    origin: str

    @property
    def device_memory_mib(self) -> int:
        """Device memory of the communicator: two areas."""
        return AREAS_PER_COMMUNICATOR * self.buffer_mib


def ledger_table(entries: Sequence[LedgerEntry]) -> str:
    """An aligned table with a line per communicator and the sum."""
    rows = [("HCCL group", "ranks", "buffer MB", "size from", "device MB")]
    rows += [
        (e.name, str(e.ranks), str(e.buffer_mib), e.origin, str(e.device_memory_mib))
        for e in entries
    ]
    rows.append(("sum", "", "", "", str(sum(e.device_memory_mib for e in entries))))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    left = (0, 3)
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
