# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Patch of vLLM's ``EngineArgs.create_engine_config``.

Upstream: the method that turns the parsed command line into a VllmConfig.
Versions: vLLM 0.26 to 0.33.
Why: the only place, before workers start, that knows the flag; a flag that no connector
    will ever see (no AFD configuration reached vLLM) can be noticed nowhere else.
Change: the finished VllmConfig is looked at, never changed; a wrong flag is refused.
Bindings: the class attribute.
Unaffected: everything while the flag is absent; arguments, result and exceptions.
Delete when: vLLM offers plugins a look at the finished configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from cam_hccl_plugin.errors import SeamError
from cam_hccl_plugin.flag_places import given_flags
from cam_hccl_plugin.patches.upstream import afd_loaded
from cam_hccl_plugin.patches.wrapping import Wrapped, is_wrapped, restore, wrap

ENGINE_ARGS_CLASS = "EngineArgs"
CREATE_CONFIG = "create_engine_config"

_looking: ContextVar[bool] = ContextVar("cam_hccl_looking", default=False)


class EngineConfigPatch:
    """The installed patch."""

    def __init__(self, seam_problem: Callable[[], SeamError | None]) -> None:
        self._seam_problem = seam_problem
        self._wrapped: list[Wrapped] = []
        self._on = False

    def install(self, module: Any) -> None:
        """Wrap the method; a second install is none.

        A vLLM without the method is left alone: the workers check the flag in any case.
        """
        owner = getattr(module, ENGINE_ARGS_CLASS, None)
        current = vars(owner).get(CREATE_CONFIG) if isinstance(owner, type) else None
        self._on = True
        if owner is None or current is None or is_wrapped(current, self._create):
            return
        self._wrapped.append(wrap(owner, CREATE_CONFIG, self._create))

    def uninstall(self) -> None:
        """Restore the identical method; a wrapper on top of ours stays and ours goes quiet."""
        self._on = False
        self._wrapped = restore(self._wrapped)

    def _create(
        self, create: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not self._on or _looking.get():  # a second wrapper of ours below a foreign one
            return create(*args, **kwargs)
        token = _looking.set(True)
        try:
            vllm_config = create(*args, **kwargs)
        finally:
            _looking.reset(token)
        if not given_flags(vllm_config):
            return vllm_config
        from cam_hccl_plugin import startup  # here: most processes never come to this point

        if startup.check_launch(vllm_config, afd_loaded()):
            problem = self._seam_problem()
            if problem is not None:
                raise problem
        return vllm_config
