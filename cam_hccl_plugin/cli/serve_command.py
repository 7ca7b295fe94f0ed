# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``vllm serve`` commands: environment assignments in front, then vLLM's arguments."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cam_hccl_plugin.cli.shell_words import split_commands
from cam_hccl_plugin.errors import PlanError

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_API_SERVER = "vllm.entrypoints.openai.api_server"
_CLI_MODULES = ("vllm", "vllm.entrypoints.cli.main")
_SHOWN_WORDS = 6


@dataclass(frozen=True)
class ServeCommand:
    """One command: vLLM's arguments after ``serve``, and the variables set in front of it."""

    label: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str | None]

    def variable(self, name: str, caller: Mapping[str, str]) -> str | None:
        """``name`` as the command will see it: its own assignment, else the caller's."""
        return self.environment[name] if name in self.environment else caller.get(name)


def commands_from_words(words: Sequence[str]) -> list[ServeCommand]:
    """The commands after ``--``; a further ``--`` starts the next one.

    Raises:
        PlanError: there is none, or one is no ``vllm serve`` command.
    """
    found: list[list[str]] = []
    for word in words:
        if word == "--":
            found.append([])
        else:
            found[-1].append(word)
    found = [command for command in found if command]
    if not found:
        raise PlanError("no command after --; give it as it is, e.g. -- vllm serve MODEL ...")
    return _numbered([_read(command, {}) for command in found])


def commands_from_text(text: str) -> list[ServeCommand]:
    """The commands in shell text; ``export`` lines hold for the commands below them.

    Raises:
        PlanError: there is none, or a line is anything but a ``vllm serve`` command.
    """
    exported: dict[str, str | None] = {}
    found = []
    for words in split_commands(text):
        assigned = _exports(words)
        if assigned is None:
            found.append(_read(words, exported))
        exported.update(assigned or {})
    if not found:
        raise PlanError(
            "stdin holds no command; pipe vllm serve commands in, one per line, e.g. "
            "DRY_RUN=1 bash script | cam-hccl plan -"
        )
    return _numbered(found)


def read_stdin() -> str:
    """All of stdin as text.

    Raises:
        PlanError: stdin is a terminal, or no text.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise PlanError("- reads commands from stdin, which is a terminal; pipe them in")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise PlanError(f"stdin is not text: {error}; pipe vllm serve commands in") from error


def _numbered(commands: list[ServeCommand]) -> list[ServeCommand]:
    if len(commands) == 1:
        return [ServeCommand("the command", commands[0].arguments, commands[0].environment)]
    return [
        ServeCommand(f"command {number}", command.arguments, command.environment)
        for number, command in enumerate(commands, 1)
    ]


def _exports(words: Sequence[str]) -> dict[str, str] | None:
    """The assignments of an ``export`` line or a bare ``A=B`` line, ``None`` if it is neither."""
    names = words[1:] if words[0] == "export" else words
    matches = [_ASSIGNMENT.fullmatch(word) for word in names]
    if not matches or None in matches:
        return None
    return {match[1]: match[2] for match in matches if match}


def _read(words: Sequence[str], exported: Mapping[str, str | None]) -> ServeCommand:
    start = _arguments_start(words)
    environment = dict(exported)
    prefix = list(words[:start])
    if any(word in ("-i", "--ignore-environment") for word in prefix):
        raise PlanError(f"{_shown(words)}: env -i is not understood; write the variables out")
    for index, word in enumerate(prefix):
        match = _ASSIGNMENT.fullmatch(word)
        if match:
            environment[match[1]] = match[2]
        elif index and prefix[index - 1] in ("-u", "--unset"):
            environment[word] = None
        elif word.startswith("--unset="):
            environment[word.partition("=")[2]] = None
    return ServeCommand("", tuple(words[start:]), environment)


def _arguments_start(words: Sequence[str]) -> int:
    """Index of the first argument of ``vllm serve``."""
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        is_cli = os.path.basename(word) == "vllm" or (
            index > 0 and words[index - 1] == "-m" and word in _CLI_MODULES
        )
        if is_cli and following == "serve":
            return index + 2
        if word == _API_SERVER and index > 0 and words[index - 1] == "-m":
            return index + 1
    raise PlanError(
        f"{_shown(words)}: no vllm serve in it; give the command that starts the server, or what "
        "a script prints with DRY_RUN=1"
    )


def _shown(words: Sequence[str]) -> str:
    shown = " ".join(word if len(word) <= 40 else f"{word[:37]}..." for word in words)
    first = " ".join(shown.split(" ")[:_SHOWN_WORDS])
    return first if first == shown else f"{first} ..."
