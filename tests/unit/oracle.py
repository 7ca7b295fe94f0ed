# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The contract's formulas once more, written out on their own, in exact fractions.

Nothing here uses the package: agreement between the two is what the tests assert.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

MIB = 1048576
CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parent.parent / "data" / "cases.json").read_text(encoding="utf-8")
)


def c32(value: int) -> int:
    return math.ceil(Fraction(value, 32)) * 32


def mib(value: Fraction | int, headroom: str = "1") -> int:
    return math.ceil(Fraction(headroom) * value / MIB)


def published_attention(hidden: int, topk: int, tokens: int, n: int) -> int:
    return 2 * hidden * math.ceil(Fraction(tokens, n)) * (topk + 1)


def published_ffn(attention_ranks: int, tokens: int, n: int, quant: int) -> int:
    return attention_ranks * (6176 if quant else 12288) * math.ceil(Fraction(tokens, n))


def async_ffn(
    hidden: int, topk: int, experts: int, a: int, f: int, tokens: int, tp: int, quant: int
) -> int:
    t = math.floor(Fraction(tokens, tp))
    e = math.ceil(Fraction(experts, f))
    slot = hidden + 32 if quant else 2 * hidden
    return a * (64 + 2 * c32(4 * (e + 1)) + c32(slot * t) + c32(2 * t * (topk + 1))) + 32


def async_attention(hidden: int, topk: int, experts: int, f: int, tokens: int, tp: int) -> int:
    t_up = math.ceil(Fraction(tokens, tp))
    e = math.ceil(Fraction(experts, f))
    return c32(4 * (f + f * (e + 1)) * 48) + c32(4 * f) + 2 * hidden * t_up * (topk + 1)


def camp2p_attention(hidden: int, topk: int, a: int, f: int, tokens: int) -> int:
    return 2 * MIB + 512 * (a + f) + 4 + 8 * tokens * topk + 2 * hidden * tokens


def camp2p_ffn(a: int, f: int) -> int:
    return 2 * MIB + 512 * (a + f)
