# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Checks that import foreign libraries, in a process of their own and bounded in time.

Importing torch_npu can end a process where the CANN libraries do not fit; the doctor must
live to say so. Run as a module with the probe's name, it is that process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

from cam_hccl_plugin.cli.own_process import python_process
from cam_hccl_plugin.errors import CamHcclError

TIMEOUT_SECONDS = 120
_SIZE_MIB = 256


@dataclass(frozen=True)
class ProbeResult:
    """What a probe found, or what went wrong."""

    found: str = ""
    problem: str = ""


def run_probe(name: str, timeout_seconds: float = TIMEOUT_SECONDS) -> ProbeResult:
    """Run one probe; whatever happens to its process becomes a sentence."""
    process = python_process(__name__, name)
    try:
        done = subprocess.run(
            process,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ProbeResult(problem=f"no answer within {timeout_seconds:g} s")
    except OSError as error:
        return ProbeResult(problem=str(error))
    try:
        answer = json.loads(done.stdout.decode("utf-8", "replace"))
        return ProbeResult(str(answer["found"]), str(answer["problem"]))
    except (ValueError, KeyError, TypeError):
        return ProbeResult(problem=_death(done.returncode, done.stderr))


def _death(status: int, stderr: bytes) -> str:
    last = stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    detail = f": {last[0]}" if last else ""
    if status >= 0:
        return f"the check ended with status {status}{detail}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"the check crashed ({name}){detail}"


def _seam() -> str:
    from cam_hccl_plugin.cli.seam_probe import probe_seam

    return probe_seam()


def _options() -> str:
    from cam_hccl_plugin.hccl_options import BUFFER_KEY, explicit_size, sized_options

    held = explicit_size(sized_options(_SIZE_MIB, None))
    if held != _SIZE_MIB:
        raise RuntimeError(f"{BUFFER_KEY} {_SIZE_MIB} is read back as {held!r}")
    return f"ProcessGroupHCCL.Options holds {BUFFER_KEY}"


_PROBES = {"seam": _seam, "options": _options}


def _main(name: str) -> None:
    """Answer on the real stdout; what the libraries print meanwhile goes to stderr.

    The broad ``except`` is the boundary to foreign code: any failure is an answer.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        answer = {"found": _PROBES[name](), "problem": ""}
    except CamHcclError as error:
        answer = {"found": "", "problem": str(error)}
    except Exception as error:
        answer = {"found": "", "problem": f"{type(error).__name__}: {error}"}
    json.dump(answer, answers)
    answers.flush()
    os._exit(0)  # libraries may hang or crash while they are unloaded; the answer is out


if __name__ == "__main__":
    _main(sys.argv[1])
