# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What the patches share: putting a wrapper around an attribute, and taking it off again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Around = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Called in the place of a callable, with the callable (bound, if a method) and its arguments."""

_MARK = "__cam_hccl_patch__"


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

    The wrapper is a real function of the same kind (class method, static method, method,
    function) with the original's name and signature. The original, which may be another
    plugin's wrapper, is reached through its own binding.
    """
    original = vars(owner)[name]
    if not isinstance(owner, type):
        wrapper: Any = _function(original, around)
    elif isinstance(original, classmethod):
        wrapper = _class_method(original, around)
    elif hasattr(original, "__get__") and not isinstance(original, staticmethod):
        wrapper = _method(original, around)
    else:
        wrapper = staticmethod(_function(getattr(owner, name), around))
    setattr(owner, name, wrapper)
    return Wrapped(owner, name, original, wrapper)


def is_wrapped(current: Any) -> bool:
    """Whether ``current`` is a wrapper of ours, or wraps one at any depth that it shows."""
    while current is not None:
        if getattr(current, _MARK, None) is True:
            return True
        current = getattr(current, "__wrapped__", None)
    return False


def restore(wrapped: Iterable[Wrapped]) -> list[Wrapped]:
    """Restore each; returns those that could not be, because something is on top of them."""
    return [one for one in wrapped if not one.restore()]


def _function(original: Any, around: Around) -> Any:
    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        return around(original, args, kwargs)

    setattr(patched, _MARK, True)
    return patched


def _method(original: Any, around: Around) -> Any:
    @functools.wraps(original)
    def patched(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return around(original.__get__(self, type(self)), args, kwargs)

    setattr(patched, _MARK, True)
    return patched


def _class_method(original: Any, around: Around) -> Any:
    @functools.wraps(original.__func__)
    def patched(cls: Any, /, *args: Any, **kwargs: Any) -> Any:
        return around(original.__get__(None, cls), args, kwargs)

    setattr(patched, _MARK, True)
    return classmethod(patched)
