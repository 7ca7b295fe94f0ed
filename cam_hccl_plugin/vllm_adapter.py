# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The only reader of VllmConfig, of a connector's attributes and of the environment."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from cam_hccl_plugin.environment import HCCL_BUFFSIZE, EnvironmentBuffer, read_buffsize
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.flag_places import given_flags
from cam_hccl_plugin.model import (
    ConnectorIdentity,
    ModelShape,
    Role,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.model_config import (
    FIELD_NAMES,
    candidates,
    find_field,
    is_positive_int,
    read_shape,
)
from cam_hccl_plugin.operator_window import BUILDS
from cam_hccl_plugin.settings import Settings, parse_places
from cam_hccl_plugin.sizing import exact

_CONNECTOR_NAMES = {
    "hidden_size": ("hidden_size",),
    "topk": ("topk", "num_experts_per_tok"),
    "routed_experts": ("num_routed_experts",),
}


def environment_buffer() -> EnvironmentBuffer:
    """``HCCL_BUFFSIZE`` of this process. Read here, never written, never unset."""
    return read_buffsize(os.environ.get(HCCL_BUFFSIZE))


def environment() -> dict[str, str]:
    """A copy of this process's environment; changing it changes nothing."""
    return dict(os.environ)


def window_variables() -> dict[str, str | None]:
    """The variables that operator builds believe in, as they are set in this process."""
    return {build.variable: os.environ.get(build.variable) for build in BUILDS}


def read_flag(vllm_config: Any) -> Settings | None:
    """The settings of this vLLM process, ``None`` if the plugin is off.

    Raises:
        SettingsError: the flag is wrong.
    """
    return parse_places(given_flags(vllm_config))


def afd_section(vllm_config: Any) -> Mapping[str, Any] | None:
    """``additional_config["afd"]``, ``None`` if no AFD configuration reached vLLM."""
    additional = getattr(vllm_config, "additional_config", None)
    section = additional.get("afd") if isinstance(additional, Mapping) else None
    return section if isinstance(section, Mapping) else None


def _extra_config(vllm_config: Any) -> Mapping[str, Any]:
    extra = (afd_section(vllm_config) or {}).get("connector_extra_config")
    return extra if isinstance(extra, Mapping) else {}


def read_identity(connector: Any, vllm_config: Any) -> ConnectorIdentity:
    """Class names and extra configuration of a connector."""
    names = tuple(cls.__name__ for cls in type(connector).__mro__ if cls is not object)
    return ConnectorIdentity(names[0], names, MappingProxyType(dict(_extra_config(vllm_config))))


def read_role(connector: Any) -> Role:
    """The AFD role of this process.

    Raises:
        PlanError: it is neither "attention" nor "ffn".
    """
    given = getattr(getattr(connector, "afd_config", None), "role", None)
    try:
        return Role(getattr(given, "value", given))
    except ValueError:
        raise PlanError(
            f'role is {given!r}, allowed are "attention" and "ffn" (looked in '
            "connector.afd_config.role); set additional_config.afd.role"
        ) from None


def read_topology(connector: Any, vllm_config: Any, role: Role, settings: Settings) -> Topology:
    """Rank counts of the deployment.

    Raises:
        PlanError: a count is missing or not a positive integer.
    """
    afd_config = getattr(connector, "afd_config", None)
    parallel = getattr(vllm_config, "parallel_config", None)
    counts = {}
    for field in ("num_attention_ranks", "num_ffn_ranks"):
        counts[field] = _positive(
            getattr(afd_config, field, None), field, "connector.afd_config", f"afd.{field}"
        )
    per_dp = _connector_option(connector, vllm_config, "attn_ranks_per_dp", "attn_ranks_per_dp")
    if per_dp is not None:
        remedy = "afd.connector_extra_config.attn_ranks_per_dp"
        per_dp = _positive(per_dp, "attn_ranks_per_dp", "connector.extra_info", remedy)
    ubatches: Any = getattr(parallel, "num_ubatches", None)
    return Topology(
        attention_ranks=counts["num_attention_ranks"],
        ffn_ranks=counts["num_ffn_ranks"],
        num_ubatches=ubatches if is_positive_int(ubatches) else 1,
        attn_ranks_per_dp=per_dp,
        tp_pcp_ranks=_tp_pcp_ranks(parallel, settings) if role is Role.ATTENTION else None,
        npus_per_dp_group=settings.npus_per_dp_group,
    )


def _tp_pcp_ranks(parallel: Any, settings: Settings) -> int | None:
    """TP x PCP (a vLLM without PCP has 1); ``None`` if unreadable and the flag replaces it."""
    fields = {
        "tensor_parallel_size": getattr(parallel, "tensor_parallel_size", None),
        "prefill_context_parallel_size": getattr(parallel, "prefill_context_parallel_size", 1),
    }
    if settings.npus_per_dp_group and not all(map(is_positive_int, fields.values())):
        return None
    remedy = "cam_hccl.num_npus_per_dp_group"
    tp, pcp = (_positive(v, name, "parallel_config", remedy) for name, v in fields.items())
    return tp * pcp


def _positive(value: Any, field: str, where: str, override: str) -> int:
    if not is_positive_int(value):
        state = "missing" if value is None else f"{value!r}"
        raise PlanError(
            f"{field} is {state}, allowed is a positive integer (looked in {where}); set it with "
            f"{override} in additional_config"
        )
    return int(value)


def _connector_option(connector: Any, vllm_config: Any, attribute: str, key: str) -> Any:
    """An option as the connector parsed it, else as it stands in the AFD configuration."""
    parsed = getattr(getattr(connector, "extra_info", None), attribute, None)
    return _extra_config(vllm_config).get(key) if parsed is None else parsed


def read_inputs(
    connector: Any, vllm_config: Any, topology: Topology, settings: Settings
) -> tuple[SizingInputs | None, str]:
    """The inputs of this role's size, or ``None`` and what is missing, as one sentence.

    Raises:
        PlanError: the connector and the model configuration disagree, or the
            quantization mode is not 0 or 1.
    """
    quant = _read_dynamic_quant(connector, vllm_config, settings)
    shape, missing = _read_model(connector, vllm_config)
    scheduler = getattr(vllm_config, "scheduler_config", None)
    tokens: Any = getattr(scheduler, "max_num_batched_tokens", None)
    problems = [missing] if missing else []
    if not is_positive_int(tokens):
        problems.append(
            f"max_num_batched_tokens is {tokens!r}, allowed is a positive integer (looked in "
            "scheduler_config); set --max-num-batched-tokens, or cam_hccl.buffer_size_mb"
        )
    if shape is None or problems:
        return None, "; ".join(problems)
    return SizingInputs(shape, topology, int(tokens), quant), ""


def _read_dynamic_quant(connector: Any, vllm_config: Any, settings: Settings) -> bool:
    if settings.dynamic_quant is not None:
        return settings.dynamic_quant
    value = _connector_option(connector, vllm_config, "dynamic_quant", "dynamicQuant")
    if value is None:
        return False
    if not isinstance(value, int) or value not in (0, 1):
        raise PlanError(
            f"dynamicQuant is {value!r}, allowed is 0 or 1 (looked in connector.extra_info and "
            "afd.connector_extra_config); set it there or with cam_hccl.dynamic_quant"
        )
    return bool(value)


def _read_model(connector: Any, vllm_config: Any) -> tuple[ModelShape | None, str]:
    """The model's shape; the connector, which feeds the operators, is the better witness."""
    model_config = getattr(vllm_config, "model_config", None)
    text = getattr(model_config, "hf_text_config", None)
    configs = candidates(text, getattr(model_config, "hf_config", None))
    witness = {}
    for field, names in _CONNECTOR_NAMES.items():
        value = next((v for n in names if (v := getattr(connector, n, None)) is not None), None)
        if isinstance(value, int) and not isinstance(value, bool):
            witness[FIELD_NAMES[field][0]] = value
    where = "connector, hf_text_config, hf_config"
    remedy = "or fix every size with cam_hccl.buffer_size_mb"
    _refuse_disagreement(type(connector).__name__, witness, configs)
    return read_shape([witness, *configs], where, remedy)


def _refuse_disagreement(connector: str, witness: Mapping[str, int], configs: list[Any]) -> None:
    differing = []
    for field, (usual, *_) in FIELD_NAMES.items():
        name, stated = find_field(configs, field)
        if usual in witness and is_positive_int(stated) and stated != witness[usual]:
            differing.append(f"{field} is {witness[usual]} there, {name} is {stated} here")
    if differing:
        raise PlanError(
            f"{connector} and hf_text_config disagree: {'; '.join(differing)}; correct the "
            "model's config.json"
        )


def read_caller_mib(connector: Any, vllm_config: Any) -> int | None:
    """The user's explicit ``hccl_buffer_size`` (newer afd-plugin), in MiB, ``None`` if unset."""
    value = _connector_option(connector, vllm_config, "hccl_buffer_size", "hccl_buffer_size")
    return int(value) if is_positive_int(value) else None


def read_utilization(vllm_config: Any) -> Fraction | None:
    """``gpu_memory_utilization`` as an exact decimal, ``None`` if it is not a number."""
    value = getattr(getattr(vllm_config, "cache_config", None), "gpu_memory_utilization", None)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return exact(value)
