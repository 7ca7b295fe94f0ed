# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Runs the launch scripts under ``recipes/`` and reads the commands that they print."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
SCRIPTS = sorted(RECIPES.rglob("*.sh"))

_ASYNC = "npu/CAMAsyncAFDConnector/deepseek_v3_2/v0_26_accuracy"
_CAMP2P = "npu/CAMP2pAFDConnector/deepseek_v3_2"
ASYNC_ATTENTION, ASYNC_FFN = f"{_ASYNC}/attention.sh", f"{_ASYNC}/ffn.sh"
CAMP2P_ATTENTION, CAMP2P_FFN = f"{_CAMP2P}/attention.sh", f"{_CAMP2P}/ffn.sh"

_EVERY = {
    "MODEL_PATH": "/models/DeepSeek-V3.2-W8A8",
    "LOCAL_IP": "10.0.0.2",
    "NIC_NAME": "eth0",
    "AFD_HOST": "10.0.0.1",
}
_DECODE = {**_EVERY, "ATTENTION_RANKS": "48", "INPUT_LENGTH": "16384"}
NEEDED: Mapping[str, Mapping[str, str]] = {
    ASYNC_ATTENTION: _EVERY,
    ASYNC_FFN: _EVERY,
    CAMP2P_ATTENTION: {**_DECODE, "DP_START_RANK": "0", "DP_ADDRESS": "10.0.0.3"},
    CAMP2P_FFN: _DECODE,
}
"""Each script with a value for every variable that it cannot do without."""


@dataclass(frozen=True)
class Command:
    """A printed command: its ``env`` words and the arguments of ``vllm``."""

    environment: Mapping[str, str]
    arguments: tuple[str, ...]

    @property
    def options(self) -> dict[str, str]:
        """``vllm serve`` options; one without a value holds ""."""
        words = self.arguments[2:]
        return {
            word: "" if value is None or value.startswith("--") else value
            for word, value in zip(words, [*words[1:], None], strict=True)
            if word.startswith("--")
        }

    @property
    def additional_config(self) -> dict[str, Any]:
        return json.loads(self.options["--additional-config"])

    @property
    def tokens(self) -> int:
        return int(self.options["--max-num-batched-tokens"])


@dataclass(frozen=True)
class Launch:
    """One script with its variables and its own arguments."""

    script: str
    variables: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()

    def __str__(self) -> str:
        given = [f"{k}={v}" for k, v in self.variables.items() if v != NEEDED[self.script].get(k)]
        return " ".join([self.script.split("/", 1)[1], *given])

    def with_variables(self, **changes: str) -> Launch:
        return Launch(self.script, {**self.variables, **changes}, self.arguments)

    def with_arguments(self, *arguments: str) -> Launch:
        return Launch(self.script, self.variables, arguments)

    def without(self, name: str) -> Launch:
        rest = {k: v for k, v in self.variables.items() if k != name}
        return Launch(self.script, rest, self.arguments)

    def run(
        self, *, dry: bool = True, path: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it with nothing else in the environment; ``path`` comes first on PATH."""
        search = os.pathsep.join([*([str(path)] if path else []), os.environ["PATH"]])
        environment = {"PATH": search, **({"DRY_RUN": "1"} if dry else {}), **self.variables}
        return subprocess.run(
            ["bash", str(RECIPES / self.script), *self.arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
        )

    def command(self) -> Command:
        """What it prints with ``DRY_RUN=1``."""
        done = self.run()
        assert (done.returncode, done.stderr) == (0, "")
        return read_command(done.stdout)


def read_command(line: str) -> Command:
    """Read one printed line: env NAME=VALUE ... vllm serve MODEL ..."""
    words = shlex.split(line)
    assert words[0] == "env"
    start = words.index("vllm")
    pairs = [word.split("=", 1) for word in words[1:start]]
    return Command(dict(pairs), tuple(words[start:]))


def needed(script: str) -> Launch:
    """The script with what it needs and nothing more."""
    return Launch(script, NEEDED[script])


def allowed_launches() -> list[Launch]:
    """Every script over its allowed ranks, start ranks, lengths and splits."""
    launches = []
    for script in (ASYNC_ATTENTION, ASYNC_FFN):
        launches += [needed(script).with_variables(ASYNC_MOE_SPLIT=s) for s in ("token", "request")]
    for ranks, starts in (("48", ("0", "16", "32")), ("64", ("0", "16", "32", "48"))):
        for length in ("16384", "32768"):
            changes = {"ATTENTION_RANKS": ranks, "INPUT_LENGTH": length}
            launches.append(needed(CAMP2P_FFN).with_variables(**changes))
            launches += [
                needed(CAMP2P_ATTENTION).with_variables(DP_START_RANK=start, **changes)
                for start in starts
            ]
    return launches
