# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The environment in which a child process finds torch-npu and the CANN stand-in."""

from __future__ import annotations

import os
from pathlib import Path

from cann_shim.build import build_shim


def put_in_front(environment: dict[str, str], variable: str, *places: str) -> None:
    """Put ``places`` in front of what a search path such as PYTHONPATH holds."""
    found = filter(None, [*places, environment.get(variable, "")])
    environment[variable] = os.pathsep.join(found)


def add_torch_npu(environment: dict[str, str], torch_npu_folder: Path, *path: str) -> None:
    """Put ``path`` and torch-npu on the module path, and the stand-in where its libraries are."""
    put_in_front(environment, "PYTHONPATH", *path, str(torch_npu_folder))
    put_in_front(environment, "LD_LIBRARY_PATH", str(build_shim(torch_npu_folder)))
