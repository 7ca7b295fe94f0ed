# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Patch of ``init_afd_process_group`` in the modules of a CAM connector.

Upstream: the function that creates every AFD process group, imported by name into each
    connector's module.
Versions: both generations of afd-plugin (connectors that pass ``pg_options`` or do not).
Why: the only place where a connector's HCCL group can be given a size of its own.
Change: while a CAM connector initialises, HCCL groups get options with the planned size.
Bindings: the name in the module of the connector's class and of each base class.
Unaffected: every call outside of that, every other backend, every other connector.
Delete when: upstream sizes its groups by role itself.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cam_hccl_plugin.patches.upstream import (
    CREATE_GROUP,
    CREATE_GROUP_PARAMETERS,
    moved,
    require_parameters,
)
from cam_hccl_plugin.patches.wrapping import Wrapped, is_wrapped, wrap

if TYPE_CHECKING:
    from cam_hccl_plugin.injector import Injection

_active: ContextVar[Injection | None] = ContextVar("cam_hccl_injection", default=None)


@contextlib.contextmanager
def activated(injection: Injection | None) -> Iterator[None]:
    """Let ``injection`` decide for the group creations of this context."""
    token = _active.set(injection)
    try:
        yield
    finally:
        _active.reset(token)


def _create_group(create: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    injection = _active.get()
    if injection is None:
        return create(*args, **kwargs)
    with activated(None):  # a second wrapper further down must not decide again
        return injection.create_group(create, args, kwargs)


def install(connector_class: type) -> list[Wrapped]:
    """Wrap the bindings that ``connector_class`` uses; returns those newly wrapped.

    Raises:
        SeamError: no module of the class has the function, or it lacks a parameter.
    """
    modules = [sys.modules.get(cls.__module__) for cls in connector_class.__mro__]
    found = [(m, name) for m in dict.fromkeys(modules) if m for name in _bindings(m)]
    if not found:
        looked_in = ", ".join(dict.fromkeys(cls.__module__ for cls in connector_class.__mro__[:-1]))
        raise moved(f"a function {CREATE_GROUP} in {looked_in}", "none")
    for module, name in found:  # all checks first: a refusal must leave nothing patched
        label = f"{module.__name__}.{name}"
        require_parameters(vars(module)[name], CREATE_GROUP_PARAMETERS, label)
    return [
        wrap(module, name, _create_group)
        for module, name in found
        if not is_wrapped(vars(module)[name], _create_group)
    ]


def _bindings(module: ModuleType) -> list[str]:
    """Names in ``module`` that hold the group creation, aliases of the same object included."""
    named = vars(module).get(CREATE_GROUP)
    if not callable(named):
        return [
            name
            for name, value in vars(module).items()
            if callable(value) and getattr(value, "__name__", "") == CREATE_GROUP
        ]
    return [name for name, value in vars(module).items() if value is named]
