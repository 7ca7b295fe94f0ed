# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The rules of CAM Async, CAMP2P and any other ``CAM*`` connector, as ordinary hooks."""

from __future__ import annotations

import pluggy

from cam_hccl_plugin import operators
from cam_hccl_plugin.hookspecs import PROJECT_NAME
from cam_hccl_plugin.model import (
    ConnectorClaim,
    ConnectorIdentity,
    GroupRequest,
    Role,
    RoleNeed,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.sizing import ceil_div, published_attention_bytes, published_ffn_bytes

ASYNC = "cam_async"
CAMP2P = "camp2p"
GENERIC = "cam_generic"

ASYNC_CLASS = "CAMAsyncAFDConnector"
CAMP2P_CLASS = "CAMP2pAFDConnector"

_impl = pluggy.HookimplMarker(PROJECT_NAME)


@_impl
def cam_hccl_claim_connector(connector: ConnectorIdentity) -> ConnectorClaim | None:
    """Claim the two public connectors, their subclasses, and every class named ``CAM*``."""
    if ASYNC_CLASS in connector.base_names:
        return ConnectorClaim(ASYNC, tokens_shared=True, async_operators=True)
    if CAMP2P_CLASS in connector.base_names:
        return ConnectorClaim(CAMP2P, ubatches_shared=True)
    if any(name.startswith("CAM") for name in connector.base_names):
        return ConnectorClaim(GENERIC)
    return None


@_impl
def cam_hccl_describe_groups(
    claim: ConnectorClaim, topology: Topology
) -> tuple[GroupRequest, ...] | None:
    """The groups of the two public connectors; those of another ``CAM*`` are not known."""
    if claim.kind == ASYNC:
        return (GroupRequest("afd_async_cam"),)
    if claim.kind == CAMP2P:
        names = ["afd", *(f"afd{index}" for index in range(1, topology.num_ubatches))]
        moe = GroupRequest("afd_moe", frozenset({Role.FFN}))
        return (*(GroupRequest(name) for name in names), moe)
    return None


@_impl
def cam_hccl_role_need(claim: ConnectorClaim, role: Role, inputs: SizingInputs) -> RoleNeed | None:
    """The published and, where public, the operators' need of the built-in kinds."""
    if claim.kind not in (ASYNC, CAMP2P, GENERIC):
        return None
    npus = _npus_per_dp_group(claim.kind, role, inputs.topology)
    model, tokens = inputs.model, inputs.max_num_batched_tokens
    if role is Role.ATTENTION:
        published = published_attention_bytes(model.hidden_size, model.topk, tokens, npus)
    else:
        ranks = inputs.topology.attention_ranks
        published = published_ffn_bytes(ranks, tokens, npus, inputs.dynamic_quant)
    if claim.kind == ASYNC:
        return _async_need(role, inputs, published, npus)
    operator = _camp2p_window_bytes(role, inputs) if claim.kind == CAMP2P else None
    return RoleNeed(published, operator, npus)


def _npus_per_dp_group(kind: str, role: Role, topology: Topology) -> int:
    """The divisor n of the published formulas (contract: the flag first, where it applies)."""
    flag, per_dp = topology.npus_per_dp_group, topology.attn_ranks_per_dp
    if kind == ASYNC:
        return flag or per_dp or 1
    if kind == GENERIC and (flag or per_dp) is not None:
        return flag or per_dp or 1
    if role is Role.FFN:
        return 1
    return flag or topology.tp_pcp_ranks or 1


def _async_need(role: Role, inputs: SizingInputs, published: int, npus: int) -> RoleNeed:
    model, topology = inputs.model, inputs.topology
    tokens = inputs.max_num_batched_tokens
    tp_ranks = topology.attn_ranks_per_dp or 1
    if role is Role.FFN:
        window = operators.async_ffn_window_bytes(
            hidden_size=model.hidden_size,
            topk=model.topk,
            routed_experts=model.routed_experts,
            attention_ranks=topology.attention_ranks,
            ffn_ranks=topology.ffn_ranks,
            max_num_batched_tokens=tokens,
            attn_ranks_per_dp=tp_ranks,
            dynamic_quant=inputs.dynamic_quant,
        )
        slot = operators.async_slot_bytes(model.hidden_size, inputs.dynamic_quant)
        longest, formula = slot * (tokens // tp_ranks), "slot * tokens per rank"
    else:
        window = operators.async_attention_window_bytes(
            hidden_size=model.hidden_size,
            topk=model.topk,
            routed_experts=model.routed_experts,
            ffn_ranks=topology.ffn_ranks,
            max_num_batched_tokens=tokens,
            attn_ranks_per_dp=tp_ranks,
        )
        longest = 2 * model.hidden_size * ceil_div(tokens, tp_ranks) * model.topk
        formula = "2 * hidden_size * tokens per rank * topk"
    warnings = operators.async_limit_warnings(
        longest_bytes=longest,
        longest_formula=formula,
        window_bytes=window,
        attention_ranks=topology.attention_ranks,
        max_num_batched_tokens=tokens,
        attn_ranks_per_dp=tp_ranks,
    )
    return RoleNeed(published, window, npus, warnings)


def _camp2p_window_bytes(role: Role, inputs: SizingInputs) -> int:
    topology = inputs.topology
    if role is Role.FFN:
        return operators.camp2p_ffn_window_bytes(
            attention_ranks=topology.attention_ranks, ffn_ranks=topology.ffn_ranks
        )
    return operators.camp2p_attention_window_bytes(
        hidden_size=inputs.model.hidden_size,
        topk=inputs.model.topk,
        attention_ranks=topology.attention_ranks,
        ffn_ranks=topology.ffn_ranks,
        max_num_batched_tokens=inputs.max_num_batched_tokens,
    )
