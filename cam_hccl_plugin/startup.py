# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What happens around a connector: plan before any rendezvous, report after its groups exist."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from cam_hccl_plugin import vllm_adapter
from cam_hccl_plugin.errors import InjectionError, PlanError
from cam_hccl_plugin.injector import Injection, OptionsAdapter
from cam_hccl_plugin.log import LOGGER, RankLog
from cam_hccl_plugin.memory import GuardReport, cannot_fit, check_guard
from cam_hccl_plugin.model import (
    BufferPlan,
    ConnectorClaim,
    ConnectorIdentity,
    Role,
    SizingInputs,
)
from cam_hccl_plugin.planning import PlanRequest, npus_disagreement, plan_buffers, size_warnings
from cam_hccl_plugin.plugin_host import PluginHost
from cam_hccl_plugin.report import startup_line
from cam_hccl_plugin.settings import Settings

NO_AFD_WARNING = (
    "the cam_hccl flag is set, but no AFD configuration reached vLLM (additional_config has no "
    '"afd" object), so there is nothing to size; a second or a dotted --additional-config '
    "replaces the first: give cam_hccl and afd in one JSON"
)


class StackAdapter(OptionsAdapter, Protocol):
    """:mod:`cam_hccl_plugin.hccl_options` as a start uses it."""

    def device_total_bytes(self) -> int: ...


class ConnectorStart:
    """One CAM connector of this process, from its construction to its running groups."""

    def __init__(
        self,
        injection: Injection,
        inputs: SizingInputs | None,
        settings: Settings,
        guard: _MemoryGuard,
        log: RankLog,
    ) -> None:
        self.injection = injection
        self._inputs = inputs
        self._settings = settings
        self._guard = guard
        self._log = log

    def initialise(
        self,
        init: Callable[..., Any],
        activate: Callable[[Injection], AbstractContextManager[None]],
    ) -> Any:
        """Run the connector's own ``init`` with the injection active, then check and report.

        An exception of ``init`` passes through as it is, with the plan as a note.
        """
        self.injection.created.clear()
        try:
            with activate(self.injection):
                result = init()
            self.injection.finish()
        except Exception as error:
            self._add_context(error)
            raise
        self._report()
        return result

    def _report(self) -> None:
        plan, created = self.injection.plan, self.injection.created
        for group in created:
            for warning in size_warnings(plan, group.planned, group.effective_mib):
                if warning not in plan.warnings:
                    self._log.warning(warning)
        self._guard.check([group.effective_mib for group in created])
        sizes = [(g.planned.name, g.effective_mib, g.planned.source) for g in created]
        environment = str(vllm_adapter.environment_buffer())
        self._log.info(startup_line(plan, sizes, self._inputs, self._settings, environment))

    def _add_context(self, error: Exception) -> None:
        plan = self.injection.plan
        planned = plan.groups or (plan.fallback,)
        wanted = ", ".join(f"{g.name}={g.effective_mib}MB ({g.source.value})" for g in planned)
        done = ", ".join(g.planned.name for g in self.injection.created) or "none"
        context = (
            f"cam_hccl: {plan.connector} (role {plan.role.value}) failed to initialise; planned "
            f"groups: {wanted}; created before the failure: {done}; they take "
            f"{plan.device_memory_mib} MB of device memory in all; "
            f"HCCL_BUFFSIZE={vllm_adapter.environment_buffer()}"
        )
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(context)
        LOGGER.error("%s: %s", context, error)


class _MemoryGuard:
    """Warns once per connector; raises instead where the user asked for it."""

    def __init__(self, settings: Settings, utilization: Any, stack: StackAdapter) -> None:
        self._settings = settings
        self._utilization = utilization
        self._warned = False
        self._checked: list[int] | None = None
        try:
            self._total: int | None = stack.device_total_bytes()
            self._reason = ""
        except InjectionError as error:
            self._total, self._reason = None, str(error)

    def check(self, buffers_mib: list[int]) -> None:
        """Check these buffers, unless they were checked already.

        Raises:
            PlanError: they do not fit the device, or are short with ``on_memory_shortage``
                "error".
        """
        if self._checked == buffers_mib:
            return
        self._checked = list(buffers_mib)
        too_large = None if self._total is None else cannot_fit(self._total, buffers_mib)
        if too_large:
            raise PlanError(too_large)
        if self._total is None or self._utilization is None:
            reason = self._reason or "gpu_memory_utilization is not a number"
            self._complain(
                f"memory guard skipped: {reason}; the device memory could not be compared"
            )
            return
        ratio = self._settings.memory_guard_ratio
        report: GuardReport = check_guard(self._total, self._utilization, ratio, buffers_mib)
        if report.short:
            self._complain(str(report))

    def _complain(self, message: str) -> None:
        if self._settings.on_memory_shortage == "error":
            raise PlanError(
                f'{message}; cam_hccl.on_memory_shortage is "error", use "warn" to go on'
            )
        if not self._warned:
            LOGGER.warning("cam_hccl: %s", message)
        self._warned = True


def prepare(
    connector: Any,
    vllm_config: Any,
    *,
    host: Callable[[], PluginHost],
    stack: StackAdapter,
    upstream: str,
) -> ConnectorStart | None:
    """Plan the groups of a fresh connector; ``None`` if the plugin is off or it is not CAM-type.

    Called before any rendezvous: whatever can be known to be wrong is raised here, where
    the other ranks are not yet waiting.

    Raises:
        SettingsError: the flag is wrong.
        PlanError: an input is missing or wrong, or the groups cannot fit the device.
    """
    settings = vllm_adapter.read_flag(vllm_config)
    if settings is None:
        return None
    log = RankLog(first=not getattr(connector, "local_rank", 0))
    if vllm_adapter.afd_section(vllm_config) is None:
        log.warning(NO_AFD_WARNING)
    identity = vllm_adapter.read_identity(connector, vllm_config)
    plugins = host()
    claim = plugins.claim_connector(identity)
    if claim is None:
        log.info(f"{identity.class_name} is not CAM-type, none of its groups is sized")
        return None
    plan, inputs = _plan(connector, vllm_config, settings, plugins, identity, claim)
    plugins.plan_ready(plan)
    for message in (*_environment_problems(), *_disagreements(plan, inputs), *plan.warnings):
        log.warning(message)
    for message in plan.notes:
        log.info(message)
    guard = _MemoryGuard(settings, vllm_adapter.read_utilization(vllm_config), stack)
    guard.check([group.effective_mib for group in plan.groups or (plan.fallback,)])
    return ConnectorStart(Injection(plan, settings, stack, upstream), inputs, settings, guard, log)


def _plan(
    connector: Any,
    vllm_config: Any,
    settings: Settings,
    plugins: PluginHost,
    identity: ConnectorIdentity,
    claim: ConnectorClaim,
) -> tuple[BufferPlan, SizingInputs | None]:
    role = vllm_adapter.read_role(connector)
    topology = vllm_adapter.read_topology(connector, vllm_config, role, settings)
    inputs, missing = vllm_adapter.read_inputs(connector, vllm_config, topology, settings)
    needs = {}
    if inputs is not None:
        wanted = Role if claim.tokens_shared and settings.scope == "group" else (role,)
        needs = {each: plugins.role_need(claim, each, inputs) for each in wanted}
    request = PlanRequest(
        connector=identity.class_name,
        claim=claim,
        listed=plugins.describe_groups(claim, topology),
        role=role,
        settings=settings,
        needs=needs,
        missing_inputs=missing,
        caller_mib=vllm_adapter.read_caller_mib(connector, vllm_config),
        environment_mib=vllm_adapter.environment_buffer().effective_mib,
    )
    return plan_buffers(request), inputs


def _environment_problems() -> list[str]:
    problem = vllm_adapter.environment_buffer().problem
    return [problem] if problem else []


def _disagreements(plan: BufferPlan, inputs: SizingInputs | None) -> list[str]:
    found = npus_disagreement(plan.role, inputs.topology) if inputs else None
    return [found] if found else []


def check_launch(vllm_config: Any, afd_loaded: bool) -> bool:
    """Look at the finished VllmConfig in the process that parses the command line.

    A wrong flag is refused before any worker starts; a flag that can have no effect is
    said so. Runs once per engine.

    Returns:
        Whether a worker is expected to size a connector's groups.

    Raises:
        SettingsError: the flag is wrong.
    """
    settings = vllm_adapter.read_flag(vllm_config)
    if settings is None:
        return False
    log = RankLog(first=True)
    section = vllm_adapter.afd_section(vllm_config)
    if section is None:
        log.warning(NO_AFD_WARNING)
        return False
    if not afd_loaded:
        log.warning(
            "the cam_hccl flag and an AFD configuration are given, but afd_plugin is not loaded "
            "in this process (not installed, or left out of VLLM_PLUGINS), so nothing is sized"
        )
        return False
    connector = section.get("connector", section.get("afd_connector"))
    role = section.get("role", section.get("afd_role"))
    log.info(
        f"on for connector={connector} role={role} sizing={settings.sizing} "
        f"headroom={float(settings.headroom):g} scope={settings.scope}; the workers log the sizes"
    )
    return True
