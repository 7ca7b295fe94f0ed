# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The sizes that worlds must show, worked out apart from the plugin.

Written from the published requirement and the operator sources' formulas with Fractions; it
shares no code with the plugin, so that an error there does not excuse itself here.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

_MIB = 2**20


def _up32(value: int) -> int:
    return 32 * ceil(Fraction(value, 32))


def _auto(published_bytes: int, operator_bytes: int, headroom: str) -> int:
    wanted = ceil(Fraction(headroom) * published_bytes / _MIB)
    return max(wanted, ceil(Fraction(operator_bytes, _MIB)))


def async_mb(
    *,
    attention_ranks: int,
    ffn_ranks: int,
    tokens: int,
    ranks_per_dp: int,
    quant: bool,
    hidden: int = 7168,
    topk: int = 8,
    experts: int = 256,
    headroom: str = "1.1",
) -> dict[str, int]:
    """The ``auto`` sizes of CAM Async by role."""
    up, down = ceil(Fraction(tokens, ranks_per_dp)), floor(Fraction(tokens, ranks_per_dp))
    local = ceil(Fraction(experts, ffn_ranks))
    slot = hidden + 32 if quant else 2 * hidden
    window = 64 + 2 * _up32(4 * (local + 1)) + _up32(slot * down) + _up32(2 * down * (topk + 1))
    flags = _up32(4 * (ffn_ranks + ffn_ranks * (local + 1)) * 48) + _up32(4 * ffn_ranks)
    data = 2 * hidden * up * (topk + 1)
    per_token = 6176 if quant else 12288
    return {
        "attention": _auto(data, flags + data, headroom),
        "ffn": _auto(attention_ranks * per_token * up, attention_ranks * window + 32, headroom),
    }


def camp2p_mb(
    *,
    attention_ranks: int,
    ffn_ranks: int,
    attention_tokens: int,
    ffn_tokens: int,
    tensor_parallel: int = 1,
    hidden: int = 7168,
    topk: int = 8,
    headroom: str = "1.1",
) -> dict[str, int]:
    """The ``auto`` sizes of CAMP2P by role, no dynamic quantization."""
    flags = 2 * _MIB + 512 * (attention_ranks + ffn_ranks)
    window = flags + 4 + 8 * attention_tokens * topk + 2 * hidden * attention_tokens
    per_npu = ceil(Fraction(attention_tokens, tensor_parallel))
    return {
        "attention": _auto(2 * hidden * per_npu * (topk + 1), window, headroom),
        "ffn": _auto(attention_ranks * 12288 * ffn_tokens, flags, headroom),
    }
