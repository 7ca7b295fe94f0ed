# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A store that counts what is asked of it."""

from __future__ import annotations

from collections import Counter
from typing import Any


class CountingStore:
    """Passes every method call on to a real store and counts it by name."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Calls of any method."""
        return self.calls.total()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            return method(*args, **kwargs)

        return counted
