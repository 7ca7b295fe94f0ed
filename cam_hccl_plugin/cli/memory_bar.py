# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The die's memory as a bar in plain ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from cam_hccl_plugin.cli.deployment import RolePlan
from cam_hccl_plugin.memory import GuardReport
from cam_hccl_plugin.model import MiB
from cam_hccl_plugin.sizing import decimal_text

BAR_CELLS = 60
VLLM, CAM, FREE, OVER = "#", "C", ".", "!"


def memory_bars(roles: Sequence[tuple[str, RolePlan]]) -> list[str]:
    """A bar and a line of numbers per role; nothing where the die's memory is not known."""
    lines = []
    known = [(label, plan.guard) for label, plan in roles if plan.guard is not None]
    for label, guard in known:
        lines += ["", f"memory of one {label} die, {_mib(Fraction(guard.total_bytes))} MiB"]
        lines += [f"[{bar(guard)}]", *_legend(guard)]
    return lines


def bar(guard: GuardReport, cells: int = BAR_CELLS) -> str:
    """``cells`` characters: vLLM's share, the CAM buffers, what is left.

    The CAM buffers get a cell of their own even where they are too small for one. What does
    not fit beside vLLM's share is drawn over it, as "!".
    """
    vllm = round(guard.utilization * cells)
    share = Fraction(guard.groups_need_bytes, guard.total_bytes)
    cam = min(cells, max(1, round(share * cells))) if guard.groups_need_bytes else 0
    free_bytes = guard.outside_bytes - guard.groups_need_bytes
    if free_bytes >= 0:
        vllm = min(vllm, cells - cam)
        return VLLM * vllm + CAM * cam + FREE * (cells - vllm - cam)
    inside = min(cam, cells - vllm)
    over = max(1, cam - inside)
    inside = cam - over
    return VLLM * (cells - over - inside) + OVER * over + CAM * inside


def _legend(guard: GuardReport) -> list[str]:
    vllm = guard.total_bytes - guard.outside_bytes
    left = guard.outside_bytes - guard.groups_need_bytes
    utilization = decimal_text(guard.utilization)
    lines = [
        f"  {VLLM} gpu_memory_utilization {utilization}: {_mib(vllm)} MiB",
        f"  {CAM} CAM groups: {_mib(Fraction(guard.groups_need_bytes))} MiB",
    ]
    if left >= 0:
        lines.append(f"  {FREE} left for all other HCCL groups and the runtime: {_mib(left)} MiB")
    else:
        lines.append(f"  {OVER} CAM groups inside vLLM's share, short by {_mib(-left)} MiB")
    return lines


def _mib(nbytes: Fraction) -> str:
    value = nbytes / MiB
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.1f}"
