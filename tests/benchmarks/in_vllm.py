# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``python -m benchmarks.in_vllm SCENARIO``: register() in a process that has the real vLLM.

One run is one fresh process in which nothing of the plugin was imported before, as in the
processes that vLLM starts. Not a fork: there every page that is touched first has to be
copied, which made the same work half as slow again.
"""

from __future__ import annotations

import gc
import importlib
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

from benchmarks.timing import answer
from worlds.model import ASYNC, Connector, World
from worlds.stage import vllm_config

_CONNECTOR_MODULE = "afd_plugin.connectors.npu.async_cam"


class _Laps:
    """Milliseconds from lap to lap, wall and processor time, and the modules that came."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[float, float]] = {}
        self.modules: dict[str, list[str]] = {}
        self._known = set(sys.modules)
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def lap(self, name: str) -> None:
        """End the lap ``name``."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.values[name] = (wall - self._wall) * 1e3, (cpu - self._cpu) * 1e3
        self.modules[name] = sorted(set(sys.modules) - self._known)
        self._known = set(sys.modules)
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def answer(self) -> dict[str, Any]:
        """Both, by lap."""
        return {"laps": self.values, "modules": self.modules}


def _register(laps: _Laps) -> None:
    from cam_hccl_plugin import register

    register()
    laps.lap("register")


def _launch(flag: dict[str, Any] | None) -> Any:
    """A VllmConfig stand-in of an Attention rank of the Async recipe."""
    connector = Connector(
        name=ASYNC, flag=flag, tensor_parallel=8, extra={"dynamicQuant": 1, "attn_ranks_per_dp": 8}
    )
    world = World(16, 16, (connector,)).to_json() | {"ports": [0, 0]}
    return vllm_config(world, world["connectors"][0], "attention", 0)


def off() -> dict[str, Any]:
    """A process without AFD and without the flag."""
    laps = _Laps()
    _register(laps)
    sys.modules["vllm.engine.arg_utils"].EngineArgs.create_engine_config(object())
    laps.lap("launch check")
    return laps.answer()


def worker(flag: dict[str, Any] | None) -> dict[str, Any]:
    """A worker of an AFD deployment: register, then create_connector, afd-plugin loaded before."""
    factory = importlib.import_module("afd_plugin.connectors.factory").AFDConnectorFactory
    importlib.import_module(_CONNECTOR_MODULE)
    launch = _launch(flag)
    factory.create_connector(0, 0, launch)  # what it costs without us is below a tenth of a ms
    laps = _Laps()
    _register(laps)
    factory.create_connector(0, 0, launch)
    laps.lap("create_connector")
    return laps.answer()


def _torch_npu() -> ModuleType:
    """What create_connector asks torch-npu for; a worker has imported it long before."""
    module = ModuleType("torch_npu")
    hccl = SimpleNamespace(Options=SimpleNamespace)
    module._C = SimpleNamespace(_distributed_c10d=SimpleNamespace(ProcessGroupHCCL=hccl))
    return module


def main() -> None:
    """Import vLLM, then run the scenario."""
    from vllm.engine import arg_utils

    # The real method needs a model; the hook on it sees this one's result instead.
    arg_utils.EngineArgs.create_engine_config = lambda self: SimpleNamespace(additional_config={})
    importlib.import_module("vllm.plugins")
    sys.modules["torch_npu"] = _torch_npu()
    gc.collect()
    gc.freeze()
    scenarios = {"off": off, "AFD, flag absent": lambda: worker(None), "on": lambda: worker({})}
    answer(scenarios[sys.argv[1]]())


if __name__ == "__main__":
    main()
