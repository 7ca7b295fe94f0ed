# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What the CAM operators need in their windows, and their limits."""

from __future__ import annotations

from typing import Any

import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin import operators
from cam_hccl_plugin.model import MiB

numbers = st.fixed_dictionaries(
    {
        "hidden_size": st.integers(1, 16_384),
        "topk": st.integers(1, 32),
        "routed_experts": st.integers(1, 512),
        "attention_ranks": st.integers(1, 96),
        "ffn_ranks": st.integers(1, 64),
        "max_num_batched_tokens": st.integers(1, 300_000),
        "attn_ranks_per_dp": st.integers(1, 16),
    }
)


def _attention(n: dict[str, Any]) -> int:
    return operators.async_attention_window_bytes(
        **{k: v for k, v in n.items() if k != "attention_ranks"}
    )


@given(numbers, st.booleans())
def test_the_async_windows_are_the_contracts(n: dict[str, Any], quant: bool) -> None:
    hidden, topk, experts = n["hidden_size"], n["topk"], n["routed_experts"]
    a, f = n["attention_ranks"], n["ffn_ranks"]
    count, tp = n["max_num_batched_tokens"], n["attn_ranks_per_dp"]
    assert operators.async_ffn_window_bytes(**n, dynamic_quant=quant) == oracle.async_ffn(
        hidden, topk, experts, a, f, count, tp, quant
    )
    assert _attention(n) == oracle.async_attention(hidden, topk, experts, f, count, tp)


@given(numbers)
def test_the_camp2p_windows_are_the_contracts(n: dict[str, Any]) -> None:
    a, f = n["attention_ranks"], n["ffn_ranks"]
    hidden, topk, count = n["hidden_size"], n["topk"], n["max_num_batched_tokens"]
    attention = operators.camp2p_attention_window_bytes(
        hidden_size=hidden,
        topk=topk,
        attention_ranks=a,
        ffn_ranks=f,
        max_num_batched_tokens=count,
    )
    assert attention == oracle.camp2p_attention(hidden, topk, a, f, count)
    assert operators.camp2p_ffn_window_bytes(attention_ranks=a, ffn_ranks=f) == oracle.camp2p_ffn(
        a, f
    )


@pytest.mark.parametrize(
    "key", ["hidden_size", "topk", "routed_experts", "attention_ranks", "max_num_batched_tokens"]
)
@given(n=numbers, quant=st.booleans())
def test_the_async_windows_never_shrink(key: str, n: dict[str, Any], quant: bool) -> None:
    more = {**n, key: n[key] + 1}
    assert operators.async_ffn_window_bytes(
        **more, dynamic_quant=quant
    ) >= operators.async_ffn_window_bytes(**n, dynamic_quant=quant)
    assert _attention(more) >= _attention(n)


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (1, 32), (32, 32), (33, 64)])
def test_alignment_is_32_bytes_upwards(value: int, expected: int) -> None:
    assert operators.align32(value) == expected


def test_ffn_tokens_are_rounded_down_and_attention_tokens_up() -> None:
    base: dict[str, Any] = {"hidden_size": 64, "topk": 1, "routed_experts": 4, "ffn_ranks": 2}
    tokens = {"max_num_batched_tokens": 7, "attn_ranks_per_dp": 2}
    # t = 3: 2 * (64 + 2 * 32 + 2 * 64 * 3 + 32) + 32
    assert (
        operators.async_ffn_window_bytes(**base, **tokens, attention_ranks=2, dynamic_quant=False)
        == 1120
    )
    # t_up = 4: c32(4 * (2 + 2 * 3) * 48) + c32(8) + 2 * 64 * 4 * 2
    assert operators.async_attention_window_bytes(**base, **tokens) == 1536 + 32 + 1024


LIMITS: dict[str, Any] = {
    "longest_bytes": 1,
    "longest_formula": "slot * tokens per rank",
    "window_bytes": 1,
    "attention_ranks": 16,
    "max_num_batched_tokens": 262144,
    "attn_ranks_per_dp": 8,
}


def test_numbers_at_the_limits_do_not_warn() -> None:
    at_limit = {"longest_bytes": 2**32 - 1, "window_bytes": 32768 * MiB}
    assert operators.async_limit_warnings(**{**LIMITS, **at_limit}) == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_num_batched_tokens": 262145}, ["262144", "262145"]),
        ({"attention_ranks": 12}, ["num_attention_ranks (12)", "attn_ranks_per_dp (8)"]),
        ({"longest_bytes": 2**32}, ["4294967296", "32-bit", "slot * tokens per rank"]),
        ({"window_bytes": 32768 * MiB + 1}, ["32768", str(32768 * MiB + 1)]),
    ],
)
def test_a_limit_that_is_exceeded_is_named(change: dict[str, Any], words: list[str]) -> None:
    (warning,) = operators.async_limit_warnings(**{**LIMITS, **change})
    assert warning.startswith("operator limit")
    assert all(word in warning for word in words)


def test_every_limit_that_is_exceeded_is_named() -> None:
    everything = {
        "longest_bytes": 2**33,
        "window_bytes": 2**40,
        "attention_ranks": 3,
        "max_num_batched_tokens": 10**6,
    }
    assert len(operators.async_limit_warnings(**{**LIMITS, **everything})) == 4
