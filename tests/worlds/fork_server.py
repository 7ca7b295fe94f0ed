# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The warmed process: imports torch, torch_npu and vLLM once and forks ranks from there.

Started by ``client.py``.  Speaks JSON lines: a first line when it is warm, then one answer for
each request.  A request is a world (``{"world": ..., "folder": ...}``) or a probe
(``{"probe": name, "arguments": ..., "env": ..., "folder": ...}``).  No plugin is imported here.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LISTENING_PORTS = range(12000, 32000)


def _warm_up() -> None:
    import torch
    import torch_npu
    import vllm.distributed.parallel_state
    import vllm.forward_context
    import vllm.plugins
    import vllm.utils.torch_utils  # noqa: F401  (warmed for the ranks)

    if torch.npu.is_initialized() or not torch_npu.__version__:
        raise RuntimeError("the warmed process must not have touched the device")
    torch.set_num_threads(1)


def _free_ports(count: int) -> list[int]:
    """Ports to listen on; from below the range that outgoing connections are given."""
    ports: list[int] = []
    for port in random.sample(_LISTENING_PORTS, 200):
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError(f"found no {count} free ports")


def _fork(log: Path, channel: int, work: Callable[[], int]) -> int:
    """Run ``work`` in a child whose output goes to ``log``; returns its process id."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.close(channel)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait_for(pids: list[int], seconds: float, grace: float = 0.0) -> list[str]:
    """Wait for all children, within limits; says of each how it ended.

    When one ends badly the others get a short grace, then they are killed, and so is
    everybody at the deadline: a world never hangs.
    """
    ends: dict[int, str] = {}
    deadline = time.monotonic() + seconds
    while len(ends) < len(pids):
        for pid in pids:
            if pid in ends:
                continue
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                ends[pid] = "ok" if code == 0 else f"exit status {code}"
                if code:
                    deadline = min(deadline, time.monotonic() + grace)
        if time.monotonic() > deadline:
            for pid in pids:
                if pid not in ends:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    ends[pid] = "killed: still running when another had failed or time was up"
        time.sleep(0.01)
    return [ends[pid] for pid in pids]


def _run_world(request: dict[str, Any], channel: int) -> dict[str, Any]:
    from worlds import rank

    world, folder = request["world"], Path(request["folder"])
    world["ports"] = _free_ports(len(world["connectors"]) + 1)
    size = world["attention_ranks"] + world["ffn_ranks"]
    pids = [
        _fork(folder / f"rank{i}.log", channel, lambda i=i: rank.run(world, i, folder))
        for i in range(size)
    ]
    return {"ends": _wait_for(pids, world["timeout_seconds"] + 5, world["grace_seconds"])}


def _run_probe(request: dict[str, Any], channel: int) -> dict[str, Any]:
    from worlds import probes

    folder = Path(request["folder"])

    def work() -> int:
        os.environ.update(request["env"])
        os.environ["CAM_HCCL_SHIM_LOG"] = str(folder / "communicators.jsonl")
        result = getattr(probes, request["probe"])(**request["arguments"])
        (folder / "probe.json").write_text(json.dumps(result))
        return 0

    pid = _fork(folder / "probe.log", channel, work)
    return {"ends": _wait_for([pid], request["timeout_seconds"])}


def main() -> None:
    """Warm up, then serve until the other end closes."""
    channel = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(channel, False)
    started = time.monotonic()
    _warm_up()
    gc.collect()
    gc.freeze()
    with os.fdopen(channel, "w") as answers:
        print(json.dumps({"warm_seconds": time.monotonic() - started}), file=answers, flush=True)
        for line in sys.stdin:
            request, start = json.loads(line), time.monotonic()
            serve = _run_world if "world" in request else _run_probe
            answer = serve(request, channel)
            answer["seconds"] = time.monotonic() - start
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
