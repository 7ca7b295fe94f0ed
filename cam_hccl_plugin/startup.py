# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What happens around a connector: plan before any rendezvous, report after its groups exist."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cam_hccl_plugin import hccl_options, vllm_adapter
from cam_hccl_plugin.connector_start import ConnectorStart, Decision
from cam_hccl_plugin.log import RankLog
from cam_hccl_plugin.memory_guard import MemoryGuard
from cam_hccl_plugin.model import Role, SizeSource
from cam_hccl_plugin.planning import PlanRequest, npus_disagreement, plan_buffers
from cam_hccl_plugin.settings import Settings
from cam_hccl_plugin.sizing import decimal_text

if TYPE_CHECKING:
    from cam_hccl_plugin.plugin_host import PluginHost

NO_AFD_WARNING = (
    "the cam_hccl flag is set, but no AFD configuration reached vLLM (additional_config has no "
    '"afd" object), so there is nothing to size; a second or a dotted --additional-config '
    "replaces the first: give cam_hccl and afd in one JSON"
)

OWN_AFD_WARNING = (
    'no AFD configuration reached vLLM (additional_config has no "afd" object), the connector was '
    "given one of its own; give cam_hccl and afd in one JSON"
)


def prepare(
    connector: Any,
    vllm_config: Any,
    *,
    host: Callable[[], PluginHost],
    upstream: str,
    start_number: int = 0,
) -> ConnectorStart | None:
    """Plan the groups of a fresh connector; ``None`` if the plugin is off or it is not CAM-type.

    Called before any rendezvous: whatever can be known to be wrong is raised here, where
    the other ranks are not yet waiting.

    Args:
        host: makes the extension host; called only with the plugin on.
        upstream: name and version of upstream, for errors.
        start_number: how many CAM connectors this process created before.

    Raises:
        SettingsError: the flag is wrong.
        PlanError: an input is missing or wrong, or the groups cannot fit the device.
        InjectionError: torch-npu has no options to put a size into.
    """
    settings = vllm_adapter.read_flag(vllm_config)
    if settings is None:
        return None
    log = RankLog(first=not getattr(connector, "local_rank", 0))
    if vllm_adapter.afd_section(vllm_config) is None:
        log.warning(OWN_AFD_WARNING)
    decision = _decide(connector, vllm_config, settings, host(), log)
    if decision is None:
        return None
    for message in _warnings(decision):
        log.warning(message)
    for message in decision.plan.notes:
        log.info(message)
    utilization = vllm_adapter.read_utilization(vllm_config)
    guard = _checked_device(decision, utilization)
    return ConnectorStart(decision, guard, log, upstream, start_number)


def _checked_device(decision: Decision, utilization: Fraction | None) -> MemoryGuard:
    """Check that torch-npu can take the sizes and the device can hold them."""
    plan = decision.plan
    planned = plan.groups or (plan.fallback,)
    if any(group.source is not SizeSource.LEFT_ALONE for group in planned):
        hccl_options.require_options()
    guard = MemoryGuard(decision.settings, utilization, hccl_options.device_total_bytes)
    guard.check([group.effective_mib for group in planned])
    return guard


def _decide(
    connector: Any, vllm_config: Any, settings: Settings, plugins: PluginHost, log: RankLog
) -> Decision | None:
    """The plan of this process and what it was made from; ``None`` if nothing is to be sized."""
    identity = vllm_adapter.read_identity(connector, vllm_config)
    claim = plugins.claim_connector(identity)
    if claim is None:
        log.info(f"{identity.class_name} is not CAM-type, none of its groups is sized")
        return None
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
    plan = plan_buffers(request)
    plugins.plan_ready(plan)
    return Decision(plan, topology, inputs, settings)


def _warnings(decision: Decision) -> list[str]:
    plan = decision.plan
    found = [vllm_adapter.environment_buffer().problem]
    if decision.inputs is not None:
        found.append(npus_disagreement(plan.role, decision.topology) or "")
    if decision.settings.operator_window == "follow" and not plan.claim.async_operators:
        found.append(
            f'operator_window "follow" has no effect: the operators of {plan.connector} believe in '
            "no window variable"
        )
    return [message for message in (*found, *plan.warnings) if message]


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
        f"headroom={decimal_text(settings.headroom)} scope={settings.scope}; "
        "the workers log the sizes"
    )
    return True
