# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The P2P NCCL connector of the double: what a CAM plugin has to leave alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from afd_plugin.connectors.base import AFDConnectorBase
from afd_plugin.distributed import afd_process_group, init_afd_process_group


class P2pNcclAFDConnector(AFDConnectorBase):
    """Creates NCCL groups ``afd`` and ``p2p``; world order F0, ..., A0, ..."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        config = self.afd_config
        self.world_rank = self.role_rank
        if config.role == "attention":
            self.world_rank += config.num_ffn_ranks
        self.groups: list[Any] = []

    def init_afd_connector(self) -> None:
        """Create both groups; a second call does nothing."""
        if self._initialized:
            return
        config = self.afd_config
        wanted = [("afd", config.num_ffn_ranks + config.num_attention_ranks)]
        if self.world_rank < 2 * config.num_ffn_ranks:
            wanted.append(("p2p", 2 * config.num_ffn_ranks))
        for name, world_size in wanted:
            group = init_afd_process_group(
                backend="nccl",
                init_method=f"tcp://{config.host}:{config.port}",
                world_size=world_size,
                rank=self.world_rank,
                group_name=name,
                timeout=timedelta(minutes=2),
            )
            self.groups.append(group)
        self._initialized = True

    def close(self) -> None:
        for group in self.groups:
            afd_process_group.destroy_group(group)
        self.groups = []
        self._initialized = False
