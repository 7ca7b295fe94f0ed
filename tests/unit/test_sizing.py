# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The published requirement and the exact step from bytes to MiB."""

from __future__ import annotations

from fractions import Fraction

import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin import sizing
from cam_hccl_plugin.model import MiB

tokens = st.integers(1, 300_000)
small = st.integers(1, 64)
hidden_sizes = st.integers(1, 16_384)
headrooms = st.decimals("1", "10", places=3)


def test_a_mib_is_two_to_the_twenty() -> None:
    assert MiB == 1048576


def test_the_default_headroom_is_eleven_tenths() -> None:
    assert Fraction(11, 10) == sizing.DEFAULT_HEADROOM


@pytest.mark.parametrize(
    ("need_mib", "expected"), [(110, 121), (50, 55), (210, 231), (70, 77), (10, 11), (1, 2)]
)
def test_headroom_on_whole_mib_is_exact(need_mib: int, expected: int) -> None:
    assert sizing.buffer_mib(need_mib * 1048576, sizing.DEFAULT_HEADROOM) == expected


@pytest.mark.parametrize(("need_mib", "wrong"), [(110, 122), (50, 56), (210, 232)])
def test_binary_floats_would_be_one_too_many(need_mib: int, wrong: int) -> None:
    import math

    assert math.ceil(1.1 * need_mib) == wrong
    assert sizing.buffer_mib(need_mib * MiB, sizing.exact(1.1)) == wrong - 1


def test_the_binary_value_of_the_headroom_never_decides() -> None:
    assert sizing.exact(1.1) == Fraction(11, 10)
    assert Fraction(1.1) != Fraction(11, 10)
    assert sizing.buffer_mib(70 * MiB, sizing.exact(1.1)) == 77
    assert sizing.buffer_mib(70 * MiB, Fraction(1.1)) == 78


@pytest.mark.parametrize(("given", "expected"), [(2, "2"), (1.05, "21/20"), ("1.1", "11/10")])
def test_a_number_is_taken_at_its_shortest_text(given: float | str, expected: str) -> None:
    assert sizing.exact(given) == Fraction(expected)


@pytest.mark.parametrize("given", [float("nan"), float("inf"), "abc", ""])
def test_what_is_not_a_finite_number_is_refused(given: float | str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        sizing.exact(given)


def test_one_byte_more_than_a_mib_is_two_mib() -> None:
    assert [sizing.buffer_mib(n) for n in (1, MiB, MiB + 1)] == [1, 1, 2]


@given(st.integers(1, 2**45), headrooms)
def test_a_buffer_is_the_smallest_that_holds_the_need(need: int, headroom: object) -> None:
    ratio = Fraction(str(headroom))
    size = sizing.buffer_mib(need, ratio)
    assert size * MiB >= ratio * need > (size - 1) * MiB


@given(st.integers(1, 100_000))
def test_multiples_of_ten_mib_round_to_nothing(tens: int) -> None:
    need = 10 * tens * MiB
    assert sizing.buffer_mib(need, sizing.DEFAULT_HEADROOM) == 11 * tens
    assert sizing.buffer_mib(need + 1, sizing.DEFAULT_HEADROOM) == 11 * tens + 1
    assert sizing.buffer_mib(need - 1, sizing.DEFAULT_HEADROOM) == 11 * tens


@given(hidden_sizes, small, tokens, small, st.booleans())
def test_the_published_formulas_are_the_contracts(
    hidden: int, topk: int, count: int, n: int, quant: bool
) -> None:
    attention = sizing.published_attention_bytes(hidden, topk, count, n)
    assert attention == oracle.published_attention(hidden, topk, count, n)
    assert sizing.published_ffn_bytes(topk, count, n, quant) == oracle.published_ffn(
        topk, count, n, quant
    )


def test_the_published_numbers_of_one_deployment() -> None:
    assert sizing.tokens_per_npu(8192, 8) == 1024
    assert sizing.tokens_per_npu(8193, 8) == 1025
    assert sizing.published_attention_bytes(7168, 8, 8192, 8) == 132_120_576
    assert sizing.published_ffn_bytes(16, 8192, 8, True) == 101_187_584
    assert sizing.published_ffn_bytes(16, 8192, 8, False) == 201_326_592


@given(hidden_sizes, small, tokens, small)
def test_published_attention_grows_with_every_input_but_n(
    hidden: int, topk: int, count: int, n: int
) -> None:
    base = sizing.published_attention_bytes(hidden, topk, count, n)
    assert sizing.published_attention_bytes(hidden + 1, topk, count, n) > base
    assert sizing.published_attention_bytes(hidden, topk + 1, count, n) > base
    assert sizing.published_attention_bytes(hidden, topk, count + 1, n) >= base
    assert sizing.published_attention_bytes(hidden, topk, count + n, n) > base
    assert sizing.published_attention_bytes(hidden, topk, count, n + 1) <= base


@given(small, tokens, small, st.booleans())
def test_published_ffn_grows_with_ranks_and_tokens(
    ranks: int, count: int, n: int, quant: bool
) -> None:
    base = sizing.published_ffn_bytes(ranks, count, n, quant)
    assert sizing.published_ffn_bytes(ranks + 1, count, n, quant) > base
    assert sizing.published_ffn_bytes(ranks, count + 1, n, quant) >= base
    assert sizing.published_ffn_bytes(ranks, count, n + 1, quant) <= base
    assert sizing.published_ffn_bytes(ranks, count, n, True) < sizing.published_ffn_bytes(
        ranks, count, n, False
    )
