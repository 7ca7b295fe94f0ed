# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Tests on the real torch-npu: they share one warmed process.

The folder is not called ``torch_npu``: with ``tests`` on the module path that would be found as
a namespace package, and other libraries would believe that torch-npu is installed.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from worlds.client import WarmedProcess
from worlds.fixtures import warmed_process


@pytest.fixture(scope="session")
def warmed(request: pytest.FixtureRequest) -> WarmedProcess:
    """The process that forks ranks and probes."""
    return warmed_process(request.config)
