# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The memory guard in a worker: once per connector, in the user's chosen severity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from cam_hccl_plugin.errors import InjectionError, PlanError
from cam_hccl_plugin.log import LOGGER
from cam_hccl_plugin.memory import cannot_fit, check_guard
from cam_hccl_plugin.settings import Settings


class MemoryGuard:
    """Warns once, on every rank; raises instead where the user asked for it."""

    def __init__(
        self,
        settings: Settings,
        utilization: Fraction | None,
        device_total_bytes: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._utilization = utilization
        self._warned = False
        self._checked: list[int] | None = None
        self._total: int | None = None
        self._reason = ""
        try:
            self._total = device_total_bytes()
        except InjectionError as error:
            self._reason = str(error)

    def check(self, buffers_mib: Sequence[int]) -> None:
        """Check these buffers, unless the same were checked before.

        Raises:
            PlanError: they do not fit the device, or are short with ``on_memory_shortage``
                "error".
        """
        if self._checked == list(buffers_mib):
            return
        self._checked = list(buffers_mib)
        if self._total is None:
            self._complain(f"memory guard skipped: device memory unreadable: {self._reason}")
            return
        too_large = cannot_fit(self._total, buffers_mib)
        if too_large:
            raise PlanError(too_large)
        if self._utilization is None:
            self._complain("memory guard skipped: gpu_memory_utilization is not a number")
            return
        ratio = self._settings.memory_guard_ratio
        report = check_guard(self._total, self._utilization, ratio, buffers_mib)
        if report.short:
            self._complain(str(report))

    def _complain(self, message: str) -> None:
        if self._settings.on_memory_shortage == "error":
            raise PlanError(
                f'{message}; cam_hccl.on_memory_shortage is "error", use "warn" to go on'
            )
        if not self._warned:
            LOGGER.warning("cam_hccl: %s", message)
        self._warned = True
