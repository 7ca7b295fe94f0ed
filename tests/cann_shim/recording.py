# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The recording that the shim writes: one JSON object a line for each communicator call."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CommunicatorCall:
    """One call that reached the C interface, as the shim saw it."""

    call: str
    pid: int
    nranks: int
    rank: int
    result: int
    name: str
    #: ``HcclCommConfig``'s buffer size; None for calls that carry no configuration.
    buffer_size_mb: int | None
    #: Another field of that structure, to see that settings other than the size arrive too.
    op_expansion_mode: int | None
    #: The environment variable as C code saw it at that moment.
    hccl_buffsize: str | None

    @property
    def group_name(self) -> str:
        """The process group's name: torch-npu puts ``group_name_`` before it."""
        return self.name.removeprefix("group_name_")


def read_recording(path: Path) -> list[CommunicatorCall]:
    """All calls recorded in ``path`` in order; none if the file does not exist."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [CommunicatorCall(hccl_buffsize=row.pop("HCCL_BUFFSIZE"), **row) for row in rows]


def attempted(calls: list[CommunicatorCall]) -> list[CommunicatorCall]:
    """The creations among ``calls``; the ``result`` of a failed one is not 0."""
    return [c for c in calls if c.call != "HcclCommDestroy"]


def destroyed(calls: list[CommunicatorCall]) -> list[CommunicatorCall]:
    """The destructions among ``calls``."""
    return [c for c in calls if c.call == "HcclCommDestroy"]
