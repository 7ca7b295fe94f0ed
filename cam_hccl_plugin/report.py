# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The startup line: one greppable line for the process's own role."""

from __future__ import annotations

from collections.abc import Iterable

from cam_hccl_plugin.model import (
    AREAS_PER_COMMUNICATOR,
    BufferPlan,
    SizeSource,
    SizingInputs,
)
from cam_hccl_plugin.settings import Settings
from cam_hccl_plugin.sizing import decimal_text


def startup_line(
    plan: BufferPlan,
    sizes: Iterable[tuple[str, int, SizeSource]],
    inputs: SizingInputs | None,
    settings: Settings,
    hccl_buffsize: str,
) -> str:
    """Role, connector, sizes, needs, inputs, memory and the untouched environment.

    Args:
        sizes: name, MiB per area and origin of each group that was created.
        hccl_buffsize: ``HCCL_BUFFSIZE`` as found, or "unset".
    """
    listed = list(sizes)
    groups = ",".join(f"{name}={mib}MB({source.value})" for name, mib, source in listed)
    total = AREAS_PER_COMMUNICATOR * sum(mib for _, mib, _ in listed)
    parts = [
        f"role={plan.role.value}",
        f"connector={plan.connector}",
        f"groups={groups}",
        f"selected={max((mib for _, mib, _ in listed), default=plan.selected_mib)}MB",
        *_need_parts(plan),
        *_input_parts(inputs),
        f"sizing={settings.sizing}",
        f"headroom={decimal_text(settings.headroom)}",
        f"scope={settings.scope}",
        f"device_memory={total}MB",
        f"HCCL_BUFFSIZE={hccl_buffsize} left unchanged",
    ]
    if plan.floor_note:
        parts.append(f"({plan.floor_note})")
    return " ".join(parts)


def _need_parts(plan: BufferPlan) -> list[str]:
    if plan.need is None:
        return ["published_bytes=unknown", "operator_bytes=unknown"]
    operator = plan.need.operator_bytes
    return [
        f"published_bytes={plan.need.published_bytes}",
        f"operator_bytes={'unknown' if operator is None else operator}",
        f"num_npus_per_dp_group={plan.need.npus_per_dp_group}",
    ]


def _input_parts(inputs: SizingInputs | None) -> list[str]:
    if inputs is None:
        return []
    model, topology = inputs.model, inputs.topology
    return [
        f"hidden_size={model.hidden_size}",
        f"topk={model.topk}",
        f"routed_experts={model.routed_experts}",
        f"max_num_batched_tokens={inputs.max_num_batched_tokens}",
        f"attention_ranks={topology.attention_ranks}",
        f"ffn_ranks={topology.ffn_ranks}",
        f"attn_ranks_per_dp={topology.attn_ranks_per_dp or 'unset'}",
        f"num_ubatches={topology.num_ubatches}",
        f"dynamic_quant={int(inputs.dynamic_quant)}",
    ]
