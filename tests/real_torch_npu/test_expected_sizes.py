# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The arithmetic that the worlds are judged by gives the published examples' numbers."""

import pytest

from worlds.expected import async_mb, camp2p_mb

pytestmark = pytest.mark.torch_npu


@pytest.mark.parametrize(
    ("attention_ranks", "ffn_ranks", "tokens", "quant", "attention", "ffn"),
    [
        (16, 16, 8192, True, 139, 113),
        (16, 16, 8192, False, 139, 225),
        (24, 8, 140000, True, 2369, 2892),
    ],
)
def test_async_examples(attention_ranks, ffn_ranks, tokens, quant, attention, ffn):
    sizes = async_mb(
        attention_ranks=attention_ranks,
        ffn_ranks=ffn_ranks,
        tokens=tokens,
        ranks_per_dp=8,
        quant=quant,
    )
    assert sizes == {"attention": attention, "ffn": ffn}


def test_async_example_of_a_narrow_model():
    sizes = async_mb(
        attention_ranks=6,
        ffn_ranks=2,
        tokens=8192,
        ranks_per_dp=2,
        quant=True,
        hidden=2048,
        topk=6,
        experts=64,
    )
    assert sizes == {"attention": 124, "ffn": 160}


@pytest.mark.parametrize(
    ("role", "tokens", "size"),
    [
        ("attention", 28, 4),
        ("attention", 14, 3),
        ("attention", 1, 3),
        ("ffn", 1, 3),
        ("ffn", 84, 52),
    ],
)
def test_camp2p_examples(role, tokens, size):
    sizes = camp2p_mb(attention_ranks=48, ffn_ranks=16, attention_tokens=tokens, ffn_tokens=tokens)
    assert sizes[role] == size
