# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Tests against a real afd-plugin checkout, named by ``AFD_PLUGIN_SRC``; skipped without it."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from worlds.client import WarmedProcess
from worlds.fixtures import warmed_process


@pytest.fixture(scope="session")
def upstream_source() -> Path:
    """The checkout; a folder that holds the package ``afd_plugin``."""
    named = os.environ.get("AFD_PLUGIN_SRC")
    if not named:
        pytest.skip("AFD_PLUGIN_SRC names no afd-plugin checkout")
    source = Path(named).resolve()
    if not (source / "afd_plugin" / "__init__.py").is_file():
        pytest.fail(f"AFD_PLUGIN_SRC={named} holds no afd_plugin package", pytrace=False)
    return source


@pytest.fixture(scope="session")
def warmed(request: pytest.FixtureRequest, upstream_source: Path) -> WarmedProcess:
    """The process that forks ranks; not started where there is no checkout."""
    return warmed_process(request.config)
