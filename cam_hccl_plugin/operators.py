# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What the CAM operators themselves need in a window, and where they stop working.

Source of all of it: the operators' public code in afd-plugin: ``csrc/npu/a2e`` and
``csrc/npu/e2a`` for CAMP2P; ``csrc/npu/ascend_kernels`` (later trees) for CAM Async.
"""

from __future__ import annotations

from cam_hccl_plugin.model import MiB
from cam_hccl_plugin.sizing import ceil_div

ASYNC_MAX_TOKENS_PER_DP_GROUP = 262144
"""Most tokens per DP group that the CAM Async operators take."""

MAX_LENGTH_BYTES = 2**32
"""The operators keep lengths in 32 bits; a length must stay below this."""

MAX_WINDOW_MIB = 32768
"""Largest window, in MiB, that an operator build accepts."""

_ALIGN_BYTES = 32
_PROGRESS_RECORD_BYTES = 32
_SCALE_BYTES = 32
_STATUS_INTERVALS = 48
_CAMP2P_FLAG_AREA_BYTES = 2 * MiB
_CAMP2P_FLAG_BYTES_PER_RANK = 512
_ROUTE_BYTES = 8


def align32(nbytes: int) -> int:
    """``nbytes`` rounded up to a multiple of 32."""
    return ceil_div(nbytes, _ALIGN_BYTES) * _ALIGN_BYTES


def async_slot_bytes(hidden_size: int, dynamic_quant: bool) -> int:
    """Bytes of one token in an FFN window: int8 and a 32-byte scale, or two bytes an element."""
    return hidden_size + _SCALE_BYTES if dynamic_quant else 2 * hidden_size


def async_ffn_window_bytes(
    *,
    hidden_size: int,
    topk: int,
    routed_experts: int,
    attention_ranks: int,
    ffn_ranks: int,
    max_num_batched_tokens: int,
    attn_ranks_per_dp: int,
    dynamic_quant: bool,
) -> int:
    """Window of an FFN rank in CAM Async, in bytes.

    Formula: A * (64 + 2 * c32(4 * (e + 1)) + c32(slot * t) + c32(2 * t * (topk + 1))) + 32
    with e = ceil(E / F), t = floor(tokens / tp), c32 rounding up to 32 bytes.
    Source: the tiling check of dispatch-recv, which refuses to run below this; the last
    32 bytes are its progress record. Routed-only builds need a few bytes less.
    """
    experts_per_rank = ceil_div(routed_experts, ffn_ranks)
    tokens = max_num_batched_tokens // attn_ranks_per_dp
    per_attention_rank = (
        64
        + 2 * align32(4 * (experts_per_rank + 1))
        + align32(async_slot_bytes(hidden_size, dynamic_quant) * tokens)
        + align32(2 * tokens * (topk + 1))
    )
    return attention_ranks * per_attention_rank + _PROGRESS_RECORD_BYTES


def async_attention_window_bytes(
    *,
    hidden_size: int,
    topk: int,
    routed_experts: int,
    ffn_ranks: int,
    max_num_batched_tokens: int,
    attn_ranks_per_dp: int,
) -> int:
    """Window of an Attention rank in CAM Async, in bytes; combine-send writes there.

    Formula: c32(4 * (F + F * (e + 1)) * 48) + c32(4 * F) + 2 * hidden * t_up * (topk + 1)
    with e = ceil(E / F) and t_up = ceil(tokens / tp).
    """
    experts_per_rank = ceil_div(routed_experts, ffn_ranks)
    tokens = ceil_div(max_num_batched_tokens, attn_ranks_per_dp)
    status_bytes = 4 * (ffn_ranks + ffn_ranks * (experts_per_rank + 1)) * _STATUS_INTERVALS
    return align32(status_bytes) + align32(4 * ffn_ranks) + 2 * hidden_size * tokens * (topk + 1)


def camp2p_attention_window_bytes(
    *,
    hidden_size: int,
    topk: int,
    attention_ranks: int,
    ffn_ranks: int,
    max_num_batched_tokens: int,
) -> int:
    """Window of an Attention rank in CAMP2P, in bytes.

    Formula: 2 MiB + 512 * (A + F) + 4 + 8 * T * topk + 2 * hidden * T. T is not divided:
    every TP rank of a DP group sends all its tokens.
    Source: A2E puts tokens into the sender's own window behind a 2 MiB flag area; E2A
    writes the result there.
    """
    flags = camp2p_ffn_window_bytes(attention_ranks=attention_ranks, ffn_ranks=ffn_ranks)
    routes = 4 + _ROUTE_BYTES * max_num_batched_tokens * topk
    return flags + routes + 2 * hidden_size * max_num_batched_tokens


def camp2p_ffn_window_bytes(*, attention_ranks: int, ffn_ranks: int) -> int:
    """Window of an FFN rank in CAMP2P, in bytes: the flag area, 2 MiB + 512 * (A + F)."""
    return _CAMP2P_FLAG_AREA_BYTES + _CAMP2P_FLAG_BYTES_PER_RANK * (attention_ranks + ffn_ranks)


def async_limit_warnings(
    *,
    longest_bytes: int,
    longest_formula: str,
    window_bytes: int,
    attention_ranks: int,
    max_num_batched_tokens: int,
    attn_ranks_per_dp: int,
) -> tuple[str, ...]:
    """Limits of the CAM Async operators that these numbers exceed, one sentence each."""
    found = []
    if max_num_batched_tokens > ASYNC_MAX_TOKENS_PER_DP_GROUP:
        found.append(
            f"operator limit: CAM Async takes at most {ASYNC_MAX_TOKENS_PER_DP_GROUP} tokens per "
            f"DP group, max_num_batched_tokens is {max_num_batched_tokens}; lower it"
        )
    if attention_ranks % attn_ranks_per_dp:
        found.append(
            f"operator limit: num_attention_ranks ({attention_ranks}) must be a multiple of "
            f"attn_ranks_per_dp ({attn_ranks_per_dp})"
        )
    if longest_bytes >= MAX_LENGTH_BYTES:
        found.append(
            f"operator limit: {longest_formula} is {longest_bytes} bytes and must stay below "
            f"{MAX_LENGTH_BYTES} (32-bit lengths); lower max_num_batched_tokens"
        )
    if window_bytes > MAX_WINDOW_MIB * MiB:
        found.append(
            f"operator limit: a window is at most {MAX_WINDOW_MIB} MB, the operator needs "
            f"{window_bytes} bytes; lower max_num_batched_tokens"
        )
    return tuple(found)
