# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Device memory: the guard for what lies outside ``gpu_memory_utilization``, in exact numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from cam_hccl_plugin.model import AREAS_PER_COMMUNICATOR, MiB
from cam_hccl_plugin.sizing import decimal_text

DEFAULT_GUARD_RATIO = Fraction(5, 2)
"""Memory wanted outside the utilization, in multiples of the role's largest buffer."""

_ENORMOUS_MIB = 10**15


@dataclass(frozen=True)
class GuardReport:
    """Outcome of the memory guard; all sizes in bytes, fractions where they are exact.

    ``best_utilization_percent`` is the largest whole percent of utilization that leaves
    enough, or ``None`` if not even 0.01 would.
    """

    total_bytes: int
    utilization: Fraction
    outside_bytes: Fraction
    ratio: Fraction
    ratio_need_bytes: Fraction
    groups_need_bytes: int
    best_utilization_percent: int | None

    @property
    def short(self) -> bool:
        """Whether less is left outside than is needed; equal is enough."""
        need = max(self.ratio_need_bytes, Fraction(self.groups_need_bytes))
        return self.outside_bytes < need

    def __str__(self) -> str:
        if self.best_utilization_percent is None:
            remedy = "no gpu_memory_utilization would do"
        else:
            percent = self.best_utilization_percent
            remedy = f"gpu_memory_utilization {percent // 100}.{percent % 100:02d} would do"
        return (
            f"memory guard: {_mib(self.outside_bytes)} MiB of {_mib(self.total_bytes)} MiB lie "
            f"outside gpu_memory_utilization={decimal_text(self.utilization)}, but "
            f"{decimal_text(self.ratio)} x the largest buffer is {_mib(self.ratio_need_bytes)} MiB "
            f"and the HCCL groups take {_mib(self.groups_need_bytes)} MiB; {remedy} "
            "(the configured value is left unchanged)"
        )


def check_guard(
    total_bytes: int, utilization: Fraction, ratio: Fraction, buffers_mib: Sequence[int]
) -> GuardReport:
    """Compare the memory outside the utilization with what the CAM groups want.

    Formula: (1 - utilization) * total against max(ratio * largest buffer, 2 * their sum).
    Units: bytes, a ratio, MiB per buffer; nothing is rounded but the percent (down).
    """
    largest_bytes = max(buffers_mib, default=0) * MiB
    groups_bytes = AREAS_PER_COMMUNICATOR * sum(buffers_mib) * MiB
    ratio_bytes = ratio * largest_bytes
    need = max(ratio_bytes, Fraction(groups_bytes))
    percent = (1 - need / total_bytes) * 100 // 1
    return GuardReport(
        total_bytes=total_bytes,
        utilization=utilization,
        outside_bytes=(1 - utilization) * total_bytes,
        ratio=ratio,
        ratio_need_bytes=ratio_bytes,
        groups_need_bytes=groups_bytes,
        best_utilization_percent=int(percent) if percent >= 1 else None,
    )


def cannot_fit(total_bytes: int, buffers_mib: Sequence[int]) -> str | None:
    """The error text if the groups alone are larger than the device, else ``None``."""
    groups_mib = AREAS_PER_COMMUNICATOR * sum(buffers_mib)
    if groups_mib * MiB <= total_bytes:
        return None
    return (
        f"the HCCL groups of this process take {groups_mib} MiB (2 x the buffer, summed over "
        f"{len(buffers_mib)} groups) and the device has {_mib(total_bytes)} MiB; lower "
        "what decides the sizes: max_num_batched_tokens for derived ones, buffer_size_mb and "
        "group_buffer_size_mb in cam_hccl, hccl_buffer_size in connector_extra_config, or "
        "HCCL_BUFFSIZE for a group left alone"
    )


def _mib(nbytes: Fraction | int) -> str:
    """Bytes as MiB for a person: whole where whole, else one decimal; rounded if enormous."""
    value = Fraction(nbytes) / MiB
    if value >= _ENORMOUS_MIB:
        return decimal_text(value)
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.1f}"
