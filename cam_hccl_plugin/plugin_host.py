# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The pluggy manager behind one typed method per hook."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

import pluggy

from cam_hccl_plugin import builtin_hooks, hookspecs
from cam_hccl_plugin.errors import CamHcclError, PlanError
from cam_hccl_plugin.hookspecs import PROJECT_NAME
from cam_hccl_plugin.model import (
    BOTH_ROLES,
    BufferPlan,
    ConnectorClaim,
    ConnectorIdentity,
    GroupRequest,
    Role,
    RoleNeed,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.model_config import is_positive_int

_Answer = TypeVar("_Answer")


class PluginHost:
    """Built-in rules and installed extensions; extensions are asked first."""

    def __init__(self, manager: pluggy.PluginManager) -> None:
        self._manager = manager

    def claim_connector(self, connector: ConnectorIdentity) -> ConnectorClaim | None:
        """The claim on a connector, or ``None`` if it is not CAM-type."""
        hook = self._manager.hook.cam_hccl_claim_connector
        answer = _ask(hook.name, lambda: hook(connector=connector), hook.get_hookimpls())
        claim = _checked(hook.name, answer, ConnectorClaim)
        if claim is not None:
            _require(hook.name, "kind", claim.kind, _is_name(claim.kind), "a name")
        return claim

    def describe_groups(
        self, claim: ConnectorClaim, topology: Topology
    ) -> tuple[GroupRequest, ...] | None:
        """The HCCL groups of both roles, or ``None`` if only the connector knows them."""
        hook = self._manager.hook.cam_hccl_describe_groups
        answer = _ask(hook.name, lambda: hook(claim=claim, topology=topology), hook.get_hookimpls())
        groups = _checked(hook.name, answer, tuple)
        for group in groups or ():
            if _checked(hook.name, group, GroupRequest) is None:
                raise _wrong_type(hook.name, group, GroupRequest)
            _require(hook.name, "name", group.name, _is_name(group.name), "a name")
            good = isinstance(group.roles, frozenset) and group.roles and group.roles <= BOTH_ROLES
            _require(hook.name, "roles", group.roles, good, "a frozenset of one or both Role")
        return groups

    def role_need(self, claim: ConnectorClaim, role: Role, inputs: SizingInputs) -> RoleNeed:
        """What ``role`` needs.

        Raises:
            PlanError: nobody knows the kind that the claim names, or an extension failed.
        """
        hook = self._manager.hook.cam_hccl_role_need
        answer = _ask(
            hook.name, lambda: hook(claim=claim, role=role, inputs=inputs), hook.get_hookimpls()
        )
        need = _checked(hook.name, answer, RoleNeed)
        if need is None:
            raise PlanError(
                f"no extension gives the {role.value} need of connector kind {claim.kind!r}; the "
                "package that claims the connector must implement cam_hccl_role_need"
            )
        for field in ("published_bytes", "operator_bytes", "npus_per_dp_group"):
            value = getattr(need, field)
            good = is_positive_int(value) or (field == "operator_bytes" and value is None)
            _require(hook.name, field, value, good, "a positive integer")
        good = isinstance(need.warnings, tuple) and all(isinstance(w, str) for w in need.warnings)
        _require(hook.name, "warnings", need.warnings, good, "a tuple of sentences")
        return need

    def plan_ready(self, plan: BufferPlan) -> None:
        """Tell every extension of a finished plan."""
        hook = self._manager.hook.cam_hccl_plan_ready
        _ask(hook.name, lambda: hook(plan=plan), hook.get_hookimpls())


def build_host(*extensions: object, installed: bool = True) -> PluginHost:
    """A host with the built-in rules, ``extensions``, and what is installed as entry points.

    Raises:
        PlanError: an installed extension cannot be loaded or does not fit the contract.
    """
    manager = pluggy.PluginManager(PROJECT_NAME)
    manager.add_hookspecs(hookspecs)
    manager.register(builtin_hooks, name="builtin")

    def register() -> None:
        for extension in extensions:
            manager.register(extension)
        manager.check_pending()

    if installed:
        from importlib import metadata  # slow to load, see cli.extensions

        for name in dict.fromkeys(p.name for p in metadata.entry_points(group=PROJECT_NAME)):
            _load_installed(manager, name)
    _ask(f"registering extensions of entry-point group {PROJECT_NAME!r}", register)
    return PluginHost(manager)


def _load_installed(manager: pluggy.PluginManager, name: str) -> None:
    _ask(
        f"loading entry point {name!r} of group {PROJECT_NAME!r}",
        lambda: manager.load_setuptools_entrypoints(PROJECT_NAME, name),
    )


def _ask(what: str, call: Callable[[], _Answer], asked: Sequence[pluggy.HookImpl] = ()) -> _Answer:
    """Run foreign code; whatever it raises becomes one error that names it.

    The one place with a broad ``except``: an extension may raise anything, and the user
    must learn which extension it was.
    """
    try:
        return call()
    except CamHcclError:
        raise
    except Exception as error:
        raise PlanError(
            f"{_culprit(error, asked)} failed in {what}: {type(error).__name__}: {error}; fix or "
            "uninstall the package that provides it"
        ) from error


def _culprit(error: Exception, asked: Sequence[pluggy.HookImpl]) -> str:
    """The extension that the traceback runs through, by its entry-point name."""
    ran = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    for implementation in asked:
        if getattr(implementation.function, "__code__", None) in ran:
            return f"extension {implementation.plugin_name!r}"
    return "an extension"


def _checked(what: str, answer: object, wanted: type[_Answer]) -> _Answer | None:
    if answer is None or isinstance(answer, wanted):
        return answer
    raise _wrong_type(what, answer, wanted)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _require(what: str, field: str, value: object, good: object, wanted: str) -> None:
    """Refuse a field that would fail later, or go wrong in silence."""
    if not good:
        raise PlanError(
            f"an extension answered {what} with {field}={value!r}, wanted is {wanted}; fix or "
            "uninstall the package that provides it"
        )


def _wrong_type(what: str, answer: object, wanted: type[object]) -> PlanError:
    return PlanError(
        f"an extension answered {what} with {type(answer).__name__}, wanted is {wanted.__name__} "
        "or None; fix or uninstall the package that provides it"
    )
