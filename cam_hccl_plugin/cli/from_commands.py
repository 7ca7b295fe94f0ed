# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The deployment that ``vllm serve`` commands describe."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cam_hccl_plugin.cli import vllm_parser
from cam_hccl_plugin.cli.deployment import DEFAULT_UTILIZATION, Deployment, RoleLaunch
from cam_hccl_plugin.cli.from_options import (
    MODEL_FLAGS,
    device_bytes,
    load_model_shape,
    option_name,
    shape_from,
    variables_from,
    without_device,
)
from cam_hccl_plugin.cli.launch import Launch, read_launch
from cam_hccl_plugin.cli.role_check import (
    launch_warnings,
    one_per_role,
    pair_warnings,
    token_hint,
)
from cam_hccl_plugin.cli.serve_command import (
    ServeCommand,
    commands_from_text,
    commands_from_words,
    read_stdin,
)
from cam_hccl_plugin.cli.serve_options import ServeOptions, check_arguments, read_options
from cam_hccl_plugin.environment import HCCL_BUFFSIZE, read_buffsize
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.model import ModelShape, Role
from cam_hccl_plugin.model_config import FIELD_NAMES
from cam_hccl_plugin.operator_window import BUILDS
from cam_hccl_plugin.plugin_host import PluginHost
from cam_hccl_plugin.vllm_adapter import environment

_IN_THE_COMMAND = (
    "connector",
    "attention_ranks",
    "ffn_ranks",
    "max_num_batched_tokens",
    "ffn_max_num_batched_tokens",
    "npus_per_dp_group",
    "attn_ranks_per_dp",
    "num_ubatches",
    "dynamic_quant",
    "sizing",
    "headroom",
    "scope",
    "memory_guard_ratio",
)


def deployment_from_commands(arguments: argparse.Namespace, host: PluginHost) -> Deployment:
    """The deployment of the commands after ``--`` or on stdin.

    Raises:
        CamHcclError: something in the commands is wrong, unclear, or does not fit together.
    """
    doubled = [option_name(d) for d in _IN_THE_COMMAND if getattr(arguments, d) is not None]
    if doubled:
        raise PlanError(
            f"{', '.join(doubled)}: with a command this comes from the command; change it there, "
            "or plan from numbers alone"
        )
    commands = _commands(arguments)
    options, notes = _options(commands, arguments.parser or "auto")
    given = shape_from(arguments)
    launches = [
        read_launch(command, each, given or _shape(command, each), host)
        for command, each in zip(commands, options, strict=True)
    ]
    roles = one_per_role(launches)
    return _deployment(arguments, roles, [*notes, *(n for each in options for n in each.notes)])


def _commands(arguments: argparse.Namespace) -> list[ServeCommand]:
    if arguments.source and arguments.after_dashes:
        raise PlanError("- and -- exclude each other; give the commands in one of the two ways")
    if arguments.source:
        return commands_from_text(read_stdin())
    return commands_from_words(arguments.after_dashes)


def _options(commands: Sequence[ServeCommand], parser: str) -> tuple[list[ServeOptions], list[str]]:
    for command in commands:
        check_arguments(command)
    if parser == "vllm" or (parser == "auto" and vllm_parser.vllm_installed()):
        read, reason = vllm_parser.read_with_vllm(commands)
        if read is not None:
            return read, []
        if parser == "vllm":
            raise PlanError(
                f"vLLM's parser cannot be used: {reason}; use --parser own, or install vLLM"
            )
        note = f"vLLM's parser cannot be used ({reason}), the commands were read without it"
        return [read_options(command) for command in commands], [note]
    return [read_options(command) for command in commands], []


def _shape(command: ServeCommand, options: ServeOptions) -> ModelShape:
    """The shape from the command's own model directory."""
    remedy = f"give --model-shape NAME, --model, or {', '.join(MODEL_FLAGS.values())}"
    overridden = {name for names in FIELD_NAMES.values() for name in names}
    overridden &= set(options.hf_overrides)
    if overridden:
        raise PlanError(
            f"{command.label}: --hf-overrides changes {', '.join(sorted(overridden))}; {remedy}"
        )
    model = options.hf_config_path or options.model
    if model is None:
        raise PlanError(
            f"{command.label} names no model right after serve and no --model; {remedy}"
        )
    if not os.path.exists(model):
        from cam_hccl_plugin.model_shapes import suggestion_for

        close = suggestion_for(model)
        hint = f"; is it --model-shape {close}?" if close else ""
        raise PlanError(
            f"{command.label}: the model {model} is not on this machine; {remedy}{hint}"
        )
    return load_model_shape(model, f"{command.label}: model", remedy)


def _deployment(
    arguments: argparse.Namespace, roles: Mapping[Role, Launch], notes: list[str]
) -> Deployment:
    first = next(iter(roles.values()))
    caller = environment()
    planned = {role: _role(arguments, launch, caller) for role, launch in roles.items()}
    for role in Role:
        if role not in planned and first.claim.tokens_shared:
            planned[role] = _mirrored(planned[role.other])
            notes.append(
                f"no {role.value} command was given: {role.value} is planned with the "
                f"{role.other.value} command's tokens and flag, which {first.identity.class_name} "
                "shares"
            )
    hint = token_hint(roles)
    if not hint and len(planned) < len(Role):
        missing = Role.ATTENTION if Role.FFN in planned else Role.FFN
        hint = f"the {missing.value} role is not planned: its own command is needed"
    notes += without_device(arguments)
    if arguments.device_memory_gib is not None:
        notes += _utilization_notes(arguments, roles)
    return Deployment(
        identity=first.identity,
        claim=first.claim,
        roles={role: planned[role] for role in Role if role in planned},
        device_memory_bytes=device_bytes(arguments),
        hccl_buffsize_mib=arguments.hccl_buffsize,
        sized_apart=True,
        notes=tuple([*notes, hint] if hint else notes),
        warnings=tuple(pair_warnings(roles)),
    )


def _role(arguments: argparse.Namespace, launch: Launch, caller: Mapping[str, str]) -> RoleLaunch:
    given = arguments.gpu_memory_utilization
    stated = launch.options.gpu_memory_utilization
    if given is not None and stated is not None and given != stated:
        raise PlanError(
            f"--gpu-memory-utilization: {launch.command.label} says {float(stated):g}; change it "
            "there, or leave the option out"
        )
    given_there = {b.variable: launch.command.variable(b.variable, caller) for b in BUILDS}
    variables = variables_from(arguments, given_there)
    buffsize = read_buffsize(variables.get(HCCL_BUFFSIZE))
    remarks = [*launch_warnings(launch, caller), buffsize.problem]
    return RoleLaunch(
        settings=launch.effective_settings,
        inputs=launch.inputs,
        caller_mib=launch.caller_mib,
        environment_mib=buffsize.effective_mib,
        utilization=stated or given or DEFAULT_UTILIZATION,
        variables=variables,
        remarks=tuple(remark for remark in remarks if remark),
    )


def _mirrored(other: RoleLaunch) -> RoleLaunch:
    """The role without a command, from what the connector shares between the roles."""
    topology = replace(other.inputs.topology, tp_pcp_ranks=None)
    return replace(other, inputs=replace(other.inputs, topology=topology), remarks=())


def _utilization_notes(arguments: argparse.Namespace, roles: Mapping[Role, Launch]) -> list[str]:
    if arguments.gpu_memory_utilization is not None:
        return []
    return [
        f"{launch.command.label} gives no --gpu-memory-utilization: {float(DEFAULT_UTILIZATION):g} "
        "is assumed, vLLM's own default differs between versions"
        for launch in roles.values()
        if launch.options.gpu_memory_utilization is None
    ]
