# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Section 2: what the plugin costs in a vLLM process, and that no step goes through it."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.table import Figures, Table, Target
from benchmarks.timing import ask_module
from cann_shim.build import torch_npu_dir
from cann_shim.surroundings import add_torch_npu, put_in_front

_TESTS = Path(__file__).resolve().parent.parent
_PROCESS_TARGET_MS = 10.0
_GROUP_TARGET_MS = 1.0
_MOST_PROCESSES = 5  # each imports vLLM first
_LIGHT = {"cam_hccl_plugin", "pluggy"}

_EXPECTED_WRAPPERS = [
    "afd_plugin.connectors.factory.AFDConnectorFactory.create_connector",
    "afd_plugin.connectors.npu.async_cam.init_afd_process_group",
    "afd_plugin.connectors.npu.camp2p.init_afd_process_group",
    "vllm.engine.arg_utils.EngineArgs.create_engine_config",
]
_CALLED = {
    "create_connector": "once per worker, when the model runner is made",
    "init_afd_process_group": "once per group, in init_afd_connector",
    "create_engine_config": "once per engine, from the command line",
}


_NOTES = (
    "each run is a fresh process that had imported vLLM and no plugin",
    "off: no flag, no AFD; launch check: create_engine_config's hook, once per engine, not in "
    "workers",
    "AFD, flag absent / on: afd_plugin (the double) imported before, so that register() hooks its "
    "factory; create_connector plans, once",
)


def _environment(torch_npu: Path | None = None) -> dict[str, str]:
    """A child's environment: the seam double on the path and, if named, torch-npu on the shim."""
    unwanted = ("HCCL_", "LCCL_", "VLLM_PLUGINS")
    env = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
    if torch_npu is None:
        put_in_front(env, "PYTHONPATH", str(_TESTS), str(_TESTS / "seam_double"))
    else:
        add_torch_npu(env, torch_npu, str(_TESTS))  # the double comes by its entry point there
    env["SEAM_DOUBLE_GENERATION"] = "a"
    return env


def _module_rows(step: str, modules: Iterable[str]) -> list[tuple[Any, ...]]:
    """One row per package, with the modules of it that came in a step."""
    packages: dict[str, list[str]] = {}
    for name in modules:
        packages.setdefault(name.partition(".")[0], []).append(name)
    return [
        (step, package, len(names), " ".join(n.removeprefix(package + ".") for n in names))
        for package, names in sorted(packages.items())
    ] or [(step, None, 0, None)]


def _in_vllm(runs: int) -> Figures:
    env, runs = _environment(), min(runs, _MOST_PROCESSES)
    scenarios = {
        name: [ask_module("benchmarks.in_vllm", name, env=env) for _ in range(runs)]
        for name in ("off", "AFD, flag absent", "on")
    }
    rows, targets, modules = [], [], []
    for name, found in scenarios.items():
        for lap in found[0]["laps"]:
            wall, cpu = zip(*(run["laps"][lap] for run in found), strict=True)
            label, median = f"{name}: {lap}", statistics.median(wall)
            rows.append((label, median, min(wall), statistics.median(cpu)))
            modules += _module_rows(label, found[0]["modules"][lap])
            if lap == "register":
                targets.append(Target(f"{label}()", median, _PROCESS_TARGET_MS, "ms"))
    packages = {package for _, package, _, _ in modules if package}
    heavy = packages - _LIGHT - set(sys.stdlib_module_names)
    targets.append(Target("modules that are neither ours nor pluggy", len(heavy), 0, ""))
    columns = {"what": "what", "median_ms": "median ms", "min_ms": "min ms", "cpu_ms": "CPU ms"}
    notes = [f"{runs} runs each", *_NOTES]
    cost = Table("register", "Cost in a process with the real vLLM", columns, rows, notes)
    columns = {"step": "step", "package": "package", "count": "count", "modules": "modules"}
    listed = Table("modules", "Modules added to a vLLM process", columns, modules)
    return Figures([cost, listed], targets)


def _group_table(starts: dict[str, Any]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for connector, start in starts.items():
        rows.append((connector, "create_connector, planning and guard", start["create_ms"], None))
        calls = sum(start["store_calls"].values()) / start["inits"]
        for number, (group, ms) in enumerate(start["group_ms"].items()):
            rows.append((connector, f"group {group}", ms, calls if number == 0 else 0.0))
        rows.append((connector, "after the groups: checks, line, ledger", start["report_ms"], None))
    columns = {
        "connector": "connector",
        "what": "added by the hook",
        "median_ms": "median ms",
        "store_calls": "store calls",
    }
    notes = [
        "a group: hooked creation minus the time in torch, with torch-npu's own options, read-back "
        "and a TCPStore; the first one compares the roles",
    ]
    return Table("hook", "A start on the real torch-npu over the shim", columns, rows, notes)


def _wrapper_table(result: dict[str, Any]) -> Table:
    rows = [(name, _CALLED[name.rpartition(".")[2]]) for name in result["ours"]]
    for connector, names in result["on_instances"].items():
        rows += [(f"{connector} instance: {name}", "once per start") for name in names]
    looked = result["looked"]
    notes = [
        f"looked at {looked['attributes']} attributes of {looked['modules']} modules and "
        f"{looked['classes']} classes, all that were loaded after a whole start, for wrappers and "
        "functions of cam_hccl_plugin",
        "nothing here is called per step",
    ]
    columns = {"attribute": "attribute", "called": "called"}
    return Table("wrappers", "Everything that the plugin replaced", columns, rows, notes)


def _in_torch_npu(runs: int) -> Figures:
    env = _environment(torch_npu_dir())
    result = ask_module("benchmarks.in_torch_npu", str(runs), env=env)
    if result["ours"] != _EXPECTED_WRAPPERS:
        raise RuntimeError(f"replaced attributes: {result['ours']}, wanted {_EXPECTED_WRAPPERS}")
    starts = result["starts"]
    slowest = max(ms for start in starts.values() for ms in start["group_ms"].values())
    calls = max(sum(start["store_calls"].values()) / start["inits"] for start in starts.values())
    targets = [
        Target("hook per group, slowest", slowest, _GROUP_TARGET_MS, "ms"),
        Target("store calls of a start, per rank", calls, 1.0, "calls"),
    ]
    return Figures([_group_table(starts), _wrapper_table(result)], targets)


def measure(runs: int) -> Figures:
    """register() in vLLM; the hook on torch-npu where CAM_HCCL_TORCH_NPU_DIR names one."""
    figures = _in_vllm(runs)
    if os.environ.get("CAM_HCCL_TORCH_NPU_DIR"):
        more = _in_torch_npu(runs)
        figures.tables += more.tables
        figures.targets += more.targets
    return figures
