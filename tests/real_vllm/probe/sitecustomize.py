# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""On PYTHONPATH, every Python process reports when the plugin's registration function arms it.

One JSON line to ``CAM_HCCL_PROBE`` for each call of ``bootstrap.arm``, made after it returned: the
process, the functions that led there, and what of the plugin is in place.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

import wrapt


def _report(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    import multiprocessing

    result = wrapped(*args, **kwargs)
    arg_utils = sys.modules.get("vllm.engine.arg_utils")
    create = vars(arg_utils.EngineArgs).get("create_engine_config") if arg_utils else None
    line = {
        "pid": os.getpid(),
        "process": multiprocessing.current_process().name,
        "callers": [frame.name for frame in traceback.extract_stack()],
        "file": sys.modules["cam_hccl_plugin"].__file__,
        "patched": type(create).__module__.startswith("cam_hccl_plugin"),
        "hccl_buffsize": os.environ.get("HCCL_BUFFSIZE"),
    }
    with open(os.environ["CAM_HCCL_PROBE"], "a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
    return result


if "CAM_HCCL_PROBE" in os.environ:
    wrapt.register_post_import_hook(
        lambda module: setattr(module, "arm", wrapt.FunctionWrapper(module.arm, _report)),
        "cam_hccl_plugin.bootstrap",
    )
