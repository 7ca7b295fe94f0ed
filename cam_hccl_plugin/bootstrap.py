# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Wires the plugin up, once per process."""

from __future__ import annotations

import importlib
from typing import Any

from cam_hccl_plugin.errors import SeamError
from cam_hccl_plugin.flag_places import SWITCH_OFF
from cam_hccl_plugin.import_watch import ImportWatch
from cam_hccl_plugin.log import LOGGER
from cam_hccl_plugin.patches.upstream import ENGINE_ARGS_MODULE, FACTORY_MODULE


class Installation:
    """Everything that the plugin changed in this process, and the way back."""

    def __init__(self) -> None:
        self._watch = ImportWatch(
            {FACTORY_MODULE: self._on_factory, ENGINE_ARGS_MODULE: self._on_engine_args}
        )
        self._patches: dict[str, Any] = {}
        self._seam_problem: SeamError | None = None

    def arm(self) -> None:
        """React to upstream's modules once they are imported; imports none of them."""
        self._watch.arm()

    def disarm(self) -> None:
        """Take every patch out again, and ignore imports to come."""
        self._watch.disarm()
        for patch in self._patches.values():
            patch.uninstall()

    def seam_problem(self) -> SeamError | None:
        """What is wrong with upstream's factory; imports it. Asked only with the flag set."""
        try:
            factory = importlib.import_module(FACTORY_MODULE)
        except ImportError as error:
            return SeamError(f"cam_hccl hooks {FACTORY_MODULE}, which cannot be imported: {error}")
        patch = self._patches.get(FACTORY_MODULE)
        if self._seam_problem is None and (patch is None or not patch.covers(factory)):
            return SeamError(
                f"cam_hccl hooks {FACTORY_MODULE} when it is imported, but did not notice that "
                "import, so the HCCL groups would not be sized and the start is stopped; another "
                "import hook in this process answers before ours (or see the error logged above): "
                f"remove it, or {SWITCH_OFF}"
            )
        return self._seam_problem

    def _on_factory(self, module: Any) -> None:
        """Patch the factory. A moved seam raises later: without the flag nothing changes."""
        from cam_hccl_plugin.patches.connector_factory import FactoryPatch

        try:
            self._patch(FACTORY_MODULE, FactoryPatch).install(module)
            self._seam_problem = None
        except SeamError as error:
            self._seam_problem = error  # raised by the launch check where the flag is set
            LOGGER.debug("cam_hccl: %s", error)

    def _on_engine_args(self, module: Any) -> None:
        from cam_hccl_plugin.patches.engine_config import EngineConfigPatch

        make = lambda: EngineConfigPatch(self.seam_problem)  # noqa: E731 - one use, two lines
        self._patch(ENGINE_ARGS_MODULE, make).install(module)

    def _patch(self, key: str, make: Any) -> Any:
        if key not in self._patches:
            self._patches[key] = make()
        return self._patches[key]


PROCESS = Installation()
"""The installation of this process; tests make their own."""


def arm() -> None:
    """Arm the installation of this process; any number of calls is one."""
    PROCESS.arm()


def uninstall() -> None:
    """Take the plugin out of this process again."""
    PROCESS.disarm()
