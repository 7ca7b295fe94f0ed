# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The one warmed process of a test session, for every conftest that wants it."""

from __future__ import annotations

import importlib.util
import os

import pytest

from cann_shim.build import torch_npu_dir
from worlds.client import WarmedProcess

_WARMED = pytest.StashKey[WarmedProcess]()


def _missing() -> str | None:
    absent = [name for name in ("torch", "vllm") if importlib.util.find_spec(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    try:
        torch_npu_dir()
    except FileNotFoundError as error:
        return str(error)
    return None


def warmed_process(config: pytest.Config) -> WarmedProcess:
    """Start the warmed process, or return the one that this session has.

    Where the real neighbours are missing the test is skipped, but under CI it fails.
    """
    if _WARMED not in config.stash:
        reason = _missing()
        if reason and os.environ.get("CI"):
            pytest.fail(f"the real torch-npu cannot run: {reason}", pytrace=False)
        if reason:
            pytest.skip(f"the real torch-npu cannot run: {reason}")
        process = WarmedProcess(torch_npu_dir())
        config.stash[_WARMED] = process
        config.add_cleanup(process.close)
    return config.stash[_WARMED]
