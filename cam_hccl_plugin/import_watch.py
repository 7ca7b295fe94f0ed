# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Tells when a module has been imported, without importing it.

Our own and not wrapt's, because importing wrapt alone took half of what registering may
cost in every vLLM process (see the figures in the README).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

Callback = Callable[[ModuleType], None]


class ImportWatch:
    """A finder at the head of ``sys.meta_path`` that finds nothing itself.

    Each named module is announced right after its code ran, before the import statement
    ends, and again after a reload. An import that fails is not announced. Callbacks must not
    raise: the exception would end the import.
    """

    def __init__(self, callbacks: Mapping[str, Callback]) -> None:
        self._callbacks = dict(callbacks)

    def arm(self) -> None:
        """Watch from now on, and announce what was imported before; may be called again."""
        if not any(finder is self for finder in sys.meta_path):
            sys.meta_path.insert(0, self)
        for name, callback in self._callbacks.items():
            module = sys.modules.get(name)
            if module is not None:
                callback(module)

    def disarm(self) -> None:
        """Leave ``sys.meta_path`` as if we had never been there."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the finders behind us find a watched module, and put ourselves around its loader.

        Only those behind us are asked: two watches then end in each other, not in a circle.
        """
        callback = self._callbacks.get(name)
        if callback is None:
            return None
        spec = _find_behind(self, name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            announcing: Any = _AnnouncingLoader(spec.loader, callback)
            spec.loader = announcing
        return spec


def _find_behind(
    watch: ImportWatch, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    finders: list[Any] = list(sys.meta_path)
    places = [place for place, finder in enumerate(finders) if finder is watch]
    for finder in finders[places[0] + 1 :] if places else ():
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find_spec(name, path, target) if find_spec else None
        if spec is not None:
            return spec
    return None


class _AnnouncingLoader:
    """Stands in for a module's loader until the module's code runs, then gives way to it."""

    def __init__(self, loader: Any, callback: Callback) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """What the loader makes of it; None is the default module."""
        create = getattr(self._loader, "create_module", None)
        made: ModuleType | None = create(spec) if create else None
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code with the true loader in place, then announce the module."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._callback(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
