# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Start the warmed process and run worlds and probes in it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cann_shim.recording import CommunicatorCall, attempted, destroyed, read_recording
from cann_shim.surroundings import add_torch_npu
from worlds.model import Group, RankReport, World, WorldReport

_TESTS = Path(__file__).resolve().parent.parent
_WARM_UP_SECONDS = 180.0
_LOG_TAIL = 6000
#: What torch calls the group of init_process_group.
_DEFAULT_GROUP_NAME = "0"


class WorldFailed(AssertionError):
    """A rank did not come to its end; the message holds the logs of those that failed."""


class WarmedProcess:
    """A process with the real torch-npu over the shim, and vLLM, ready to fork ranks.

    ``extra_path`` is put on its module path.  Variables of HCCL and of the shim do not leak in
    from the caller's environment.
    """

    def __init__(self, torch_npu_folder: Path, extra_path: tuple[str, ...] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cam-hccl-worlds-")
        self._count = 0
        self._log = Path(self._folder.name, "server.log")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HCCL_", "CAM_HCCL_"))}
        kept.pop("VLLM_PLUGINS", None)
        add_torch_npu(kept, torch_npu_folder, str(_TESTS), *extra_path)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "worlds.fork_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=kept,
                cwd=self._folder.name,
            )
        self.warm_seconds: float = self._answer(_WARM_UP_SECONDS)["warm_seconds"]

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self._process.kill()
            self._process.wait()
            raise WorldFailed(f"the warmed process gave no answer:\n{_tail(self._log)}")
        return json.loads(line)

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer(seconds)

    def _new_folder(self) -> Path:
        self._count += 1
        folder = Path(self._folder.name, f"run{self._count}")
        folder.mkdir()
        return folder

    def run(self, world: World, *, may_fail: bool = False) -> WorldReport:
        """Run ``world``; unless ``may_fail``, a rank that did not end well is WorldFailed.

        With ``may_fail`` ranks that had to be killed are missing in the report; one must be left.
        """
        folder = self._new_folder()
        answer = self._ask(
            {"world": world.to_json(), "folder": str(folder)}, world.timeout_seconds + 30
        )
        ends = answer["ends"]
        told = [file for i in range(world.size) if (file := folder / f"rank{i}.json").exists()]
        if set(ends) != {"ok"} and not (may_fail and told):
            raise WorldFailed(_failure_text(folder, ends))
        calls = read_recording(folder / "communicators.jsonl")
        reports = [json.loads(file.read_text()) for file in told]
        return WorldReport(tuple(_rank_report(r, calls) for r in reports), answer["seconds"])

    def probe(
        self, name: str, *, env: dict[str, str] | None = None, seconds: float = 30, **arguments: Any
    ) -> tuple[Any, list[CommunicatorCall]]:
        """Run the function ``name`` of ``probes.py`` in a forked process of its own."""
        folder = self._new_folder()
        request = {"probe": name, "arguments": arguments, "env": env or {}}
        request |= {"folder": str(folder), "timeout_seconds": seconds}
        ends = self._ask(request, seconds + 10)["ends"]
        if ends != ["ok"]:
            raise WorldFailed(f"probe {name}: {ends[0]}\n{_tail(folder / 'probe.log')}")
        result = json.loads((folder / "probe.json").read_text())
        return result, read_recording(folder / "communicators.jsonl")

    def close(self) -> None:
        """End the warmed process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-_LOG_TAIL:] if path.exists() else "(no log)"


def _failure_text(folder: Path, ends: list[str]) -> str:
    parts = []
    for index, end in enumerate(ends):
        parts.append(f"rank {index}: {end}")
        if end.startswith("exit"):
            parts.append(_tail(folder / f"rank{index}.log"))
    if not any(end.startswith("exit") for end in ends):
        parts += [_tail(folder / f"rank{index}.log") for index in range(len(ends))]
    return "\n".join(parts)


def _rank_report(raw: dict[str, Any], calls: list[CommunicatorCall]) -> RankReport:
    pid = raw.pop("pid")
    own = [call for call in calls if call.pid == pid]
    # A name may be used again after the group is gone: the n-th group has the n-th call.
    made: dict[str, list[CommunicatorCall]] = {}
    for call in attempted(own):
        made.setdefault(call.group_name, []).append(call)
    groups = []
    for entry in raw.pop("groups"):
        name = _DEFAULT_GROUP_NAME if entry["name"] == "default" else entry["name"]
        call = made[name].pop(0) if made.get(name) else None
        succeeded = call is not None and call.result == 0
        size = call.buffer_size_mb if succeeded else None
        mode = call.op_expansion_mode if succeeded else None
        groups.append(Group(**entry, struct_mb=size, struct_op_expansion_mode=mode))
    gone = tuple(call.group_name for call in destroyed(own))
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in raw.items()}
    return RankReport(**values, groups=tuple(groups), destroyed=gone)
