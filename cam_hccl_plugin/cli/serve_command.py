# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``vllm serve`` commands: environment assignments in front, then vLLM's arguments."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cam_hccl_plugin.cli.allowed_plugins import VLLM_PLUGINS
from cam_hccl_plugin.cli.shell_words import split_commands
from cam_hccl_plugin.environment import HCCL_BUFFSIZE, LCCL_BUFFER_SIZE
from cam_hccl_plugin.errors import PlanError

DECISIVE_VARIABLES = (HCCL_BUFFSIZE, LCCL_BUFFER_SIZE, VLLM_PLUGINS)
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)")
_EXPORTED = re.compile(rf"{_NAME.pattern}(?:=(.*))?", re.DOTALL)
_ASSIGNMENT = re.compile(rf"{_NAME.pattern}=(.*)", re.DOTALL)
_API_SERVER = "vllm.entrypoints.openai.api_server"
_CLI_MODULES = ("vllm", "vllm.entrypoints.cli.main")
_SHOWN_WORDS = 6
_OWN_ENVIRONMENT = frozenset({"docker", "podman", "nerdctl", "kubectl", "ssh"})
_KEEPS_ENVIRONMENT = frozenset({"-E", "--preserve-env"})


@dataclass(frozen=True)
class ServeCommand:
    """One command: vLLM's arguments after ``serve``, and the variables set in front of it.

    ``passed`` are the caller's variables that reach it, where not all of them do.
    """

    label: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str | None]
    passed: frozenset[str] | None = None

    def variable(self, name: str, caller: Mapping[str, str]) -> str | None:
        """``name`` as the command will see it: its own assignment, else the caller's."""
        if name in self.environment:
            return self.environment[name]
        return caller.get(name) if self.passed is None or name in self.passed else None


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
    """The commands in shell text; ``export`` and ``unset`` lines hold for the commands below.

    Raises:
        PlanError: there is none, or a line is anything but a ``vllm serve`` command.
    """
    shell = _ShellVariables()
    found = []
    for words in split_commands(text):
        if not shell.take(words):
            command = _read(words, shell.exported)
            shell.check_reached(command)
            found.append(command)
    if not found:
        raise PlanError(
            "stdin holds no command; pipe vllm serve commands in, one per line, e.g. "
            "DRY_RUN=1 bash script | cam-hccl plan -"
        )
    return _numbered(found)


class _ShellVariables:
    """Variables that lines of their own set, and which of them a command gets to see."""

    def __init__(self) -> None:
        self.exported: dict[str, str | None] = {}
        self._own: dict[str, str] = {}

    def take(self, words: Sequence[str]) -> bool:
        """Whether ``words`` is such a line: ``export A=B C``, ``unset A`` or ``A=B``."""
        verb = words[0] if words[0] in ("export", "unset") else ""
        names = words[1:] if verb else words
        pattern = _NAME if verb == "unset" else _EXPORTED if verb else _ASSIGNMENT
        matches = [pattern.fullmatch(name) for name in names]
        if not matches or None in matches:
            return False
        for match in matches:
            if match is not None:
                self._set(verb, *match.groups())
        return True

    def _set(self, verb: str, name: str, value: str | None = None) -> None:
        if value is not None:
            self._own[name] = value
        if verb == "unset":
            self._own.pop(name, None)
            self.exported[name] = None
        elif name in self._own and (verb or name in self.exported):
            self.exported[name] = self._own[name]

    def check_reached(self, command: ServeCommand) -> None:
        """Refuse what looks as if it reached the command.

        Raises:
            PlanError: a variable that decides something is set and not exported.
        """
        for name in DECISIVE_VARIABLES:
            unseen = name not in self.exported and name not in command.environment
            if name in self._own and unseen:
                raise PlanError(
                    f"{name}={self._own[name]} on a line of its own does not reach the command; "
                    "write export in front of it, or leave it out"
                )


def read_stdin() -> str:
    """All of stdin as text.

    Raises:
        PlanError: stdin is a terminal, or no text.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise PlanError("- reads commands from stdin, which is closed or a terminal; pipe them in")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise PlanError(f"stdin is not text: {error}; pipe vllm serve commands in") from error


def _numbered(commands: list[ServeCommand]) -> list[ServeCommand]:
    if len(commands) == 1:
        return [replace(commands[0], label="the command")]
    return [
        replace(command, label=f"command {number}") for number, command in enumerate(commands, 1)
    ]


def _read(words: Sequence[str], exported: Mapping[str, str | None]) -> ServeCommand:
    start = _arguments_start(words)
    prefix = list(words[:start])
    if any(word in ("-i", "--ignore-environment") for word in prefix if "env" in prefix):
        raise PlanError(f"{_shown(words)}: env -i is not understood; write the variables out")
    environment: dict[str, str | None] = {}
    passed: set[str] = set()
    for before, word in zip(["", *prefix], prefix, strict=False):
        word = word.removeprefix("--env=")
        match = _ASSIGNMENT.fullmatch(word)
        if match:
            environment[match[1]] = match[2]
        elif before in ("-u", "--unset"):
            environment[word] = None
        elif word.startswith("--unset="):
            environment[word.partition("=")[2]] = None
        elif before in ("-e", "--env"):
            passed.add(word)
    arguments = tuple(words[start:])
    if _has_own_environment(prefix):
        handed = {name: exported[name] for name in passed if name in exported}
        return ServeCommand("", arguments, {**handed, **environment}, frozenset(passed))
    return ServeCommand("", arguments, {**exported, **environment})


def _has_own_environment(prefix: Sequence[str]) -> bool:
    """Whether the caller's variables stay behind."""
    programs = {os.path.basename(word) for word in prefix}
    sudo = "sudo" in programs and not _KEEPS_ENVIRONMENT.intersection(prefix)
    return sudo or bool(_OWN_ENVIRONMENT & programs)


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
    if words[0].startswith("-"):
        raise PlanError(
            f"{_shown(words)}: an option with no command in front, no vllm serve in it; the line "
            "before must end with a backslash, and no comment may stand between"
        )
    raise PlanError(
        f"{_shown(words)}: no vllm serve in it; leave this line out, or give what a script prints "
        "with DRY_RUN=1"
    )


def _shown(words: Sequence[str]) -> str:
    shown = " ".join(word if len(word) <= 40 else f"{word[:37]}..." for word in words)
    first = " ".join(shown.split(" ")[:_SHOWN_WORDS])
    return first if first == shown else f"{first} ..."
