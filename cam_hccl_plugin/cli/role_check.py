# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The commands of a deployment against each other, and against the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cam_hccl_plugin.cli.allowed_plugins import (
    AFD_ENTRY_POINT,
    ASCEND_ENTRY_POINT,
    VLLM_PLUGINS,
    left_out,
)
from cam_hccl_plugin.cli.launch import Launch
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.flag_places import FLAG_KEY
from cam_hccl_plugin.model import Role
from cam_hccl_plugin.role_match import take_fingerprint
from cam_hccl_plugin.sizing import ceil_div

_NEEDED_PLUGINS = {
    FLAG_KEY: "the flag has no effect",
    AFD_ENTRY_POINT: "there is no AFD at all",
    ASCEND_ENTRY_POINT: "there is no NPU platform",
}


def one_per_role(launches: Sequence[Launch]) -> dict[Role, Launch]:
    """One launch per role, Attention first; further nodes of a role must say the same.

    Raises:
        PlanError: commands contradict each other; all contradictions are listed.
    """
    problems = []
    roles: dict[Role, Launch] = {}
    for launch in launches:
        first = roles.setdefault(launch.role, launch)
        if first is not launch:
            problems += _differences(first, launch, _of_one_role(first), _of_one_role(launch))
    if len(roles) == len(Role):
        attention, ffn = roles[Role.ATTENTION], roles[Role.FFN]
        problems += _differences(attention, ffn, _of_both(attention), _of_both(ffn))
    if problems:
        raise PlanError(f"the commands do not fit together: {'; '.join(dict.fromkeys(problems))}")
    return {role: roles[role] for role in Role if role in roles}


def _of_both(launch: Launch) -> dict[str, Any]:
    """What both roles must agree on; ``None`` where one cannot know."""
    fingerprint = take_fingerprint(
        claim=launch.claim,
        role=launch.role,
        rank=0,
        topology=launch.topology,
        inputs=launch.inputs,
        settings=launch.effective_settings,
        size_mib=None,
    )
    fields = {"connector": launch.identity.class_name, **fingerprint.fields}
    fields.pop("connector_kind")
    return {**fields, "port": launch.port}


def _of_one_role(launch: Launch) -> dict[str, Any]:
    """What all nodes of one role must agree on."""
    return {
        **_of_both(launch),
        "max_num_batched_tokens": launch.inputs.max_num_batched_tokens,
        "num_ubatches": launch.topology.num_ubatches,
        "TP x PCP": launch.topology.tp_pcp_ranks,
        "hccl_buffer_size": launch.caller_mib,
        FLAG_KEY: launch.settings,
    }


def _differences(
    one: Launch, other: Launch, first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[str]:
    found = []
    for name, value in first.items():
        theirs = second[name]
        unknown = None in (value, theirs) and name != FLAG_KEY
        if value == theirs or unknown:
            continue
        if name == FLAG_KEY:
            found.append(f"{FLAG_KEY} differs between {_who(one)} and {_who(other)}")
        else:
            found.append(f"{name} is {value} in {_who(one)} and {theirs} in {_who(other)}")
    return found


def _who(launch: Launch) -> str:
    return f"{launch.command.label} ({launch.role.value})"


def launch_warnings(launch: Launch, caller: Mapping[str, str]) -> list[str]:
    """What one command will do that its author may not expect.

    Args:
        caller: the environment in which the command would be started.
    """
    found = []
    if launch.settings is None:
        state = "is switched off" if launch.flag_given else "is not in the command"
        found.append(
            f"{FLAG_KEY} {state}: the groups keep their size of today, and the sizes here are what "
            f'the plugin would give; put "{FLAG_KEY}": {{}} beside afd in --additional-config'
        )
    given = launch.command.variable(VLLM_PLUGINS, caller)
    if given is not None:
        found += [
            f"{VLLM_PLUGINS}={given} leaves out {name}: vLLM does not load it and "
            f"{_NEEDED_PLUGINS[name]}; add {name} (names are matched exactly, no spaces)"
            for name in left_out(given, _NEEDED_PLUGINS)
            if name != FLAG_KEY or launch.settings is not None
        ]
    ranks = launch.topology.attention_ranks
    if launch.role is Role.FFN:
        ranks = launch.topology.ffn_ranks
    options = launch.options
    product = (
        options.data_parallel_size
        * options.tensor_parallel_size
        * options.prefill_context_parallel_size
    )
    if product != ranks:
        found.append(
            f"DP x TP x PCP is {options.data_parallel_size} x {options.tensor_parallel_size} x "
            f"{options.prefill_context_parallel_size} = {product}, but afd counts {ranks} "
            f"{launch.role.value} ranks; make them equal"
        )
    return found


def pair_warnings(roles: Mapping[Role, Launch]) -> list[str]:
    """What the two roles' commands do differently and may."""
    if len(roles) < len(Role):
        return []
    attention, ffn = roles[Role.ATTENTION], roles[Role.FFN]
    found = []
    if (attention.settings is None) != (ffn.settings is None):
        without = ffn if ffn.settings is None else attention
        found.append(f"only one role uses the plugin; {_who(without)} is without the flag")
    if attention.host != ffn.host:
        found.append(
            f"afd.host is {attention.host} in {_who(attention)} and {ffn.host} in {_who(ffn)}; "
            "both must name the same machine"
        )
    return found


def token_hint(roles: Mapping[Role, Launch]) -> str:
    """CAMP2P: how the FFN batch usually follows from Attention's; "" where it does."""
    attention = roles.get(Role.ATTENTION)
    if attention is None or attention.claim.tokens_shared:
        return ""
    topology, tokens = attention.topology, attention.inputs.max_num_batched_tokens
    usual = ceil_div(topology.attention_ranks * tokens, topology.ffn_ranks)
    text = (
        f"{topology.attention_ranks} Attention ranks x {tokens} tokens / {topology.ffn_ranks} FFN "
        f"ranks = {usual}"
    )
    ffn = roles.get(Role.FFN)
    if ffn is None:
        return (
            f"the FFN role is not planned: with {attention.identity.class_name} its own command is "
            f"needed (its max_num_batched_tokens is usually {text})"
        )
    given = ffn.inputs.max_num_batched_tokens
    return "" if given == usual else f"FFN has max_num_batched_tokens {given}; usual is {text}"
