# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What the patches share: putting a wrapper around an attribute, and taking it off again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, NamedTuple

Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Called in the place of a callable, with the callable (bound, if a method) and its arguments."""

_MARK = "__cam_hccl_patch__"
_DEEPEST = 100
"""Wrappers on top of each other that are looked through; some doubles show one without end."""


class Wrapped(NamedTuple):
    """One attribute with our wrapper in it."""

    owner: Any
    name: str
    original: Any
    wrapper: Any

    def restore(self) -> bool:
        """Put the identical original back; False if a wrapper on top of ours stays."""
        if vars(self.owner).get(self.name) is not self.wrapper:
            return False
        setattr(self.owner, self.name, self.original)
        return True


def wrap(owner: Any, name: str, around: Around) -> Wrapped:
    """Put ``around`` in the place of an attribute of a class or a module.

    The wrapper of a class method, static method, method or function is a real one of that
    kind, with the original's name and signature. Any other original, which may be another
    plugin's wrapper, is reached through its own binding.
    """
    original = vars(owner)[name]
    kind = type(original)  # not isinstance: proxies and doubles claim to be what they are not
    if not isinstance(owner, type):
        wrapper: Any = _function(original, around)
    elif issubclass(kind, classmethod):
        wrapper = _class_method(original, around)
    elif kind is FunctionType:
        wrapper = _method(original, around)
    elif issubclass(kind, staticmethod) or not hasattr(kind, "__get__"):
        wrapper = staticmethod(_function(getattr(owner, name), around))
    else:
        wrapper = _Descriptor(original, around)
    setattr(owner, name, wrapper)
    return Wrapped(owner, name, original, wrapper)


def is_wrapped(current: Any, around: Around) -> bool:
    """Whether ``current`` is a wrapper with ``around``, or shows one that it wraps."""
    for _ in range(_DEEPEST):
        mark = getattr(current, _MARK, None)
        if type(mark) is type(around) and mark == around:
            return True
        current = getattr(current, "__wrapped__", None)
        if current is None:
            break
    return False


def restore(wrapped: Iterable[Wrapped]) -> list[Wrapped]:
    """Restore each; returns those that could not be, because something is on top of them."""
    return [one for one in wrapped if not one.restore()]


def _function(original: Any, around: Around) -> Any:
    def patched(*args: Any, **kwargs: Any) -> Any:
        return around(original, args, kwargs)

    return _dressed(patched, original, around)


def _method(original: Any, around: Around) -> Any:
    def patched(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return around(original.__get__(self, type(self)), args, kwargs)

    return _dressed(patched, original, around)


def _class_method(original: Any, around: Around) -> Any:
    def patched(cls: Any, /, *args: Any, **kwargs: Any) -> Any:
        return around(original.__get__(None, cls), args, kwargs)

    return classmethod(_dressed(patched, original.__func__, around))


class _Descriptor:
    """Around a descriptor of a kind that we do not know: it binds, we wrap what comes of it."""

    def __init__(self, original: Any, around: Around) -> None:
        _dressed(self, original, around)
        self._original = original
        self._around = around

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return _function(self._original.__get__(instance, owner), self._around)

    def __getattr__(self, name: str) -> Any:
        if name == "_original":  # a copy under construction
            raise AttributeError(name)
        return getattr(self._original, name)


def _dressed(wrapper: Any, original: Any, around: Around) -> Any:
    """``wrapper`` with the name, the words and the attributes of ``original``, and our mark."""
    try:
        functools.update_wrapper(wrapper, original)
    except TypeError:  # a double whose name is no text
        wrapper.__wrapped__ = original
    setattr(wrapper, _MARK, around)
    return wrapper
