# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The one place that answers "is this upstream supported?", by contract, not by version."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

from cam_hccl_plugin.errors import SeamError
from cam_hccl_plugin.flag_places import SWITCH_OFF

AFD_PACKAGE = "afd_plugin"
FACTORY_MODULE = "afd_plugin.connectors.factory"
ENGINE_ARGS_MODULE = "vllm.engine.arg_utils"
FACTORY_CLASS = "AFDConnectorFactory"
CREATE_CONNECTOR = "create_connector"
INIT_CONNECTOR = "init_afd_connector"
CREATE_GROUP = "init_afd_process_group"
CAM_CONNECTOR_MODULES = {
    "CAMAsyncAFDConnector": "afd_plugin.connectors.npu.async_cam",
    "CAMP2pAFDConnector": "afd_plugin.connectors.npu.camp2p",
}
CREATE_GROUP_PARAMETERS = ("backend", "rank", "group_name", "pg_options")


def upstream_label() -> str:
    """Name and version of the afd-plugin in this process, for error messages."""
    version = getattr(sys.modules.get(AFD_PACKAGE), "__version__", "of unknown version")
    return f"afd-plugin {version}"


def afd_loaded() -> bool:
    """Whether afd-plugin's package has been imported in this process."""
    return AFD_PACKAGE in sys.modules


def require_parameters(function: Callable[..., Any], names: Iterable[str], label: str) -> None:
    """Check that ``function`` takes these parameters by keyword; others are its own affair.

    Raises:
        SeamError: one is missing.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise moved(f"{label} with a readable signature", str(error)) from error
    kinds = {p.kind for p in parameters.values()}
    missing = [name for name in names if name not in parameters]
    if missing and inspect.Parameter.VAR_KEYWORD not in kinds:
        wanted = f"{label} with parameter(s) {', '.join(missing)}"
        raise moved(wanted, f"parameters {', '.join(parameters) or 'none'}")


def moved(wanted: str, found: str) -> SeamError:
    """The error for a seam that is not where it was: wanted, found, consequence, remedy."""
    return SeamError(
        f"{upstream_label()} has moved the seam that cam_hccl hooks: wanted {wanted}, found "
        f"{found}; the HCCL groups would not be sized, so the start is stopped; use a supported "
        f"afd-plugin, or {SWITCH_OFF}"
    )
