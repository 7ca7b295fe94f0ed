# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""On PYTHONPATH, every Python process reports when the plugin's registration function arms it.

One JSON line to ``CAM_HCCL_PROBE`` for each call of ``bootstrap.arm``, made after it returned: the
process, the functions that led there, and what of the plugin is in place.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any


def _from_us(function: Any) -> bool:
    return isinstance(function, FunctionType) and function.__globals__["__name__"].startswith(
        "cam_hccl_plugin."
    )


def _report(arm: Any) -> Any:
    import multiprocessing

    result = arm()
    arg_utils = sys.modules.get("vllm.engine.arg_utils")
    create = vars(arg_utils.EngineArgs).get("create_engine_config") if arg_utils else None
    line = {
        "pid": os.getpid(),
        "process": multiprocessing.current_process().name,
        "callers": [frame.name for frame in traceback.extract_stack()],
        "file": sys.modules["cam_hccl_plugin"].__file__,
        "patched": _from_us(create),
        "hccl_buffsize": os.environ.get("HCCL_BUFFSIZE"),
    }
    with open(os.environ["CAM_HCCL_PROBE"], "a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
    return result


class _Finder:
    """Finds ``cam_hccl_plugin.bootstrap`` where it is installed, and wraps its ``arm``."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "cam_hccl_plugin.bootstrap":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_wrap(module: ModuleType) -> None:
            run(module)
            module.arm = functools.partial(_report, module.arm)  # type: ignore[attr-defined]  # a module

        spec.loader.exec_module = run_and_wrap  # type: ignore[method-assign]  # this loader's own
        return spec


if "CAM_HCCL_PROBE" in os.environ:
    sys.meta_path.insert(0, _Finder())
