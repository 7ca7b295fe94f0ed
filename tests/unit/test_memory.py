# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The memory guard and the error for groups that cannot fit."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin.memory import cannot_fit, check_guard
from cam_hccl_plugin.model import MiB

GIB = 1024 * MiB
RATIO = Fraction(5, 2)


def test_exactly_enough_is_enough() -> None:
    # 0.1 of 10000 MiB is 1000 MiB; 2.5 x 400 MB is 1000 MiB.
    assert not check_guard(10000 * MiB, Fraction("0.9"), RATIO, [400]).short
    assert check_guard(10000 * MiB, Fraction("0.9"), RATIO, [401]).short
    assert check_guard(10000 * MiB - 1, Fraction("0.9"), RATIO, [400]).short


def test_the_groups_themselves_are_the_second_need() -> None:
    # 2 x (300 + 200) MB is 1000 MiB, more than 2.5 x 300.
    report = check_guard(10000 * MiB, Fraction("0.9"), RATIO, [300, 200])
    assert not report.short
    assert report.groups_need_bytes == 1000 * MiB
    assert report.ratio_need_bytes == 750 * MiB
    assert check_guard(10000 * MiB, Fraction("0.9"), RATIO, [300, 201]).short


def test_ratio_zero_switches_only_the_first_half_off() -> None:
    assert not check_guard(10000 * MiB, Fraction("0.9"), Fraction(0), [500]).short
    assert check_guard(10000 * MiB, Fraction("0.9"), Fraction(0), [501]).short
    assert check_guard(10000 * MiB, Fraction("0.9"), RATIO, [500]).short


def test_a_warning_has_all_three_numbers_and_the_best_utilization() -> None:
    report = check_guard(64 * GIB, Fraction("0.95"), RATIO, [2369])
    assert report.short
    text = str(report)
    # 0.05 * 65536 = 3276.8; 2.5 * 2369 = 5922.5; 2 * 2369 = 4738
    for number in ("3276.8 MiB", "5922.5 MiB", "4738 MiB", "0.95", "65536 MiB"):
        assert number in text
    # 1 - 5922.5 / 65536 = 0.9096..., rounded down
    assert report.best_utilization_percent == 90
    assert "gpu_memory_utilization 0.90 would do" in text
    assert "GB" not in text


@pytest.mark.parametrize(("buffer", "percent"), [(400, 90), (404, 89), (3960, 1), (3961, None)])
def test_the_best_utilization_is_rounded_down(buffer: int, percent: int | None) -> None:
    report = check_guard(10000 * MiB, Fraction("0.999"), RATIO, [buffer])
    assert report.best_utilization_percent == percent


def test_it_says_so_if_no_utilization_would_do() -> None:
    report = check_guard(1000 * MiB, Fraction("0.9"), RATIO, [400])
    assert report.best_utilization_percent is None
    assert "no gpu_memory_utilization would do" in str(report)


def test_a_utilization_of_five_hundredths_has_two_decimals() -> None:
    report = check_guard(1000 * MiB, Fraction("0.9"), RATIO, [380])
    assert "gpu_memory_utilization 0.05 would do" in str(report)


@given(
    st.integers(1, 2**38),
    st.integers(1, 100),
    st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    st.integers(0, 50),
)
def test_the_best_utilization_is_the_largest_that_is_not_short(
    total: int, percent: int, buffers: list[int], tenths: int
) -> None:
    ratio = Fraction(tenths, 10)
    report = check_guard(total, Fraction(percent, 100), ratio, buffers)
    fitting = [
        p for p in range(1, 101) if not check_guard(total, Fraction(p, 100), ratio, buffers).short
    ]
    assert report.best_utilization_percent == (max(fitting) if fitting else None)
    assert report.short == (percent not in fitting)


def test_groups_as_large_as_the_device_fit() -> None:
    assert cannot_fit(2000 * MiB, [400, 600]) is None


def test_groups_larger_than_the_device_are_an_error_with_both_numbers() -> None:
    text = cannot_fit(2000 * MiB - 1, [400, 600])
    assert text is not None
    for words in ("2000 MiB", "2 groups", "buffer_size_mb", "max_num_batched_tokens"):
        assert words in text


def test_they_are_told_of_every_place_that_can_have_decided_the_sizes() -> None:
    text = cannot_fit(2000 * MiB - 1, [400, 600])
    assert text is not None
    for words in ("group_buffer_size_mb", "hccl_buffer_size in connector", "HCCL_BUFFSIZE"):
        assert words in text


@pytest.mark.parametrize("ratio", [Fraction(10**308), Fraction(10**400), Fraction(10**5000)])
def test_a_warning_with_a_huge_ratio_is_short(ratio: Fraction) -> None:
    report = check_guard(10000 * MiB, Fraction("0.9"), ratio, [400])
    assert report.short
    assert "no gpu_memory_utilization would do" in str(report)
    assert len(str(report)) < 400
