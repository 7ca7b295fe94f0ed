# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""How a module of this package is started as a process of its own."""

from __future__ import annotations

import sys

# Python puts the current folder in front of everything for -m and -c. The vllm command does
# not have it there, and a folder called vllm, or a file json.py, must not get in the way.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def python_process(module: str, *arguments: str) -> list[str]:
    """The command that runs ``module`` with ``arguments``, without the current folder."""
    return [sys.executable, "-c", _START, module, *arguments]
