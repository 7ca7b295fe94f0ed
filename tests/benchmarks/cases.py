# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The deployments that figures are made for, and the plan that the package makes of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cam_hccl_plugin.model import (
    BufferPlan,
    ConnectorIdentity,
    ModelShape,
    Role,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.planning import PlanRequest, plan_buffers
from cam_hccl_plugin.plugin_host import PluginHost
from cam_hccl_plugin.settings import Settings
from worlds.model import ASYNC, CAMP2P

DEEPSEEK_V3_2 = "DeepSeek-V3.2"
_CASES = Path(__file__).resolve().parent.parent / "data" / "cases.json"

PRACTICE_MIB = {
    ASYNC: {Role.ATTENTION: 4096, Role.FFN: 4096},
    CAMP2P: {Role.ATTENTION: 512, Role.FFN: 2048},
}
"""``HCCL_BUFFSIZE`` in the published launch commands, per role, in MiB."""


@dataclass(frozen=True)
class Case:
    """One deployment; ``tokens`` is ``max_num_batched_tokens`` of each role."""

    name: str
    model: str
    connector: str
    shape: ModelShape
    attention_ranks: int
    ffn_ranks: int
    tokens: dict[Role, int]
    npus_per_dp_group: int = 1
    dynamic_quant: bool = False
    num_ubatches: int = 1

    @property
    def topology(self) -> Topology:
        """The ranks as a worker knows them."""
        is_async = self.connector == ASYNC
        return Topology(
            attention_ranks=self.attention_ranks,
            ffn_ranks=self.ffn_ranks,
            num_ubatches=self.num_ubatches,
            attn_ranks_per_dp=self.npus_per_dp_group if is_async else None,
            tp_pcp_ranks=self.npus_per_dp_group,
        )

    def plan(self, role: Role, host: PluginHost) -> BufferPlan:
        """The plan of one role, by the same rules and in the same order as in a worker."""
        identity = ConnectorIdentity(self.connector, (self.connector,))
        claim = host.claim_connector(identity)
        assert claim is not None
        inputs = SizingInputs(self.shape, self.topology, self.tokens[role], self.dynamic_quant)
        return plan_buffers(
            PlanRequest(
                connector=self.connector,
                claim=claim,
                listed=host.describe_groups(claim, self.topology),
                role=role,
                settings=Settings(),
                needs={role: host.role_need(claim, role, inputs)},
            )
        )


_V3_2 = ModelShape(hidden_size=7168, topk=8, routed_experts=256)


def recipe_cases() -> list[Case]:
    """The launch recipes of this repository; CAMP2P runs two ubatches there."""
    camp2p = [
        Case(
            f"recipe CAMP2P A{ranks} batch {batch}",
            DEEPSEEK_V3_2,
            CAMP2P,
            _V3_2,
            ranks,
            16,
            {Role.ATTENTION: batch, Role.FFN: ranks * batch // 16},
            num_ubatches=2,
        )
        for ranks, batch in ((48, 28), (64, 14))
    ]
    tokens = dict.fromkeys(Role, 8192)
    asynchronous = Case(
        "recipe Async A16 8192 tokens", DEEPSEEK_V3_2, ASYNC, _V3_2, 16, 16, tokens, 8, True
    )
    return [asynchronous, *camp2p]


def shared_cases() -> list[Case]:
    """The cases of ``tests/data/cases.json``, one ubatch each."""
    return [_case(entry) for entry in json.loads(_CASES.read_text())]


def _case(entry: dict[str, Any]) -> Case:
    return Case(
        name=entry["id"],
        model=entry["model"],
        connector=entry["connector"],
        shape=ModelShape(entry["hidden_size"], entry["topk"], entry["routed_experts"]),
        attention_ranks=entry["num_attention_ranks"],
        ffn_ranks=entry["num_ffn_ranks"],
        tokens={role: entry["max_num_batched_tokens"][role.value] for role in Role},
        npus_per_dp_group=entry["attention_npus_per_dp_group"],
        dynamic_quant=bool(entry["dynamic_quant"]),
    )
