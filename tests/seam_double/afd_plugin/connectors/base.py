# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What every connector of the double has, and how it reads its own extra settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from afd_plugin.config import AFDConfig, connector_extra_config
from afd_plugin.generation import TAKES_BUFFER_SIZE


class AFDConnectorBase:
    """Common attributes; subclasses list their extra keys and create their groups."""

    #: JSON key -> (attribute of ``extra_info``, default)
    extra_keys: ClassVar[Mapping[str, tuple[str, Any]]] = {}

    def __init__(
        self,
        rank: int,
        local_rank: int,
        vllm_config: Any,
        afd_config: AFDConfig,
        role_rank: int,
    ) -> None:
        self.rank = rank
        self.local_rank = local_rank
        self.vllm_config = vllm_config
        self.afd_config = afd_config
        self.role_rank = role_rank
        self.extra_info = self._parse_extra(connector_extra_config(vllm_config))
        self._initialized = False

    @classmethod
    def _parse_extra(cls, raw: Mapping[str, Any]) -> SimpleNamespace:
        keys = dict(cls.extra_keys)
        if TAKES_BUFFER_SIZE:
            keys["hccl_buffer_size"] = ("hccl_buffer_size", None)
        unknown = sorted(set(raw) - set(keys))
        if unknown:
            raise ValueError(f"{cls.__name__} does not know the extra field(s) {unknown}")
        return SimpleNamespace(
            **{attribute: raw.get(key, default) for key, (attribute, default) in keys.items()}
        )

    def _read_model_shape(self) -> tuple[int, int, int]:
        hf_config = self.vllm_config.model_config.hf_config
        return hf_config.hidden_size, hf_config.num_experts_per_tok, hf_config.n_routed_experts

    @property
    def is_initialized(self) -> bool:
        """True once all groups exist."""
        return self._initialized

    def init_afd_connector(self) -> None:
        """Create this connector's process groups, collectively with all its ranks."""
        raise NotImplementedError

    def close(self) -> None:
        """Destroy the groups; the connector may be initialised again afterwards."""
        raise NotImplementedError
