# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The guard of a worker: once, at the chosen severity, on every rank."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from start_case import Lines

from cam_hccl_plugin.errors import InjectionError, PlanError
from cam_hccl_plugin.memory_guard import MemoryGuard
from cam_hccl_plugin.model import MiB
from cam_hccl_plugin.settings import Settings


def _unreadable() -> int:
    raise InjectionError("no such device")


def _readable() -> int:
    return 10000 * MiB


def _guard(total: Callable[[], int] = _readable, **settings: Any) -> MemoryGuard:
    return MemoryGuard(Settings(**settings), Fraction("0.9"), total)


def test_exactly_enough_is_silent(log: Lines) -> None:
    _guard().check([400])  # 0.1 x 10000 = 2.5 x 400
    assert log.lines == []


def test_short_is_one_warning_with_all_numbers(log: Lines) -> None:
    guard = _guard()
    guard.check([401])
    guard.check([401])
    guard.check([402])
    ((level, text),) = log.lines
    assert level == "WARNING"
    for part in ("1000 MiB", "1002.5 MiB", "802 MiB", "gpu_memory_utilization 0.89 would do"):
        assert part in text


def test_the_sum_over_the_groups_counts_too(log: Lines) -> None:
    _guard().check([300, 200])
    assert log.lines == []
    _guard().check([300, 201])
    assert "1002 MiB" in log.lines[0][1]


def test_ratio_zero_leaves_the_sum(log: Lines) -> None:
    guard = _guard(memory_guard_ratio=Fraction(0))
    guard.check([500])
    assert log.lines == []
    guard.check([501])
    assert len(log.lines) == 1


def test_error_raises_and_names_the_key() -> None:
    guard = _guard(on_memory_shortage="error")
    guard.check([400])
    with pytest.raises(PlanError, match=r"memory guard: .*on_memory_shortage"):
        guard.check([401])


@pytest.mark.parametrize("severity", ["warn", "error"])
def test_groups_larger_than_the_device_are_always_an_error(severity: str) -> None:
    guard = _guard(on_memory_shortage=severity)
    with pytest.raises(PlanError, match="10002 MiB"):
        guard.check([5001])


def test_unreadable_memory_is_a_warning(log: Lines) -> None:
    guard = _guard(_unreadable)
    guard.check([10])
    guard.check([20])
    ((level, text),) = log.lines
    assert level == "WARNING"
    assert "memory guard skipped" in text
    assert "no such device" in text


def test_unreadable_memory_is_an_error_where_shortage_is() -> None:
    guard = _guard(_unreadable, on_memory_shortage="error")
    with pytest.raises(PlanError, match="memory guard skipped"):
        guard.check([10])


def test_the_device_is_asked_once() -> None:
    asked: list[int] = []

    def total() -> int:
        asked.append(1)
        return 10000 * MiB

    guard = MemoryGuard(Settings(), Fraction("0.9"), total)
    guard.check([1])
    guard.check([2])
    assert len(asked) == 1


def test_a_utilization_that_is_no_number_skips_the_guard_but_not_the_fit(log: Lines) -> None:
    guard = MemoryGuard(Settings(), None, _readable)
    guard.check([4999])
    assert "memory guard skipped" in log.lines[0][1]
    with pytest.raises(PlanError):
        guard.check([5001])
