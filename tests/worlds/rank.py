# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What one rank of a world does, in a process forked from the warmed one.

Steps (``do``): ``create``, ``init`` and ``close`` a ``connector`` (its index);
``destroy_all`` process groups; ``setenv`` a ``name`` to ``value`` (null removes it);
``plain_group`` makes an HCCL group ``name`` through the connector module's function, outside
any connector's initialisation, with a ``backend`` and an ``hccl_config`` if given;
``operators`` registers operators without a kernel (``names``) in a ``namespace`` of
``torch.ops``; ``leave`` ends the ranks of a ``role`` without a word; ``make_one_more`` lets the
class of a ``connector`` make a group ``name`` more in its init, with a ``backend`` and, by ``way``,
by its module's name (``name``), in a ``thread`` or through the defining ``module``.
``"expect_error": true`` records the exception and goes on; ``"only": role`` leaves a step to the
ranks of one role.  All ranks meet before each step.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import resource
import sys
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

from worlds import stage

PLUGIN_LOGGER = "vllm.cam_hccl"


class _Lines(logging.Handler):
    """Keeps level and text of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


class Meeting:
    """A barrier of all ranks over a file, independent of the groups under test."""

    def __init__(self, folder: Path, size: int, deadline: float) -> None:
        from torch.distributed import FileStore

        self._store = FileStore(str(folder / "meeting"), size)
        self._size = size
        self._deadline = deadline

    def wait(self, name: str) -> None:
        """Return when every rank has come here; TimeoutError at the deadline."""
        self._store.add(name, 1)
        while self._store.add(name, 0) < self._size:
            if time.monotonic() > self._deadline:
                raise TimeoutError(f"the other ranks did not reach {name!r}")
            time.sleep(0.005)


class Rank:
    """One rank: takes the steps in order and keeps what it sees."""

    def __init__(self, world: dict[str, Any], index: int, folder: Path) -> None:
        self.world, self.index, self.folder = world, index, folder
        self.role = "attention" if index < world["attention_ranks"] else "ffn"
        self.connectors: dict[int, Any] = {}
        self.errors: list[dict[str, Any]] = []
        self.initialized: list[bool] = []
        self.environ_before: dict[str, str] = dict(os.environ)
        self.log = _Lines()
        self.groups = stage.GroupWatch()
        self.libraries: list[Any] = []

    def prepare(self) -> None:
        """Environment, logging, plugins as vLLM loads them, the worker's own group."""
        os.environ.update(self.world["env"] | self.world["env_by_role"].get(self.role, {}))
        os.environ["CAM_HCCL_SHIM_LOG"] = str(self.folder / "communicators.jsonl")
        os.environ["SEAM_DOUBLE_GENERATION"] = self.world["generation"]
        self.environ_before = dict(os.environ)
        stage.configure_logging()
        logger = logging.getLogger(PLUGIN_LOGGER)
        logger.addHandler(self.log)
        if self.world["log_level"]:
            logger.setLevel(self.world["log_level"])
        stage.put_afd_plugin_on_path(self.folder, self.world["upstream"])
        self.groups.start()

        if self.world["afd_before_plugins"]:
            importlib.import_module("afd_plugin.connectors.factory")

        from vllm.plugins import load_general_plugins

        load_general_plugins()
        import torch

        torch.npu.set_device(self._role_rank())
        if self.world["own_group"]:
            self._make_own_group()

    def _make_own_group(self) -> None:
        import torch.distributed as dist

        dist.init_process_group(
            "hccl",
            init_method=f"file://{self.folder / 'default_group'}",
            world_size=self.world_size,
            rank=self.index,
            timeout=timedelta(seconds=self.world["timeout_seconds"]),
        )
        self.groups.note_default()

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self.world["attention_ranks"] + self.world["ffn_ranks"]

    def _role_rank(self) -> int:
        return self.index - (self.world["attention_ranks"] if self.role == "ffn" else 0)

    def step_create(self, step: dict[str, Any]) -> None:
        from afd_plugin.connectors.factory import AFDConnectorFactory

        number = step["connector"]
        spec = self.world["connectors"][number]
        config = stage.vllm_config(self.world, spec, self.role, self._role_rank())
        within_dp_group = self._role_rank() % spec["tensor_parallel"]
        self.connectors[number] = AFDConnectorFactory.create_connector(
            within_dp_group, self._role_rank(), config
        )

    def step_init(self, step: dict[str, Any]) -> None:
        connector = self.connectors[step["connector"]]
        if self.world["upstream"]:
            stage.neutralise_operator_checks(connector)
        stage.give_caller_options(connector, self.world, self.groups)
        try:
            connector.init_afd_connector()
        finally:
            self.initialized.append(connector.is_initialized)
            self.groups.read_back()

    def step_close(self, step: dict[str, Any]) -> None:
        self.connectors[step["connector"]].close()

    def step_destroy_all(self, step: dict[str, Any]) -> None:
        import torch.distributed as dist

        dist.destroy_process_group()

    def step_setenv(self, step: dict[str, Any]) -> None:
        if step["value"] is None:
            os.environ.pop(step["name"], None)
        else:
            os.environ[step["name"]] = step["value"]
        self.environ_before = dict(os.environ)

    def step_operators(self, step: dict[str, Any]) -> None:
        from torch.library import Library

        library = Library(step["namespace"], "FRAGMENT")
        for name in step["names"]:
            library.define(f"{name}(Tensor x) -> Tensor")
        self.libraries.append(library)

    def step_leave(self, step: dict[str, Any]) -> None:
        if self.role == step["role"]:
            os._exit(3)

    def step_make_one_more(self, step: dict[str, Any]) -> None:
        connector_class = type(self.connectors[step["connector"]])
        before = connector_class.init_afd_connector
        owner = sys.modules[connector_class.__module__]
        if step["way"] == "module":
            owner = importlib.import_module("afd_plugin.distributed.afd_process_group")

        def init_afd_connector(connector: Any) -> None:
            before(connector)
            if step["way"] != "thread":
                self._make_group(owner, step)
                return
            thread = threading.Thread(target=self._make_group, args=(owner, step))
            thread.start()
            thread.join()

        connector_class.init_afd_connector = init_afd_connector

    def step_plain_group(self, step: dict[str, Any]) -> None:
        connector = self.connectors[step["connector"]]
        self._make_group(sys.modules[type(connector).__module__], step)

    def _make_group(self, module: Any, step: dict[str, Any]) -> None:
        import torch

        port = self.world["ports"][0 if self.world["one_port"] else -1]
        group = module.init_afd_process_group(
            backend=step.get("backend", "hccl"),
            init_method=f"tcp://127.0.0.1:{port}",
            world_size=self.world_size,
            rank=self.index,
            group_name=step["name"],
            timeout=timedelta(seconds=self.world["timeout_seconds"]),
            pg_options=stage.hccl_options(step.get("hccl_config")),
        )
        group._get_backend(torch.device("npu")).get_hccl_comm_name(self.index)
        self.groups.read_back()

    def take(self, step: dict[str, Any]) -> None:
        """Take one step; an exception is recorded, and raised again unless expected."""
        if step.get("only") not in (None, self.role):
            return
        try:
            getattr(self, f"step_{step['do']}")(step)
        except Exception as error:
            since_group = time.monotonic() - self.groups.last_created
            self.errors.append(_described(step, error) | {"seconds_since_group": since_group})
            if not step.get("expect_error"):
                raise
        else:
            if step.get("expect_error"):
                raise AssertionError(f"the step {step} was to fail")

    def report(self) -> dict[str, Any]:
        """Everything a test may look at, as JSON values."""
        before, after = self.environ_before, dict(os.environ)
        return {
            "rank": self.index,
            "pid": os.getpid(),
            "role": self.role,
            "groups": self.groups.seen,
            "caller_options_after": [dict(o.hccl_config) for o in self.groups.caller_options],
            "logs": self.log.lines,
            "errors": self.errors,
            "hccl_buffsize": [env.get("HCCL_BUFFSIZE") for env in (before, after)],
            "environ_changed": sorted(
                key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
            ),
            "plugin_loaded": "cam_hccl_plugin" in sys.modules,
            "initialized": self.initialized,
            "groups_left": stage.group_names(),
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "private_mib": stage.private_mib(),
        }


def _described(step: dict[str, Any], error: BaseException) -> dict[str, Any]:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return {
        "step": step,
        "type": type(error).__name__,
        "message": str(error),
        "notes": list(getattr(error, "__notes__", [])),
        "chain": [f"{type(e).__name__}: {e}" for e in chain],
        "traceback": "".join(traceback.format_exception(error)),
    }


def run(world: dict[str, Any], index: int, folder: Path) -> int:
    """Run one rank to its end and leave its report in ``folder``; returns exit status 0."""
    deadline = time.monotonic() + world["timeout_seconds"]
    rank = Rank(world, index, folder)
    meeting = Meeting(folder, rank.world_size, deadline)
    try:
        rank.prepare()
        for number, step in enumerate(world["steps"]):
            meeting.wait(f"step{number}")
            rank.take(step)
        meeting.wait("end")
    finally:
        report = json.dumps(rank.report())
        (folder / f"rank{index}.part").write_text(report)
        (folder / f"rank{index}.part").rename(folder / f"rank{index}.json")
    return 0
