# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The factory that the model runners call; connector modules are imported on demand."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from afd_plugin.config import AFDConfig, parse_afd_config


def _role_rank(rank: int, vllm_config: Any) -> int:
    """DP rank, then the worker's rank within its DP group (PCP outer, TP inner)."""
    parallel = vllm_config.parallel_config
    per_dp_group = parallel.prefill_context_parallel_size * parallel.tensor_parallel_size
    dp_rank = parallel.data_parallel_rank if parallel.data_parallel_size > 1 else 0
    return dp_rank * per_dp_group + rank % per_dp_group


class AFDConnectorFactory:
    """Connector classes by name, loaded when first asked for."""

    _registry: ClassVar[dict[str, tuple[str, str]]] = {}

    @classmethod
    def register_connector(
        cls, name: str, module_path: str, class_name: str, *, replace: bool = False
    ) -> None:
        """Make ``name`` available; a taken name raises unless ``replace`` is true."""
        if name in cls._registry and not replace:
            raise ValueError(f"a connector named {name!r} exists already")
        cls._registry[name] = (module_path, class_name)

    @classmethod
    def create_connector(
        cls,
        rank: int,
        local_rank: int,
        vllm_config: Any,
        afd_config: AFDConfig | None = None,
    ) -> Any:
        """Return a connector that has created no group yet."""
        config = afd_config or parse_afd_config(vllm_config)
        if config.connector not in cls._registry:
            raise ValueError(f"no AFD connector is called {config.connector!r}")
        module_path, class_name = cls._registry[config.connector]
        connector_class = getattr(importlib.import_module(module_path), class_name)
        return connector_class(rank, local_rank, vllm_config, config, _role_rank(rank, vllm_config))


for _name, _module in (
    ("P2pNcclAFDConnector", "gpu.p2p"),
    ("CAMP2pAFDConnector", "npu.camp2p"),
    ("CAMAsyncAFDConnector", "npu.async_cam"),
):
    AFDConnectorFactory.register_connector(_name, f"afd_plugin.connectors.{_module}", _name)
