# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""CAMP2P of the double: one HCCL group per ubatch, one among FFN ranks, one Gloo group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from afd_plugin.connectors.base import AFDConnectorBase
from afd_plugin.distributed import afd_process_group, init_afd_process_group
from afd_plugin.generation import TAKES_BUFFER_SIZE


class CAMP2pAFDConnector(AFDConnectorBase):
    """Creates ``afd``, ``afd1``, ..., ``afd_moe`` and ``p2p``; world order F0, ..., A0, ..."""

    extra_keys: ClassVar[dict[str, tuple[str, Any]]] = {
        "core_num": ("core_num", 8),
        "attn_core_num": ("attn_core_num", None),
        "ffn_core_num": ("ffn_core_num", None),
        "compute_gate_on_attention": ("compute_gate_on_attention", False),
        "quant_mode": ("quant_mode", 0),
    }

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        config = self.afd_config
        self.attn_size, self.ffn_size = config.num_attention_ranks, config.num_ffn_ranks
        if self.attn_size < self.ffn_size:
            raise ValueError(
                f"CAMP2P needs at least as many Attention ranks ({self.attn_size}) as FFN ranks "
                f"({self.ffn_size})"
            )
        shape = self._read_model_shape()
        self.hidden_size, self.num_experts_per_tok, self.num_routed_experts = shape
        self.world_rank = self.role_rank + (self.ffn_size if config.role == "attention" else 0)
        self.afd_pg_list: list[Any] = []
        self.ffn_pg: Any = None
        self.p2p_pg: Any = None
        self.hccl_comm_name_list: list[str] = []

    def _create(self, name: str, backend: str, world_size: int) -> Any:
        config = self.afd_config
        options: dict[str, Any] = {}
        if TAKES_BUFFER_SIZE and backend == "hccl":
            size = self.extra_info.hccl_buffer_size
            options["pg_options"] = afd_process_group.hccl_options(size)
        return init_afd_process_group(
            backend=backend,
            init_method=f"tcp://{config.host}:{config.port}",
            world_size=world_size,
            rank=self.world_rank,
            group_name=name,
            timeout=timedelta(minutes=30),
            **options,
        )

    def _communicator_name(self, group: Any) -> str:
        backend = group._get_backend(afd_process_group.npu_device())
        return str(backend.get_hccl_comm_name(self.world_rank))

    def init_afd_connector(self) -> None:
        """Create all groups in upstream's order; a second call does nothing."""
        if self._initialized:
            return
        everyone = self.ffn_size + self.attn_size
        for index in range(max(1, self.vllm_config.parallel_config.num_ubatches)):
            group = self._create(f"afd{index or ''}", "hccl", everyone)
            self.afd_pg_list.append(group)
            self.hccl_comm_name_list.append(self._communicator_name(group))
        if self.afd_config.role == "ffn":
            self.ffn_pg = self._create("afd_moe", "hccl", self.ffn_size)
            self.hccl_comm_name1 = self._communicator_name(self.ffn_pg)
        # All FFN ranks and as many Attention ranks: with A >= F, the first 2 x F of the world.
        if self.world_rank < 2 * self.ffn_size:
            self.p2p_pg = self._create("p2p", "gloo", 2 * self.ffn_size)
        self._initialized = True

    def close(self) -> None:
        for group in (self.p2p_pg, self.ffn_pg, *self.afd_pg_list):
            if group is not None:
                afd_process_group.destroy_group(group)
        self.p2p_pg = self.ffn_pg = None
        self.afd_pg_list = []
        self.hccl_comm_name_list = []
        self._initialized = False
