# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Tells when a module has been imported, without importing it.

Our own and not wrapt's, because importing wrapt alone took half of what registering may
cost in every vLLM process (see the figures in the README).
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cam_hccl_plugin.log import LOGGER

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

Callback = Callable[[ModuleType], None]


class ImportWatch:
    """A finder at the head of ``sys.meta_path`` that finds nothing itself.

    While armed, each named module is announced to its callback right after its code ran,
    before the import statement ends, and again after a reload. One that came past the watch
    (found by a finder in front, or under way when it was armed) is announced, once its code
    ran, with the next import of any module. An import that fails is not announced.
    """

    def __init__(self, callbacks: Mapping[str, Callback]) -> None:
        self._callbacks = dict(callbacks)
        self._armed = False
        self._searches: set[tuple[int, str]] = set()
        self._running: set[str] = set()
        self._announced: dict[tuple[str, int], list[ModuleType]] = {}  # by name and id

    def arm(self) -> None:
        """Watch from now on, and announce what was imported before; may be called again."""
        self._armed = True
        if not any(finder is self for finder in sys.meta_path):
            sys.meta_path.insert(0, self)
        self._announced.clear()
        self._catch_up()

    def disarm(self) -> None:
        """Leave ``sys.meta_path``, and stay silent about imports that are under way."""
        self._armed = False
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    def run(self, name: str, loader: Any, module: ModuleType) -> None:
        """Let a watched module's code run, and announce what the import will return."""
        self._running.add(name)
        try:
            loader.exec_module(module)
            module = sys.modules.get(name, module)  # it may have replaced itself
            self._announced[name, id(module)] = [module]
        finally:
            self._running.discard(name)
        self._announce(name, module)

    def _catch_up(self) -> None:
        """Announce each watched module whose code ran and that has not been announced yet."""
        for name in self._callbacks:
            module = sys.modules.get(name)
            if module is None or (name, id(module)) in self._announced:
                continue  # nearly always, at every import of the process
            if name in self._running or not _has_run(module):
                continue
            mine = [module]  # kept, so that its id stays its own; of two threads one goes on
            if self._announced.setdefault((name, id(module)), mine) is mine:
                self._announce(name, module)

    def _announce(self, name: str, module: ModuleType) -> None:
        """Call the callback of ``name``; nothing that it raises may end upstream's import."""
        if not self._armed:
            return
        try:
            self._callbacks[name](module)
        except Exception:
            LOGGER.exception(
                "cam_hccl: %s could not be hooked; with the flag set, HCCL groups may keep their "
                "size of today; reinstall cam-hccl-plugin",
                name,
            )

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the other finders find a watched module, and put ourselves around its loader."""
        if not self._armed:
            return None
        self._catch_up()
        search = threading.get_ident(), name
        # A finder that asks all finders in its turn comes by here again: the first search counts.
        if name not in self._callbacks or search in self._searches:
            return None
        self._searches.add(search)
        try:
            spec = self._find_behind(name, path, target)
        finally:
            self._searches.discard(search)
        loader: Any = None if spec is None else spec.loader
        if spec is None or not hasattr(loader, "exec_module"):
            return spec
        if not (isinstance(loader, _AnnouncingLoader) and loader.watch is self):
            announcing: Any = _AnnouncingLoader(loader, self)
            spec.loader = announcing
        return spec

    def _find_behind(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        finders: list[Any] = list(sys.meta_path)
        ours = [place for place, finder in enumerate(finders) if finder is self]
        for finder in finders[ours[-1] + 1 if ours else 0 :]:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                return spec
        return None


class _AnnouncingLoader:
    """Stands in for a module's loader until the module's code runs, then gives way to it."""

    def __init__(self, loader: Any, watch: ImportWatch) -> None:
        self.loader = loader
        self.watch = watch

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code with the true loader in place, then announce the module."""
        spec = module.__spec__
        name = module.__name__ if spec is None else spec.name
        if spec is not None:
            spec.loader = self.loader
        with contextlib.suppress(AttributeError):  # the import system forgives such modules, too
            module.__loader__ = self.loader
        self.watch.run(name, self.loader, module)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # a copy under construction
            raise AttributeError(name)
        return getattr(self.loader, name)


def _has_run(module: Any) -> bool:
    """Whether all of a module's code ran; asks nothing of it that would make lazy code run.

    The import system marks the spec of a module whose code is running; a module of
    ``importlib.util.LazyLoader`` has its own type until then.
    """
    try:
        spec = object.__getattribute__(module, "__spec__")
    except Exception:  # anything may stand in sys.modules; no import may end for it
        return True
    lazy = type(module).__name__ == "_LazyModule"
    return not lazy and not getattr(spec, "_initializing", False)
