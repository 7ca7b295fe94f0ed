# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Finders that stand beside ours on ``sys.meta_path``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any


class Finds:
    """A finder of one module, in front of all others or at ``place``."""

    def __init__(self, name: str, find: Callable[[Any], Any], place: int = 0) -> None:
        self._name = name
        self._find = find
        self._finding = False
        self.asked: list[str] = []
        finder: Any = self
        sys.meta_path.insert(place, finder)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name or self._finding:
            return None
        self.asked.append(name)
        self._finding = True
        try:
            return self._find(path)
        finally:
            self._finding = False


def on_disk(name: str) -> Callable[[Any], Any]:
    """Find the files of ``name``, and ask no other finder."""
    return lambda path: PathFinder.find_spec(name, path)


def behind(watch: Any) -> int:
    """The place right behind ``watch``."""
    return sys.meta_path.index(watch) + 1
