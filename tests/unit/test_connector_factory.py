# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The patch of ``create_connector`` in a half-installed environment."""

from __future__ import annotations

import sys

import pytest

from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.patches import connector_factory


def test_a_missing_dependency_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cam_hccl_plugin.plugin_host", None)
    with pytest.raises(PlanError, match="reinstall cam-hccl-plugin with its dependency pluggy"):
        connector_factory._installed_host()
