# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Section 3: wall time of ``cam-hccl plan``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.table import Figures, Table, Target
from benchmarks.timing import TIMES_COLUMNS, Times, time_command

_DEPLOYMENT = (
    "plan --connector CAMAsyncAFDConnector --hidden-size 7168 --topk 8 --routed-experts 256 "
    "--attention-ranks 16 --ffn-ranks 16 --max-num-batched-tokens 8192 --npus-per-dp-group 8 "
    "--dynamic-quant 1 --hccl-buffsize 4096 --device-memory-gib 64"
).split()
_TARGET_MS = 150.0
_HELP_RUNS = 3


def _pythons() -> dict[str, str]:
    """The interpreters to try, by what is installed beside the package."""
    found = {"beside vLLM": sys.executable}
    light = os.environ.get("CAM_HCCL_LIGHT_PYTHON")
    if light:
        found = {"alone": light, **found}
    return found


def measure(runs: int) -> Figures:
    """Time the command against an empty start of the same Python, and vLLM's own help."""
    times: dict[str, Times] = {}
    commands: dict[str, list[str]] = {}
    for where, python in _pythons().items():
        script = str(Path(python).with_name("cam-hccl"))
        commands[f"python -c pass, {where}"] = [python, "-c", "pass"]
        commands[f"cam-hccl plan, {where}"] = [script, *_DEPLOYMENT]
        commands[f"cam-hccl plan --json, {where}"] = [script, *_DEPLOYMENT, "--json"]
    for name, command in commands.items():
        time_command(command, 1)  # bytecode and file cache
        times[name] = time_command(command, runs)
    # The module behind the console script `vllm`, which a layered environment may not have.
    vllm = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "--help"]
    times["vllm serve --help"] = time_command(vllm, _HELP_RUNS)
    rows = [(name, *each.row()) for name, each in times.items()]
    table = Table(
        "plan", "Wall time of cam-hccl plan", {"command": "command", **TIMES_COLUMNS}, rows
    )
    targets = [
        Target(name, each.row()[0], _TARGET_MS, "ms")
        for name, each in times.items()
        if name.startswith("cam-hccl plan, ")
    ]
    return Figures([table], targets)
