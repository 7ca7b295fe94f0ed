# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The options of ``vllm serve`` that decide buffers, read without vLLM.

Only what is certain is read; the rest is an error with its remedy.
Source of the spellings: vLLM 0.32, ``EngineArgs`` and ``FlexibleArgumentParser``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from cam_hccl_plugin.cli.argument_types import shortened
from cam_hccl_plugin.cli.serve_command import ServeCommand
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.sizing import exact

JSON_OPTIONS = ("--additional-config", "--kv-transfer-config", "--hf-overrides")
_INTEGERS = {
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--tensor-parallel-size": "tensor_parallel_size",
    "--prefill-context-parallel-size": "prefill_context_parallel_size",
    "--data-parallel-size": "data_parallel_size",
    "--ubatch-size": "ubatch_size",
}
_TEXTS = {
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--model": "model",
    "--hf-config-path": "hf_config_path",
}
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pcp": "--prefill-context-parallel-size",
    "-dp": "--data-parallel-size",
}
_SWITCHES = {"--enable-dbo": True, "--no-enable-dbo": False}
_KNOWN = (*JSON_OPTIONS, *_INTEGERS, *_TEXTS, *_SWITCHES, "--config")
_DECIMAL_SUFFIX = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_SUFFIX = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_BLANKS, _DASHES, _QUOTES = (
    "\u00a0\u200b-\u200f\u202f\u2060\u3000\ufeff",
    "\u2010-\u2015\u2212",
    "\u2018-\u201f",
)
_FROM_A_DOCUMENT = re.compile(
    rf"^[{_BLANKS}{_DASHES}{_QUOTES}]|[{_BLANKS}]$|[{_BLANKS}]--?[A-Za-z]"
)
_STUCK = re.compile(r"-(?:tp|pcp|dp)[0-9]+")
_DECIMAL = re.compile(r"(?:[0-9]{1,4}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_{(])")


@dataclass(frozen=True)
class ServeOptions:
    """What a command says, whoever read it; ``None`` where it says nothing."""

    model: str | None = None
    hf_config_path: str | None = None
    max_num_batched_tokens: int | None = None
    tensor_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_dbo: bool = False
    ubatch_size: int = 0
    gpu_memory_utilization: Fraction | None = None
    additional_config: Mapping[str, Any] = field(default_factory=dict)
    kv_transfer_config: Mapping[str, Any] | None = None
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def num_ubatches(self) -> int:
        """Ubatches as vLLM's ``ParallelConfig.num_ubatches`` counts them."""
        return 2 if self.enable_dbo else self.ubatch_size


@dataclass(frozen=True)
class _Given:
    """One option as given: its full name, the dotted rest, and its value."""

    name: str
    path: tuple[str, ...]
    value: str | None
    shown: str


def check_arguments(command: ServeCommand) -> None:
    """What vLLM's own parser takes without a word, and must not be.

    Raises:
        PlanError: a JSON option twice, or as JSON and dotted, a value with a shell variable
            in it, or a word with a character that only documents have.
    """
    for word in command.arguments:
        if _FROM_A_DOCUMENT.search(word):
            raise PlanError(
                f"{command.label}: {shortened(word)!a} has a blank, dash or quotation mark "
                "that documents put in place of the plain one; type it again"
            )
    given = list(_options(command.arguments))
    for name in JSON_OPTIONS:
        # vLLM takes a beginning of an option for the option.
        these = [each for each in given if each.name != "--" and name.startswith(each.name)]
        whole = [each for each in these if not each.path]
        dotted = [each for each in these if each.path]
        if whole and dotted:
            raise PlanError(
                f"{command.label} gives {name} both as JSON and dotted ({dotted[0].shown}): in "
                "vLLM the dotted one replaces the JSON without a word; write all of it in one JSON"
            )
        if len(whole) > 1:
            raise PlanError(
                f"{command.label} gives {name} {len(whole)} times: in vLLM the last one replaces "
                "the others without a word; write all of it in one JSON"
            )
    for each in given:
        if each.name in _KNOWN and each.value and _VARIABLE.search(each.value):
            raise PlanError(
                f"{command.label}: {each.shown} holds a shell variable that nobody filled in "
                f"({shortened(each.value)}); a shell leaves it alone inside single quotes; fill it "
                "in, or give what a script prints with DRY_RUN=1"
            )


def read_options(command: ServeCommand) -> ServeOptions:
    """The options that matter, without vLLM; :func:`check_arguments` comes first.

    Raises:
        PlanError: something is not certain, with the remedy.
    """
    values: dict[str, Any] = {}
    dotted: dict[str, dict[str, Any]] = {}
    seen: dict[str, int] = {}
    arguments = command.arguments
    if arguments and not arguments[0].startswith("-"):
        values["model"] = arguments[0]
    for word in arguments:
        if _STUCK.fullmatch(word):
            raise PlanError(f"{command.label}: {word}: vLLM wants a blank before the number")
    for each in _options(arguments):
        _refuse_unclear(command, each)
        name = each.name
        if each.path:
            _merge(command, dotted.setdefault(name, {}), each)
        elif name in _SWITCHES:
            values["enable_dbo"] = _SWITCHES[name]
        elif name in JSON_OPTIONS:
            values[_attribute(name)] = _json_object(command, each)
        elif name in _INTEGERS:
            values[_INTEGERS[name]] = _integer(command, each)
        elif name in _TEXTS:
            values[_TEXTS[name]] = _text(command, each)
        if name in _KNOWN and name not in JSON_OPTIONS:
            seen[name] = seen.get(name, 0) + 1
    values.update({_attribute(name): value for name, value in dotted.items()})
    if "gpu_memory_utilization" in values:
        values["gpu_memory_utilization"] = _utilization(command, values["gpu_memory_utilization"])
    twice = [name for name, count in seen.items() if count > 1]
    notes = tuple(f"{command.label} gives {name} more than once, the last counts" for name in twice)
    return ServeOptions(**values, notes=notes)


def _attribute(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def _options(arguments: Sequence[str]) -> Iterator[_Given]:
    """The options among vLLM's arguments, spelled out; a value may follow or hang on by "="."""
    for index, word in enumerate(arguments):
        if not word.startswith("-") or word == "-":
            continue
        head, has_value, value = word.partition("=")
        if not head.startswith("--"):
            if head.split(".")[0] not in _SHORT:
                continue
            head = _SHORT[head.split(".")[0]]
        name, *path = head.split(".")
        following = arguments[index + 1] if index + 1 < len(arguments) else None
        if following is not None and following.startswith("--"):
            following = None
        yield _Given(
            "--" + name[2:].replace("_", "-"),
            tuple(path),
            value if has_value else following,
            head,
        )


def _refuse_unclear(command: ServeCommand, each: _Given) -> None:
    if each.name == "--config":
        raise PlanError(
            f"{command.label} reads a YAML file with --config, which only vLLM can read; install "
            "vLLM here, or write the options of the file into the command"
        )
    whole = [known for known in _KNOWN if known.startswith(each.name)]
    if each.name not in _KNOWN and whole and each.name != "--":
        raise PlanError(
            f"{command.label}: {each.shown} is an abbreviation; write the option out (--"
            f"{whole[0][2:]}?)"
        )
    if each.path and each.name in _KNOWN and each.name not in JSON_OPTIONS:
        raise PlanError(f"{command.label}: {each.shown} takes no dotted key; write the option out")


def _text(command: ServeCommand, each: _Given) -> str:
    if not each.value:
        raise PlanError(f"{command.label}: {each.shown} has no value; give one")
    return each.value


def _integer(command: ServeCommand, each: _Given) -> int:
    """An integer, or one with a suffix as vLLM reads it: 8k is 8000, 8K is 8192."""
    text = _text(command, each).strip()
    match = re.fullmatch(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?([kKmMgGtT]?)", text)
    if match and each.name == "--max-num-batched-tokens" and match[3] in _DECIMAL_SUFFIX:
        return int(Fraction(f"{match[1]}.{match[2] or 0}") * _DECIMAL_SUFFIX[match[3]])
    if match and not match[2]:
        if not match[3]:
            return int(match[1])
        if each.name == "--max-num-batched-tokens":
            return int(match[1]) * _BINARY_SUFFIX[match[3]]
    raise PlanError(f"{command.label}: {each.shown}: given {text!r}, allowed is an integer")


def _utilization(command: ServeCommand, text: str) -> Fraction:
    if _DECIMAL.fullmatch(text):
        value = exact(text)
        if 0 < value <= 1:
            return value
    raise PlanError(
        f"{command.label}: --gpu-memory-utilization: given {text!r}, allowed is a number above 0, "
        "up to 1"
    )


def _json_object(command: ServeCommand, each: _Given) -> dict[str, Any]:
    text = _text(command, each)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlanError(
            f"{command.label}: {each.shown} is no JSON ({error}): {shortened(text)}; put it into "
            "single quotes, keys and texts into double quotes"
        ) from error
    if not isinstance(value, dict):
        raise PlanError(f"{command.label}: {each.shown} is {shortened(text)}, wanted is an object")
    return value


def _merge(command: ServeCommand, target: dict[str, Any], each: _Given) -> None:
    """Put the value of a dotted option where its path says."""
    if any(not key or key.endswith("+") for key in each.path):
        raise PlanError(f"{command.label}: {each.shown} is not read here; write it as one JSON")
    if each.name not in JSON_OPTIONS:
        return
    text = _text(command, each)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        if re.fullmatch(r"[0-9.]+[kKmMgGtT]", text):
            raise PlanError(
                f"{command.label}: {each.shown}: given {text!r}, write the number out"
            ) from None
        value = text
    *parents, last = each.path
    for key in parents:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise PlanError(f"{command.label}: {each.shown} is given below a value; use one JSON")
    if last in target:
        raise PlanError(f"{command.label}: {each.shown} is given twice; give it once")
    target[last] = value
