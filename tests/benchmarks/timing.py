# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Clocks: a function, a process, and a child that answers in JSON."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Times:
    """Wall and processor time of the runs of one command, in milliseconds.

    Processor time (user and system, children included) hardly depends on what else the
    machine does; wall time does.
    """

    wall_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]

    def row(self) -> tuple[float, float, float, int]:
        """Median and smallest wall time, median processor time, number of runs."""
        median = statistics.median
        return median(self.wall_ms), min(self.wall_ms), median(self.cpu_ms), len(self.wall_ms)


TIMES_COLUMNS = {
    "wall_median_ms": "median ms",
    "wall_min_ms": "min ms",
    "cpu_median_ms": "CPU ms",
    "runs": "runs",
}


def time_command(command: Sequence[str], runs: int, env: dict[str, str] | None = None) -> Times:
    """Start ``command`` anew ``runs`` times; its output is dropped.

    Raises:
        RuntimeError: it ended with a status other than 0.
    """
    wall, cpu = [], []
    null = subprocess.DEVNULL
    for _ in range(runs):
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        wall.append((time.perf_counter() - start) * 1e3)
        cpu.append((usage.ru_utime + usage.ru_stime) * 1e3)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"exit status {process.returncode}: {' '.join(command)}")
    return Times(tuple(wall), tuple(cpu))


def median_us(function: Callable[[], Any], runs: int) -> float:
    """Median duration of one call, in microseconds."""
    durations = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        function()
        durations.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(durations)


_ANSWER = "answer: "


def ask_module(module: str, *arguments: str, env: dict[str, str]) -> Any:
    """Run ``python -m module`` and return what it gave to :func:`answer`.

    Raises:
        RuntimeError: it failed; the message ends with its output.
    """
    run = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith(_ANSWER)]
    if run.returncode or not lines:
        raise RuntimeError(
            f"{module} failed ({run.returncode})\n{(run.stdout + run.stderr)[-6000:]}"
        )
    return json.loads(lines[-1].removeprefix(_ANSWER))


def answer(value: Any) -> None:
    """Give ``value`` to the process that asked with :func:`ask_module`."""
    print(_ANSWER + json.dumps(value), flush=True)
