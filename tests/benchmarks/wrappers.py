# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Finds every attribute of loaded modules and classes that is ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

_PACKAGE = "cam_hccl_plugin"
_DESCRIPTORS = (classmethod, staticmethod)


def _from_us(thing: Any) -> bool:
    """Whether a class or a function is defined by us; a wrapper may bear its original's name."""
    names = [getattr(thing, "__module__", None)]
    if isinstance(thing, FunctionType):
        names.append(thing.__globals__.get("__name__"))
    return any(isinstance(n, str) and n.partition(".")[0] == _PACKAGE for n in names)


def _is_ours(value: Any) -> bool:
    """Whether it is a wrapper of our patches, a function of ours, or wraps one, at any depth."""
    seen = 0
    while value is not None and seen < 20:
        if _from_us(type(value)):
            return True
        function = getattr(value, "__func__", value) if isinstance(value, _DESCRIPTORS) else value
        if isinstance(function, FunctionType):
            if _from_us(function):
                return True
            value = vars(function).get("__wrapped__")
        else:
            value = function if function is not value else None
        seen += 1
    return False


def _classes(module: ModuleType) -> Iterator[type]:
    """Classes defined in ``module``, nested ones included, each once."""
    waiting = [value for value in list(vars(module).values()) if isinstance(value, type)]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if id(found) in seen or vars(found).get("__module__") != module.__name__:
            continue
        seen.add(id(found))
        yield found
        waiting += [value for value in list(vars(found).values()) if isinstance(value, type)]


def our_attributes() -> tuple[list[str], dict[str, int]]:
    """Their dotted names in all loaded modules but our own, and how much was looked at."""
    found: list[str] = []
    looked = {"modules": 0, "classes": 0, "attributes": 0}
    for name, module in sorted(sys.modules.items()):
        if not isinstance(module, ModuleType) or name.partition(".")[0] in (_PACKAGE, "benchmarks"):
            continue
        looked["modules"] += 1
        owners: list[tuple[str, Any]] = [(name, module)]
        owners += [(f"{name}.{owner.__qualname__}", owner) for owner in _classes(module)]
        looked["classes"] += len(owners) - 1
        for label, owner in owners:
            attributes = dict(vars(owner))
            looked["attributes"] += len(attributes)
            found += [f"{label}.{key}" for key, value in attributes.items() if _is_ours(value)]
    return sorted(found), looked
