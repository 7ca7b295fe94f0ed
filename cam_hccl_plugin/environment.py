# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The two environment variables that decide buffers, as their readers understand them.

Pure: texts in, numbers out. Nothing of this package writes or unsets a variable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cam_hccl_plugin.model import HCCL_DEFAULT_MIB

HCCL_BUFFSIZE = "HCCL_BUFFSIZE"
"""Process-wide buffer size of HCCL, in MB."""

LCCL_BUFFER_SIZE = "LCCL_BUFFER_SIZE"
"""Window that the CAM Async operators built from source believe in, in MB."""

_MOST_DIGITS = 20
"""Digits that are read; more do not fit 64 bits, and Python refuses to read some thousands."""


@dataclass(frozen=True)
class EnvironmentBuffer:
    """``HCCL_BUFFSIZE`` as HCCL will read it.

    ``effective_mib`` is what a group without a size gets; ``problem`` is a sentence if
    HCCL will refuse the value or read another one than is written.
    """

    raw: str | None
    effective_mib: int
    problem: str = ""

    def __str__(self) -> str:
        return "unset" if self.raw is None else self.raw


def leading_integer(text: str) -> int | None:
    """The integer that C's strtol reads at the start of ``text``, ``None`` if there is none."""
    match = re.match(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]+)", text)
    if match is None:
        return None
    sign, digits = match.groups()
    return int(sign + digits[:_MOST_DIGITS])


def read_buffsize(raw: str | None) -> EnvironmentBuffer:
    """What HCCL makes of the text ``raw``: strtol, cut to 32 bits; ``None`` is unset, 200 MB.

    Source: torch-npu's option reader, tried on the real library.
    """
    if raw is None:
        return EnvironmentBuffer(None, HCCL_DEFAULT_MIB)
    value = leading_integer(raw) or 0
    effective = min(value, 2**63 - 1) % 2**32
    if value <= 0 or effective == 0:
        return EnvironmentBuffer(
            raw,
            HCCL_DEFAULT_MIB,
            f"{HCCL_BUFFSIZE}={raw!r} is not a positive integer: HCCL will fail on its first "
            "communicator, whatever sizes the groups have; correct it or unset it",
        )
    if str(effective) != raw.strip():
        problem = f"{HCCL_BUFFSIZE}={raw!r} is read by HCCL as {effective} MB; write that"
        return EnvironmentBuffer(raw, effective, problem)
    return EnvironmentBuffer(raw, effective)
