# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Start a Python script with the real vLLM in it: bounded in time, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEAM_DOUBLE = HERE.parent / "seam_double"
_INHERITED_BUT_STEERING = ("PYTHONPATH", "VLLM_PLUGINS", "VLLM_LOGGING_LEVEL", "HCCL_BUFFSIZE")


@dataclass(frozen=True)
class Finished:
    """What a process left: exit status (None: killed at the timeout) and all it printed."""

    pid: int
    status: int | None
    output: str

    @property
    def ours(self) -> list[str]:
        """The lines that the plugin logged."""
        return [line for line in self.output.splitlines() if "cam_hccl: " in line]

    def require_success(self) -> None:
        """Fail with the output of the process unless it ended well."""
        assert self.status == 0, f"status {self.status} (None: timeout)\n{self.output[-6000:]}"


def environment(work: Path, **extra: str) -> dict[str, str]:
    """The environment of a user who set nothing, offline, with its caches below ``work``."""
    kept = {k: v for k, v in os.environ.items() if k not in _INHERITED_BUT_STEERING}
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(work / "vllm_cache"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        **extra,
    }


def run_script(
    script: str, arguments: list[str], work: Path, *, timeout_s: float, **extra: str
) -> Finished:
    """Run ``script`` of this folder in ``work``, where no source tree is on the module path.

    Its whole process group is killed at the timeout and whenever this returns.
    """
    work.mkdir(parents=True, exist_ok=True)
    log = work / f"{Path(script).stem}.log"
    with log.open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, str(HERE / script), *arguments],
            cwd=work,
            env=environment(work, **extra),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end_group(process)
    return Finished(process.pid, status, log.read_text(encoding="utf-8", errors="replace"))


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
