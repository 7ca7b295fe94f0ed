# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""HCCL buffers for CAM, sized by role: a vLLM general plugin.

Import cost is kept near zero: everything else is imported when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pluggy

    hookimpl: pluggy.HookimplMarker

__version__ = "0.1.0"

__all__ = ["__version__", "hookimpl", "register"]


def register() -> None:
    """Entry point ``cam_hccl`` of ``vllm.general_plugins``; arms the hook, imports no upstream.

    vLLM calls it in every process, possibly more than once. It never raises: an exception
    here would end a vLLM process that may not use the plugin at all.
    """
    try:
        from cam_hccl_plugin.bootstrap import arm

        arm()
    except Exception:
        import logging

        logging.getLogger("vllm.cam_hccl").exception(
            "cam_hccl: the plugin could not be armed and sizes nothing; reinstall cam-hccl-plugin"
        )


def __getattr__(name: str) -> Any:
    """Make ``hookimpl``, the marker for extensions, without importing pluggy before it is used."""
    if name == "hookimpl":
        import pluggy

        from cam_hccl_plugin.hookspecs import PROJECT_NAME

        marker = pluggy.HookimplMarker(PROJECT_NAME)
        globals()[name] = marker
        return marker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
