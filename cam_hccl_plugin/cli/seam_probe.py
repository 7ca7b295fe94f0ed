# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Tries the seam of the installed afd-plugin; only for a process that ends right after it.

The patches are really installed, on the public CAM connectors: what would stop a worker
stops the probe with the same error.
"""

from __future__ import annotations

import importlib
from typing import Any

from cam_hccl_plugin.patches import process_group
from cam_hccl_plugin.patches.connector_factory import FactoryPatch
from cam_hccl_plugin.patches.upstream import (
    CAM_CONNECTOR_MODULES,
    CREATE_GROUP,
    FACTORY_CLASS,
    FACTORY_MODULE,
    INIT_CONNECTOR,
    moved,
)


def probe_seam() -> str:
    """Install the patches; says what was found.

    Raises:
        SeamError: the seam moved.
        ImportError: a module of upstream cannot be imported.
    """
    factory_module = importlib.import_module(FACTORY_MODULE)
    FactoryPatch().install(factory_module)
    found = []
    for name, module_name in CAM_CONNECTOR_MODULES.items():
        connector = _connector_class(factory_module, name, module_name)
        if not callable(getattr(connector, INIT_CONNECTOR, None)):
            raise moved(f"a method {INIT_CONNECTOR} of {name}", "none")
        process_group.install(connector)
        found.append(name)
    return f"{FACTORY_CLASS}, and {CREATE_GROUP} in {', '.join(found)}"


def _connector_class(factory_module: Any, name: str, module_name: str) -> type:
    get = getattr(getattr(factory_module, FACTORY_CLASS), "get_connector_class", None)
    if get is not None:
        found = get(name)
    else:
        found = getattr(importlib.import_module(module_name), name, None)
    if not isinstance(found, type):
        raise moved(f"a class {name} in {module_name}", str(found))
    return found
