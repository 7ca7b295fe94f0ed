# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What one ``vllm serve`` command means for the plugin, by the rules of a worker.

The command is dressed up as the VllmConfig and connector that a worker would have, so that
:mod:`cam_hccl_plugin.vllm_adapter` reads both alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

from cam_hccl_plugin import vllm_adapter
from cam_hccl_plugin.builtin_hooks import ASYNC
from cam_hccl_plugin.cli.deployment import claim_connector
from cam_hccl_plugin.cli.serve_command import ServeCommand
from cam_hccl_plugin.cli.serve_options import ServeOptions
from cam_hccl_plugin.errors import CamHcclError, PlanError
from cam_hccl_plugin.flag_places import FLAG_KEY
from cam_hccl_plugin.model import (
    ConnectorClaim,
    ConnectorIdentity,
    ModelShape,
    Role,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.plugin_host import PluginHost
from cam_hccl_plugin.settings import Settings

_ALIASES = {"afd_connector": "connector", "afd_role": "role"}
_ALIASES |= {"afd_host": "host", "afd_port": "port"}
_REQUIRED = ("connector", "role", "num_attention_ranks", "num_ffn_ranks")
_COUNTS = ("tensor_parallel_size", "prefill_context_parallel_size", "data_parallel_size")
_DEFAULTS = {"host": "127.0.0.1", "port": 1239}
_ONE_JSON = f"give afd and {FLAG_KEY} in one --additional-config JSON"


@dataclass(frozen=True)
class Launch:
    """One command, understood. ``settings`` is ``None`` where the plugin stays off."""

    command: ServeCommand
    options: ServeOptions
    identity: ConnectorIdentity
    claim: ConnectorClaim
    role: Role
    host: str
    port: int
    flag_given: bool
    settings: Settings | None
    inputs: SizingInputs
    caller_mib: int | None

    @property
    def topology(self) -> Topology:
        """The ranks, as this command states them."""
        return self.inputs.topology

    @property
    def effective_settings(self) -> Settings:
        """The settings, or the defaults that the flag would bring."""
        return self.settings or Settings()


def read_launch(
    command: ServeCommand, options: ServeOptions, shape: ModelShape, plugins: PluginHost
) -> Launch:
    """Understand one command.

    Raises:
        CamHcclError: an input is missing or wrong; the message names the command.
    """
    try:
        return _read(command, options, shape, plugins)
    except CamHcclError as error:
        if str(error).startswith(command.label):
            raise
        raise PlanError(f"{command.label}: {error}") from error


def _read(
    command: ServeCommand, options: ServeOptions, shape: ModelShape, plugins: PluginHost
) -> Launch:
    afd, extra = _afd_section(options)
    _check_flag_places(options, afd, extra)
    if options.max_num_batched_tokens is None:
        raise PlanError(
            "--max-num-batched-tokens is missing; vLLM's own default depends on its version and "
            "on the device, so write it into the command"
        )
    _check_counts(options)
    host, port = _address(afd)
    name = str(afd["connector"])
    identity = ConnectorIdentity(name, (name,), MappingProxyType(dict(extra)))
    claim = claim_connector(plugins, identity, "additional_config.afd.connector")
    connector = _connector(afd, extra, claim)
    vllm_config = _vllm_config(options, shape)
    settings = vllm_adapter.read_flag(vllm_config)
    role = vllm_adapter.read_role(connector)
    effective = settings or Settings()
    topology = vllm_adapter.read_topology(connector, vllm_config, role, effective)
    inputs, missing = vllm_adapter.read_inputs(connector, vllm_config, topology, effective)
    if inputs is None:
        raise PlanError(missing)
    return Launch(
        command=command,
        options=options,
        identity=identity,
        claim=claim,
        role=role,
        host=host,
        port=port,
        flag_given=FLAG_KEY in options.additional_config or FLAG_KEY in _kv_extra(options),
        settings=settings,
        inputs=inputs,
        caller_mib=vllm_adapter.read_caller_mib(connector, vllm_config),
    )


def _check_counts(options: ServeOptions) -> None:
    for count in _COUNTS:
        given = getattr(options, count)
        if given < 1:
            option = f"--{count.replace('_', '-')}"
            raise PlanError(f"{option}: given {given}, allowed is a positive integer")


def _address(afd: Mapping[str, Any]) -> tuple[str, int]:
    """Where the roles meet."""
    host = afd.get("host", _DEFAULTS["host"])
    if not isinstance(host, str) or not host:
        raise PlanError(f"afd.host is {host!r}, wanted is the name or address of a machine")
    port = _integer(afd.get("port", _DEFAULTS["port"]), "afd.port")
    if not 1 <= port <= 65535:
        raise PlanError(f"afd.port is {port}, allowed is an integer from 1 to 65535")
    return host, port


def _afd_section(options: ServeOptions) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The afd object with its keys spelled one way, and its ``connector_extra_config``."""
    section = options.additional_config.get("afd")
    if not isinstance(section, Mapping):
        found = ", ".join(options.additional_config) or "nothing"
        raise PlanError(
            f"no afd object in --additional-config (found: {found}), so this is no AFD role; "
            f"{_ONE_JSON}"
        )
    afd = {_ALIASES.get(str(key), str(key)): value for key, value in section.items()}
    missing = [key for key in _REQUIRED if afd.get(key) is None]
    if missing:
        raise PlanError(
            f"afd in --additional-config lacks {', '.join(missing)}; write them out, nothing is "
            "guessed here"
        )
    extra = afd.get("connector_extra_config") or {}
    if not isinstance(extra, Mapping):
        raise PlanError(f"afd.connector_extra_config is {extra!r}, wanted is an object")
    return afd, extra


def _check_flag_places(
    options: ServeOptions, afd: Mapping[str, Any], extra: Mapping[str, Any]
) -> None:
    """Refuse the flag where nothing reads it."""
    for place, found in (("afd", afd), ("afd.connector_extra_config", extra)):
        if FLAG_KEY in found:
            raise PlanError(
                f"{FLAG_KEY} stands inside {place}, where afd-plugin refuses it; put it beside afd"
            )
    transfer = options.kv_transfer_config
    if transfer is None:
        return
    if FLAG_KEY in transfer:
        raise PlanError(
            f"{FLAG_KEY} stands at the top of --kv-transfer-config, where nothing reads it; put it "
            "into its kv_connector_extra_config, or beside afd in --additional-config"
        )
    if not transfer.get("kv_connector"):
        what = f"holds {FLAG_KEY} but " if FLAG_KEY in _kv_extra(options) else ""
        raise PlanError(
            f"--kv-transfer-config {what}names no kv_connector, and vLLM refuses to start with it; "
            f"leave the option out and put {FLAG_KEY} beside afd in --additional-config"
        )


def _kv_extra(options: ServeOptions) -> Mapping[str, Any]:
    extra = (options.kv_transfer_config or {}).get("kv_connector_extra_config")
    return extra if isinstance(extra, Mapping) else {}


def _connector(afd: Mapping[str, Any], extra: Mapping[str, Any], claim: ConnectorClaim) -> Any:
    """What the factory's connector would know of this configuration."""
    # afd-plugin's own default; the connector hands it to its operators.
    ranks_per_dp = 1 if claim.kind == ASYNC else None
    info = {
        "attn_ranks_per_dp": extra.get("attn_ranks_per_dp", ranks_per_dp),
        "dynamic_quant": extra.get("dynamicQuant"),
        "hccl_buffer_size": extra.get("hccl_buffer_size"),
    }
    spelled = {"dynamic_quant": "dynamicQuant"}
    read = {
        key: None
        if v is None
        else _integer(v, f"afd.connector_extra_config.{spelled.get(key, key)}")
        for key, v in info.items()
    }
    counts = {key: _integer(afd[key], f"afd.{key}") for key in _REQUIRED[2:]}
    return SimpleNamespace(
        afd_config=SimpleNamespace(role=afd["role"], **counts), extra_info=SimpleNamespace(**read)
    )


def _integer(value: Any, label: str) -> int:
    """An integer as afd-plugin takes it: a number, or its text."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PlanError(f"{label} is {json.dumps(value)}, wanted is an integer")
    return value


def _vllm_config(options: ServeOptions, shape: ModelShape) -> Any:
    """The parts of a VllmConfig that the adapter reads."""
    hf_config = {
        "hidden_size": shape.hidden_size,
        "num_experts_per_tok": shape.topk,
        "n_routed_experts": shape.routed_experts,
    }
    return SimpleNamespace(
        additional_config=dict(options.additional_config),
        kv_transfer_config=SimpleNamespace(kv_connector_extra_config=_kv_extra(options)),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=options.tensor_parallel_size,
            prefill_context_parallel_size=options.prefill_context_parallel_size,
            num_ubatches=options.num_ubatches,
        ),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=options.max_num_batched_tokens),
        model_config=SimpleNamespace(hf_text_config=None, hf_config=hf_config),
    )
