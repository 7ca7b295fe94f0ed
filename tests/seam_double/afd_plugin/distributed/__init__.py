# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Process-group entry points, loaded on first use and then kept here."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "init_afd_process_group":
        from afd_plugin.distributed import afd_process_group

        value = afd_process_group.init_afd_process_group
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
