# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""CAM Async of the double: one HCCL group of all ranks, Attention first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from afd_plugin.connectors.base import AFDConnectorBase
from afd_plugin.distributed import afd_process_group, init_afd_process_group
from afd_plugin.generation import TAKES_BUFFER_SIZE


class CAMAsyncAFDConnector(AFDConnectorBase):
    """Creates ``afd_async_cam``; world order is A0, A1, ..., F0, F1, ..."""

    extra_keys: ClassVar[dict[str, tuple[str, Any]]] = {
        "dynamicQuant": ("dynamic_quant", 0),
        "attn_ranks_per_dp": ("attn_ranks_per_dp", 1),
        "async_moe_ubatching": ("async_moe_ubatching", False),
        "async_moe_num_ubatches": ("async_moe_num_ubatches", 2),
        "async_moe_split": ("async_moe_split", "request"),
    }

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.hidden_size, self.topk, self.num_routed_experts = self._read_model_shape()
        self.dynamic_quant = self.extra_info.dynamic_quant
        config = self.afd_config
        offset = config.num_attention_ranks if config.role == "ffn" else 0
        self.world_rank = offset + self.role_rank
        self.group_name = ""
        self.cam_pg: Any = None

    def init_afd_connector(self) -> None:
        """Create the group and its communicator; a second call does nothing."""
        if self._initialized:
            return
        config = self.afd_config
        options: dict[str, Any] = {}
        if TAKES_BUFFER_SIZE:
            size = self.extra_info.hccl_buffer_size
            options["pg_options"] = afd_process_group.hccl_options(size)
        self.cam_pg = init_afd_process_group(
            backend="hccl",
            init_method=f"tcp://{config.host}:{config.port}",
            world_size=config.num_attention_ranks + config.num_ffn_ranks,
            rank=self.world_rank,
            group_name="afd_async_cam",
            timeout=timedelta(minutes=30),
            **options,
        )
        backend = self.cam_pg._get_backend(afd_process_group.npu_device())
        self.group_name = str(backend.get_hccl_comm_name(self.world_rank))
        self._initialized = True

    def close(self) -> None:
        if self.cam_pg is not None:
            afd_process_group.destroy_group(self.cam_pg)
        self.cam_pg = None
        self._initialized = False
