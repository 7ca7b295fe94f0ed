# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The published buffer requirement and the exact step from bytes to MiB."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from cam_hccl_plugin.model import MiB

DEFAULT_HEADROOM = Fraction(11, 10)
"""Headroom on the published requirement; a ratio."""

FFN_SLOT_DYNAMIC_QUANT_BYTES = 6144 + 32
"""Published FFN bytes per token with dynamic quantization: int8 data and scale."""

FFN_SLOT_BYTES = 2 * 6144
"""Published FFN bytes per token without dynamic quantization: two bytes an element."""


def ceil_div(numerator: int, denominator: int) -> int:
    """Smallest integer not below ``numerator / denominator``."""
    return -(-numerator // denominator)


def exact(value: float | int | str) -> Fraction:
    """A decimal as the fraction that its shortest text names: 1.1 is 11/10.

    JSON delivers numbers as binary floats; their binary value must not decide a size.

    Raises:
        ValueError: if ``value`` is not a finite number.
    """
    return Fraction(value if isinstance(value, int) else str(value))


def decimal_text(value: Fraction) -> str:
    """A ratio for people; exact where it is a short decimal, and however large it is."""
    try:
        return f"{float(value):g}"
    except OverflowError:
        return f"{Decimal(value.numerator) / Decimal(value.denominator):.6g}"


def buffer_mib(need_bytes: int, headroom: Fraction = Fraction(1)) -> int:
    """Whole MiB that hold ``need_bytes`` times ``headroom``.

    Formula: ceil(headroom * need_bytes / 2**20), in integers.
    Units: bytes in, MiB out, rounded up.
    """
    return ceil_div(headroom.numerator * need_bytes, headroom.denominator * MiB)


def tokens_per_npu(max_num_batched_tokens: int, npus_per_dp_group: int) -> int:
    """Tokens that one NPU of an Attention DP group sends, rounded up."""
    return ceil_div(max_num_batched_tokens, npus_per_dp_group)


def published_attention_bytes(
    hidden_size: int, topk: int, max_num_batched_tokens: int, npus_per_dp_group: int
) -> int:
    """Published requirement of an Attention rank.

    Formula: 2 * hidden_size * tokens_per_npu * (topk + 1).
    Units: elements and tokens in, bytes out; only tokens_per_npu is rounded (up).
    Source: the CAM buffer guide for AFD (two bytes an element, one shared expert).
    """
    tokens = tokens_per_npu(max_num_batched_tokens, npus_per_dp_group)
    return 2 * hidden_size * tokens * (topk + 1)


def published_ffn_bytes(
    attention_ranks: int,
    max_num_batched_tokens: int,
    npus_per_dp_group: int,
    dynamic_quant: bool,
) -> int:
    """Published requirement of an FFN rank; without a (topk + 1) factor on purpose.

    Formula: attention_ranks * slot * tokens_per_npu, slot 6176 or 12288 bytes.
    Units: ranks and tokens in, bytes out; only tokens_per_npu is rounded (up).
    Source: the CAM buffer guide for AFD; the slots are those of hidden size 6144.
    """
    slot_bytes = FFN_SLOT_DYNAMIC_QUANT_BYTES if dynamic_quant else FFN_SLOT_BYTES
    return attention_ranks * slot_bytes * tokens_per_npu(max_num_batched_tokens, npus_per_dp_group)
