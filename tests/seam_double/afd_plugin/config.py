# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``additional_config["afd"]`` as a frozen value; unknown keys are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

_ALIASES = {"async": "async_dp"}
_EXTRA = "connector_extra_config"


@dataclass(frozen=True)
class AFDConfig:
    """The settings common to all connectors; per-rank values are not part of it."""

    connector: str = "P2pNcclAFDConnector"
    async_dp: bool = False
    role: str = "attention"
    port: int = 1239
    host: str = "127.0.0.1"
    num_attention_ranks: int = 1
    num_ffn_ranks: int = 1

    def __post_init__(self) -> None:
        if self.role not in ("attention", "ffn"):
            raise ValueError(f"AFD role must be attention or ffn, got {self.role!r}")
        for name in ("num_attention_ranks", "num_ffn_ranks"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")


def _afd_section(vllm_config: Any) -> Mapping[str, Any]:
    additional = vllm_config.additional_config or {}
    if "afd" not in additional:
        raise ValueError('no AFD configuration: additional_config["afd"] is missing')
    return dict(additional["afd"])


def parse_afd_config(vllm_config: Any) -> AFDConfig:
    """Parse the ``afd`` section; a key that is no field raises ValueError."""
    known = {field.name for field in fields(AFDConfig)}
    values: dict[str, Any] = {}
    for key, value in _afd_section(vllm_config).items():
        name = _ALIASES.get(key, key)
        if name == _EXTRA:
            continue
        if name not in known:
            raise ValueError(f"AFD does not know the field {key!r}")
        values[name] = value
    return AFDConfig(**values)


def connector_extra_config(vllm_config: Any) -> dict[str, Any]:
    """The ``connector_extra_config`` mapping of the ``afd`` section, empty when absent."""
    return dict(_afd_section(vllm_config).get(_EXTRA) or {})
