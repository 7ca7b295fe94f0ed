# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The deployment that the options describe, in numbers."""

from __future__ import annotations

import argparse
import json
import os

from cam_hccl_plugin.cli.deployment import (
    DEFAULT_UTILIZATION,
    Deployment,
    RoleLaunch,
    claim_connector,
)
from cam_hccl_plugin.environment import HCCL_BUFFSIZE, LCCL_BUFFER_SIZE
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.model import (
    ConnectorClaim,
    ConnectorIdentity,
    MiB,
    ModelShape,
    Role,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.model_config import candidates, read_shape
from cam_hccl_plugin.plugin_host import PluginHost
from cam_hccl_plugin.settings import Settings
from cam_hccl_plugin.vllm_adapter import window_variables

MODEL_FLAGS = {
    "hidden_size": "--hidden-size",
    "topk": "--topk",
    "routed_experts": "--routed-experts",
}
_SHAPE_REMEDY = f"give {', '.join(MODEL_FLAGS.values())} or --model-shape instead"
_SETTINGS_KEYS = ("sizing", "headroom", "scope", "memory_guard_ratio")
_LARGEST_CONFIG = 2**24
"""Characters; the largest published ones have a few hundred thousand."""

REQUIRED = ("connector", "attention_ranks", "ffn_ranks", "max_num_batched_tokens")


def option_name(dest: str) -> str:
    """The option that fills ``dest``."""
    return "--" + dest.replace("_", "-")


def missing_options(arguments: argparse.Namespace) -> list[str]:
    """Options that a deployment from numbers lacks."""
    return [option_name(dest) for dest in REQUIRED if getattr(arguments, dest) is None]


def deployment_from(
    arguments: argparse.Namespace, host: PluginHost, shape: ModelShape
) -> Deployment:
    """The deployment that the options describe; both roles.

    Raises:
        PlanError: the connector is not CAM-type, or the roles' tokens contradict it.
    """
    given = {key: getattr(arguments, key) for key in _SETTINGS_KEYS}
    settings = Settings(**{key: value for key, value in given.items() if value is not None})
    identity = ConnectorIdentity(arguments.connector, (arguments.connector,))
    claim = claim_connector(host, identity, "--connector")
    topology, tokens = _topology(arguments), _tokens(arguments, claim)
    quant = bool(arguments.dynamic_quant)
    utilization = arguments.gpu_memory_utilization or DEFAULT_UTILIZATION
    variables = variables_from(arguments, window_variables())
    return Deployment(
        identity=identity,
        claim=claim,
        roles={
            role: RoleLaunch(
                settings=settings,
                inputs=SizingInputs(shape, topology, tokens[role], quant),
                utilization=utilization,
                variables=variables,
            )
            for role in Role
        },
        device_memory_bytes=device_bytes(arguments),
        hccl_buffsize_mib=getattr(arguments, "hccl_buffsize", None),
        notes=tuple(without_device(arguments)),
    )


def without_device(arguments: argparse.Namespace) -> list[str]:
    """A note on options that say nothing unless the die's memory is known."""
    if arguments.device_memory_gib is not None:
        return []
    idle = [d for d in ("gpu_memory_utilization", "memory_guard_ratio") if getattr(arguments, d)]
    return [f"{option_name(d)} has no effect without --device-memory-gib" for d in idle]


def _topology(arguments: argparse.Namespace) -> Topology:
    npus = arguments.npus_per_dp_group or 1
    return Topology(
        attention_ranks=arguments.attention_ranks,
        ffn_ranks=arguments.ffn_ranks,
        num_ubatches=arguments.num_ubatches or 1,
        attn_ranks_per_dp=arguments.attn_ranks_per_dp or npus,
        npus_per_dp_group=npus,
    )


def _tokens(arguments: argparse.Namespace, claim: ConnectorClaim) -> dict[Role, int]:
    tokens = {
        Role.ATTENTION: arguments.max_num_batched_tokens,
        Role.FFN: arguments.ffn_max_num_batched_tokens or arguments.max_num_batched_tokens,
    }
    if claim.tokens_shared and len(set(tokens.values())) > 1:
        raise PlanError(
            f"--ffn-max-num-batched-tokens {tokens[Role.FFN]}: {arguments.connector} needs the "
            f"same max_num_batched_tokens on both roles, Attention has {tokens[Role.ATTENTION]}; "
            "leave the option out"
        )
    return tokens


def variables_from(
    arguments: argparse.Namespace, environment: dict[str, str | None]
) -> dict[str, str | None]:
    """The operators' window variables: as given in the options, else as in ``environment``."""
    given = {
        HCCL_BUFFSIZE: getattr(arguments, "hccl_buffsize", None),
        LCCL_BUFFER_SIZE: getattr(arguments, "lccl_buffer_size", None),
    }
    return {
        name: value if given.get(name) is None else str(given[name])
        for name, value in environment.items()
    }


def device_bytes(arguments: argparse.Namespace) -> int | None:
    """``--device-memory-gib`` in bytes."""
    gib = arguments.device_memory_gib
    return None if gib is None else int(gib * 1024 * MiB)


def shape_from(arguments: argparse.Namespace) -> ModelShape | None:
    """The model's shape as the options give it, ``None`` if none of them was given.

    Raises:
        PlanError: options that exclude each other, an unknown name, an unreadable file.
    """
    numbers = {field: getattr(arguments, field) for field in MODEL_FLAGS}
    given = [flag for field, flag in MODEL_FLAGS.items() if numbers[field] is not None]
    for dest in ("model", "model_shape"):
        if getattr(arguments, dest) is not None:
            given.insert(0, option_name(dest))
    if not given:
        return None
    if len(given) > 1 and not all(flag in MODEL_FLAGS.values() for flag in given):
        first, *others = given
        raise PlanError(f"{first} and {', '.join(others)} exclude each other; give one of the two")
    if arguments.model is not None:
        return load_model_shape(arguments.model)
    if arguments.model_shape is not None:
        from cam_hccl_plugin.model_shapes import shape_named

        return shape_named(arguments.model_shape)
    missing = [flag for field, flag in MODEL_FLAGS.items() if numbers[field] is None]
    if missing:
        raise PlanError(_missing_shape(missing))
    return _possible(ModelShape(**numbers), "model")


def required_shape(arguments: argparse.Namespace) -> ModelShape:
    """The model's shape as the options give it.

    Raises:
        PlanError: they do not give it.
    """
    shape = shape_from(arguments)
    if shape is None:
        raise PlanError(_missing_shape(list(MODEL_FLAGS.values())))
    return shape


def _missing_shape(missing: list[str]) -> str:
    return (
        f"{', '.join(missing)} missing; give {', '.join(MODEL_FLAGS.values())}, or "
        "--model with a directory or config.json, or --model-shape with a well-known name"
    )


def load_model_shape(path: str, label: str = "--model", remedy: str = _SHAPE_REMEDY) -> ModelShape:
    """The model's shape from a ``config.json`` or the directory that holds it.

    Raises:
        PlanError: the file cannot be read, is not a JSON object or lacks a number.
    """
    file = os.path.join(path, "config.json") if os.path.isdir(path) else path
    try:
        with open(file, encoding="utf-8") as stream:
            text = stream.read(_LARGEST_CONFIG + 1)
        if len(text) > _LARGEST_CONFIG:
            raise ValueError("it is too large for a config.json")
        config = json.loads(text)
        places = candidates(config)
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"{label}: cannot read {file!r}: {error}; {remedy}") from error
    if not isinstance(config, dict):
        raise PlanError(f"{label}: {file} holds no JSON object; {remedy}")
    shape, problem = read_shape(places, f"{label} {file}", remedy)
    if shape is None:
        raise PlanError(problem)
    return _possible(shape, f"{label} {file}")


def _possible(shape: ModelShape, where: str) -> ModelShape:
    """The shape, unless no model can have it."""
    numbers = {flag: getattr(shape, field) for field, flag in MODEL_FLAGS.items()}
    for flag, number in numbers.items():
        if number >= 2**63:
            raise PlanError(f"{where}: the number for {flag} is too large, allowed are 63 bits")
    if shape.topk > shape.routed_experts:
        raise PlanError(
            f"{where}: {shape.topk} experts per token of only {shape.routed_experts} routed "
            "experts; are --topk and --routed-experts exchanged?"
        )
    return shape
