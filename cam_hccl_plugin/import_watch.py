# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Tells when a module has been imported, without importing it.

Our own and not wrapt's, because importing wrapt alone took half of what registering may
cost in every vLLM process (see the figures in the README).
"""

from __future__ import annotations

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
    before the import statement ends, and again after a reload. An import that fails is not
    announced. One that came past the watch (found by a finder in front, or under way when it
    was armed) is announced when it is armed again, never at a later import: finders are
    called under the global import lock, where a callback that imports could deadlock.
    """

    def __init__(self, callbacks: Mapping[str, Callback]) -> None:
        self._callbacks = dict(callbacks)
        self._armed = False
        self._searches: set[tuple[int, str]] = set()
        self._running: set[str] = set()

    def arm(self) -> None:
        """Watch from now on, and announce what was imported before; may be called again."""
        self._armed = True
        if not any(finder is self for finder in sys.meta_path):
            sys.meta_path.insert(0, self)
        for name in self._callbacks:
            module = sys.modules.get(name)
            if module is not None and name not in self._running and _has_run(module):
                self._announce(name, module)

    def disarm(self) -> None:
        """Leave ``sys.meta_path``, and stay silent about imports that are under way."""
        self._armed = False
        # A new list: another thread may be in the middle of the old one.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]

    def run(self, name: str, loader: Any, module: ModuleType) -> None:
        """Let a watched module's code run, and announce what the import will return."""
        was_lazy = _is_lazy(module)
        self._running.add(name)
        try:
            loader.exec_module(module)
        finally:
            self._running.discard(name)
        module = sys.modules.get(name, module)  # it may have replaced itself
        if was_lazy or not _is_lazy(module):  # a loader that only made it lazy ran no code yet
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
        if name not in self._callbacks or not self._armed:
            return None
        search = threading.get_ident(), name
        # A finder that asks all finders in its turn comes by here again: the first search counts.
        if search in self._searches:
            return None
        self._searches.add(search)
        try:
            spec = self._find_behind(name, path, target)
        finally:
            self._searches.discard(search)
        loader: Any = getattr(spec, "loader", None)
        ours = isinstance(loader, _AnnouncingLoader) and loader.watch is self
        if spec is not None and not ours and hasattr(loader, "exec_module"):
            announcing: Any = _AnnouncingLoader(name, loader, self)
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

    def __init__(self, name: str, loader: Any, watch: ImportWatch) -> None:
        self._name = name  # as searched; an alias has a spec of another name
        self.loader = loader
        self.watch = watch

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code with the true loader in place, then announce the module."""
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            spec.loader = self.loader
        if getattr(module, "__loader__", None) is self:  # a loader's own module may keep another
            module.__loader__ = self.loader
        self.watch.run(self._name, self.loader, module)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be copied and pickled as the true loader."""
        return _itself, (self.loader,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def _itself(loader: Any) -> Any:
    return loader


def _has_run(module: Any) -> bool:
    """Whether all of a module's code ran; asks nothing of it that would make lazy code run."""
    try:
        spec = object.__getattribute__(module, "__spec__")
        under_way = getattr(spec, "_initializing", False)  # so the import system marks it
    except Exception:  # anything may stand in sys.modules
        return True
    return under_way is not True and not _is_lazy(module)


def _is_lazy(module: Any) -> bool:
    """Whether the module is one of ``importlib.util.LazyLoader`` whose code has not run."""
    return type(module) is getattr(sys.modules.get("importlib.util"), "_LazyModule", None)
