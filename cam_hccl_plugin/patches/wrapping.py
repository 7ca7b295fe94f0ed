# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What the patches share: recognising and taking off a wrapper of our own."""

from __future__ import annotations

from typing import Any


def is_wrapped_by(function: Any, kind: type[Any]) -> bool:
    """Whether ``function`` is, or wraps at any depth, a wrapper of type ``kind``."""
    while function is not None:
        if type(function) is kind:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def unwrap(owner: Any, name: str, kind: type[Any]) -> None:
    """Restore the identical object below our wrapper; a wrapper on top of ours stays."""
    current: Any = vars(owner).get(name)
    if type(current) is kind:
        setattr(owner, name, current.__wrapped__)
