# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Patch of ``AFDConnectorFactory.create_connector``.

Upstream: the classmethod through which every model runner gets its connector.
Versions: both generations of afd-plugin.
Why: the connector, its role and the VllmConfig are known here, and no rank waits yet.
Change: for a CAM-type connector and with the flag, plans the buffers and lets the
    connector's ``init_afd_connector`` run with them.
Bindings: the class attribute; callers look it up there.
Unaffected: every connector while the flag is absent; arguments, result and exceptions.
Delete when: upstream sizes its groups by role itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.flag_places import given_flags
from cam_hccl_plugin.patches import process_group
from cam_hccl_plugin.patches.upstream import (
    CREATE_CONNECTOR,
    FACTORY_CLASS,
    FACTORY_MODULE,
    INIT_CONNECTOR,
    moved,
    upstream_label,
)
from cam_hccl_plugin.patches.wrapping import Wrapped, is_wrapped, restore, wrap

if TYPE_CHECKING:
    from cam_hccl_plugin.connector_start import ConnectorStart
    from cam_hccl_plugin.plugin_host import PluginHost


def _installed_host() -> PluginHost:
    """The host with the installed extensions; imports pluggy, which an "off" never needs."""
    try:
        from cam_hccl_plugin.plugin_host import build_host
    except ImportError as error:
        raise PlanError(
            f"cam_hccl is on and cannot load its extension host ({error}); reinstall "
            "cam-hccl-plugin with its dependency pluggy"
        ) from error
    return build_host()


class SizedInit:
    """``init_afd_connector`` of one connector with its plan around it."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)


class FactoryPatch:
    """The installed patch; also keeps what it patched later, connector by connector."""

    def __init__(self, host: Callable[[], PluginHost] = _installed_host) -> None:
        self._host = host
        self._wrapped: list[Wrapped] = []
        self._on = False
        self._starts = 0

    def install(self, factory_module: Any) -> None:
        """Wrap ``create_connector``; a second install is none.

        Raises:
            SeamError: the class or the method is not there.
        """
        factory = getattr(factory_module, FACTORY_CLASS, None)
        current = vars(factory).get(CREATE_CONNECTOR) if isinstance(factory, type) else None
        if factory is None or current is None:
            wanted = f"{FACTORY_CLASS}.{CREATE_CONNECTOR} in {FACTORY_MODULE}"
            raise moved(wanted, "none")
        self._on = True
        if not is_wrapped(current, self._create):
            self._wrapped.append(wrap(factory, CREATE_CONNECTOR, self._create))

    def covers(self, factory_module: Any) -> bool:
        """Whether the module's factory has been patched, whatever stands on top of it now."""
        factory = getattr(factory_module, FACTORY_CLASS, None)
        return any(wrapped.owner is factory for wrapped in self._wrapped)

    def uninstall(self) -> None:
        """Restore the identical objects; a wrapper on top of ours stays and ours goes quiet."""
        self._on = False
        self._wrapped = restore(self._wrapped)

    def _create(
        self, create: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        connector = create(*args, **kwargs)
        if not self._on or isinstance(getattr(connector, INIT_CONNECTOR, None), SizedInit):
            return connector  # off, or a second wrapper of ours below a foreign one was first
        vllm_config = getattr(connector, "vllm_config", None)
        if vllm_config is None:
            vllm_config = kwargs.get("vllm_config", args[2] if len(args) > 2 else None)
        if not given_flags(vllm_config):
            return connector
        from cam_hccl_plugin import startup  # here: arming must stay cheap

        start = startup.prepare(
            connector,
            vllm_config,
            host=self._host,
            upstream=upstream_label(),
            start_number=self._starts,
        )
        if start is not None:
            self._starts += 1
            self._wrap_init(connector, start)
        return connector

    def _wrap_init(self, connector: Any, start: ConnectorStart) -> None:
        init = getattr(connector, INIT_CONNECTOR, None)
        if not callable(init):
            raise moved(f"a method {INIT_CONNECTOR} of {type(connector).__name__}", "none")
        if _is_initialized(connector):
            wanted = f"{type(connector).__name__} to create its groups in {INIT_CONNECTOR}"
            raise moved(wanted, "them created by its constructor")
        self._wrapped += process_group.install(type(connector))

        def sized(*args: Any, **kwargs: Any) -> Any:
            if not self._on or _is_initialized(connector):
                return init(*args, **kwargs)
            return start.initialise(lambda: init(*args, **kwargs), process_group.activated)

        try:
            setattr(connector, INIT_CONNECTOR, SizedInit(sized))
        except (AttributeError, TypeError) as error:
            wanted = f"{type(connector).__name__} to take an attribute {INIT_CONNECTOR}"
            raise moved(wanted, f"{type(error).__name__}: {error}") from error


def _is_initialized(connector: Any) -> bool:
    """Whether a connector's groups exist; upstream has a property, others may have a method."""
    state = getattr(connector, "is_initialized", False)
    return bool(state() if callable(state) else state)
