# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The fingerprint by which the two roles of a deployment recognise that they do not match."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cam_hccl_plugin.model import ConnectorClaim, Role, SizingInputs, Topology
from cam_hccl_plugin.settings import Settings

FINGERPRINT_VERSION = 1
"""Raised when a field changes its meaning; fingerprints of other versions are not compared."""


@dataclass(frozen=True)
class Fingerprint:
    """What a rank will work with. A field that is ``None`` is not known and not compared."""

    role: Role
    rank: int
    fields: Mapping[str, Any]

    def encode(self) -> str:
        """Small JSON, the same for the same content whatever the order."""
        content = {
            "version": FINGERPRINT_VERSION,
            "role": self.role.value,
            "rank": self.rank,
            "fields": dict(self.fields),
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def decode(text: str) -> Fingerprint | None:
        """The fingerprint in ``text``; ``None`` if it is of another version or none at all."""
        try:
            content = json.loads(text)
            if content["version"] != FINGERPRINT_VERSION:
                return None
            return Fingerprint(Role(content["role"]), int(content["rank"]), dict(content["fields"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None


def take_fingerprint(
    *,
    claim: ConnectorClaim,
    role: Role,
    rank: int,
    topology: Topology,
    inputs: SizingInputs | None,
    settings: Settings,
    size_mib: int | None,
) -> Fingerprint:
    """The fields that both roles must agree on.

    ``max_num_batched_tokens`` only where the connector shares it between the roles, the
    ubatches only where both sides count them, the group's size only with scope "group".
    """
    model = inputs.model if inputs else None
    attention_npus = topology.npus_per_dp_group or topology.attn_ranks_per_dp
    fields = {
        "connector_kind": claim.kind,
        "hidden_size": model.hidden_size if model else None,
        "topk": model.topk if model else None,
        "routed_experts": model.routed_experts if model else None,
        "num_attention_ranks": topology.attention_ranks,
        "num_ffn_ranks": topology.ffn_ranks,
        "dynamic_quant": int(inputs.dynamic_quant) if inputs else None,
        "attn_ranks_per_dp": topology.attn_ranks_per_dp,
        "num_npus_per_dp_group": attention_npus or topology.tp_pcp_ranks,
        "max_num_batched_tokens": inputs.max_num_batched_tokens
        if inputs and claim.tokens_shared
        else None,
        "num_ubatches": topology.num_ubatches if claim.ubatches_shared else None,
        "scope": settings.scope,
        "buffer_size_mb": size_mib if settings.scope == "group" else None,
    }
    return Fingerprint(role, rank, fields)


def mismatch(mine: Fingerprint, other: Fingerprint) -> str | None:
    """A sentence naming each field that differs, with both values and both roles, or ``None``."""
    differing = [
        name
        for name in mine.fields
        if None not in (mine.fields[name], other.fields.get(name))
        and mine.fields[name] != other.fields[name]
    ]
    if not differing:
        return None
    here, there = _where(mine), _where(other)
    listed = "; ".join(
        f"{name} is {mine.fields[name]} on {here} and {other.fields[name]} on {there}"
        for name in differing
    )
    return (
        f"the roles do not match: {listed}; stop both roles and give both the same settings "
        '(cam_hccl.on_mismatch "warn" goes on regardless)'
    )


def _where(fingerprint: Fingerprint) -> str:
    return f"{fingerprint.role.value} (rank {fingerprint.rank})"
