# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``python -m benchmarks.in_torch_npu RUNS``: a whole start on the real torch-npu over the shim.

One process, a real HCCL group of one rank for each group that a connector asks for, on a real
TCPStore; vLLM loads the plugins by their entry points.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.counting import CountingStore
from benchmarks.timing import answer
from benchmarks.wrappers import our_attributes
from worlds.model import ASYNC, CAMP2P, Connector, World
from worlds.stage import put_afd_plugin_on_path, vllm_config

_EXAMPLES = {ASYNC: "attention", CAMP2P: "ffn"}
"""Connector and the role that is rank 0 of its groups."""


class Groups:
    """Creates groups of one rank in place of the double's, and takes the time of that."""

    def __init__(self) -> None:
        from torch.distributed import TCPStore

        seconds = timedelta(seconds=60)
        self._store = TCPStore("127.0.0.1", 0, None, True, seconds, wait_for_workers=False)
        self._made = 0
        self.inside_ms = 0.0
        self.counting: list[CountingStore] = []

    def create(
        self, *, backend: str, group_name: str, timeout: timedelta, pg_options: Any = None, **_: Any
    ) -> Any:
        """What ``create_group`` of the double does, for a world of one."""
        from torch.distributed import Backend, PrefixStore, distributed_c10d

        start = time.perf_counter()
        self._made += 1
        store = PrefixStore(f"{self._made}/{group_name}", self._store)
        group, _ = distributed_c10d._new_process_group_helper(
            1,
            0,
            [],
            Backend(backend),
            store,
            group_name=group_name,
            backend_options=pg_options,
            timeout=timeout,
        )
        world = distributed_c10d._world
        world.pg_group_ranks[group] = {0: 0}
        self.counting.append(CountingStore(store))
        world.pg_map[group] = (world.pg_map[group][0], self.counting[-1])
        self.inside_ms = (time.perf_counter() - start) * 1e3
        return group


def _prepare(folder: Path) -> Groups:
    put_afd_plugin_on_path(folder, None)
    import torch
    import torch.distributed as dist
    import torch_npu  # noqa: F401 - provides the backend

    # The parts of vLLM that a worker has loaded, its plugins among them.
    import vllm.engine.arg_utils
    import vllm.v1.worker.gpu_worker  # noqa: F401 - for the count of what was looked at
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    torch.npu.set_device(0)
    dist.init_process_group("hccl", store=dist.HashStore(), world_size=1, rank=0)
    from afd_plugin.distributed import afd_process_group

    groups = Groups()
    afd_process_group.create_group = groups.create
    return groups


def _connector(name: str) -> tuple[Any, float]:
    """A fresh connector, and the milliseconds that its creation took."""
    from afd_plugin.connectors.factory import AFDConnectorFactory

    spec = Connector(name=name, num_ubatches=2 if name == CAMP2P else 0)
    world = World(2, 2, (spec,)).to_json() | {"ports": [0, 0]}
    config = vllm_config(world, world["connectors"][0], _EXAMPLES[name], 0)
    start = time.perf_counter()
    connector = AFDConnectorFactory.create_connector(0, 0, config)
    return connector, (time.perf_counter() - start) * 1e3


def _clock_groups(connector: Any, groups: Groups, taken: list[tuple[str, float]]) -> None:
    """Put a clock around the hooked group creation of the connector's module."""
    module = sys.modules[type(connector).__module__]
    hooked = module.init_afd_process_group

    def clocked(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        group = hooked(*args, **kwargs)
        taken.append((kwargs["group_name"], (time.perf_counter() - start) * 1e3 - groups.inside_ms))
        return group

    clocked.__wrapped__ = hooked
    module.init_afd_process_group = clocked


def _clock_report(taken: list[float]) -> None:
    from cam_hccl_plugin.connector_start import ConnectorStart

    report = ConnectorStart._report

    def clocked(self: ConnectorStart) -> None:
        start = time.perf_counter()
        report(self)
        taken.append((time.perf_counter() - start) * 1e3)

    ConnectorStart._report = clocked


def _medians(taken: list[tuple[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for name, _ in taken)
    return {name: statistics.median(ms for n, ms in taken if n == name) for name in names}


def main() -> None:
    """Start both connectors once and look for wrappers; then start them again and again."""
    runs = int(sys.argv[1])
    result: dict[str, Any] = {"starts": {}}
    with tempfile.TemporaryDirectory() as folder:
        groups = _prepare(Path(folder))
        connectors = {name: _connector(name) for name in _EXAMPLES}
        for connector, _ in connectors.values():
            connector.init_afd_connector()
        result["ours"], result["looked"] = our_attributes()
        result["on_instances"] = {
            name: [key for key, value in vars(connector).items() if _ours(value)]
            for name, (connector, _) in connectors.items()
        }
        report_ms: list[float] = []
        _clock_report(report_ms)
        for name, (connector, first_ms) in connectors.items():
            result["starts"][name] = _repeat(name, connector, groups, report_ms, runs)
            result["starts"][name]["first_create_ms"] = first_ms
    answer(result)


def _ours(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] == "cam_hccl_plugin"


def _repeat(
    name: str, connector: Any, groups: Groups, report_ms: list[float], runs: int
) -> dict[str, Any]:
    group_ms: list[tuple[str, float]] = []
    create_ms = [_connector(name)[1] for _ in range(runs)]
    _clock_groups(connector, groups, group_ms)
    report_ms.clear()
    groups.counting.clear()
    for _ in range(runs):
        connector.close()
        connector.init_afd_connector()
    calls: Counter[str] = Counter()
    for store in groups.counting:
        calls += store.calls
    return {
        "create_ms": statistics.median(create_ms),
        "group_ms": _medians(group_ms),
        "report_ms": statistics.median(report_ms),
        "store_calls": dict(calls),
        "inits": runs,
    }


if __name__ == "__main__":
    main()
