# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""One CAM connector of this process, from its construction to its running groups."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from cam_hccl_plugin import hccl_options, torch_process, vllm_adapter
from cam_hccl_plugin.errors import InjectionError, PlanError, SeamError
from cam_hccl_plugin.flag_places import SWITCH_OFF
from cam_hccl_plugin.injector import CreatedGroup, Injection
from cam_hccl_plugin.ledger import (
    FROM_CALLER,
    FROM_DEFAULT,
    FROM_ENVIRONMENT,
    FROM_PLUGIN,
    LedgerEntry,
    ledger_table,
)
from cam_hccl_plugin.log import LOGGER, RankLog
from cam_hccl_plugin.memory_guard import MemoryGuard
from cam_hccl_plugin.model import BufferPlan, PlannedGroup, SizeSource, SizingInputs, Topology
from cam_hccl_plugin.model_config import is_positive_int
from cam_hccl_plugin.operator_window import WindowCheck, followed_mib
from cam_hccl_plugin.planning import size_warnings
from cam_hccl_plugin.report import startup_line
from cam_hccl_plugin.role_match import Fingerprint, mismatch, take_fingerprint
from cam_hccl_plugin.settings import MAX_BUFFER_MIB, Settings


@dataclass(frozen=True)
class Decision:
    """A plan and what it was made from."""

    plan: BufferPlan
    topology: Topology
    inputs: SizingInputs | None
    settings: Settings


class ConnectorStart:
    """Runs a connector's initialisation with its plan; checks and reports what came of it."""

    def __init__(
        self,
        decision: Decision,
        guard: MemoryGuard,
        log: RankLog,
        upstream: str,
        start_number: int,
    ) -> None:
        self._decision = decision
        self._guard = guard
        self._log = log
        self._upstream = upstream
        self._store_key = f"cam_hccl/fingerprint/{start_number}"
        self._starts = 0
        self._compared = False
        self.injection = Injection(
            decision.plan,
            decision.settings,
            hccl_options,
            upstream,
            adjust=self._followed,
            on_created=self._compare_roles,
        )

    def initialise(
        self,
        init: Callable[..., Any],
        activate: Callable[[Injection], AbstractContextManager[None]],
    ) -> Any:
        """Run the connector's own ``init`` with the injection active, then check and report.

        An exception of ``init`` passes through as it is, with the plan as a note.
        """
        self.injection.created.clear()
        self._compared = False
        self._starts += 1
        try:
            unsized_before = _unsized_groups()
            with activate(self.injection):
                result = init()
            self.injection.finish()
            self._refuse_unsized(_unsized_groups() - unsized_before)
            self._report()
        except Exception as error:
            self._add_context(error)
            raise
        return result

    def _refuse_unsized(self, names: set[str]) -> None:
        """Refuse groups that the connector made past the hook and without a size of their own.

        Raises:
            SeamError: there are some; the environment would decide what they take.
        """
        past = sorted(names - {created.planned.name for created in self.injection.created})
        if past:
            raise SeamError(
                f"{self._decision.plan.connector} created the HCCL group(s) {', '.join(past)} past "
                f"the cam_hccl hook and without a size, so none was given ({self._upstream}); "
                "create them by the name init_afd_process_group of the connector's module in the "
                "thread that initialises, or with hccl_buffer_size in their own options, or "
                f"{SWITCH_OFF}"
            )

    def _followed(self, planned: PlannedGroup) -> PlannedGroup:
        """Raise a derived size to the window that the loaded operators believe in."""
        plan, settings = self._decision.plan, self._decision.settings
        if (
            settings.operator_window != "follow"
            or planned.source is not SizeSource.DERIVED
            or planned.size_mib is None
            or not plan.claim.async_operators
        ):
            return planned
        builds = torch_process.loaded_builds()
        if not builds:
            self._log.warning(
                'operator_window "follow": no known build of the CAM Async operators is loaded, '
                f"group {planned.name} keeps {planned.size_mib} MB"
            )
        variables = vllm_adapter.window_variables()
        size = followed_mib(planned.size_mib, builds, variables)
        if size == planned.size_mib:
            return planned
        if size > MAX_BUFFER_MIB:
            found = ", ".join(f"{b.variable}={variables[b.variable]}" for b in builds)
            raise PlanError(
                f'operator_window "follow": group {planned.name} would need {size} MB ({found}) '
                f"and HCCL takes at most {MAX_BUFFER_MIB}; correct the variable"
            )
        followed = replace(planned, size_mib=size, effective_mib=size, source=SizeSource.FOLLOWED)
        known = plan.groups or (planned,)
        self._guard.check(
            [size if group.name == planned.name else group.effective_mib for group in known]
        )
        return followed

    def _compare_roles(self, group: Any, created: CreatedGroup) -> None:
        """Put or read the fingerprint, once, in the first group that spans both roles.

        Raises:
            InjectionError: the roles do not match and ``on_mismatch`` is "error".
        """
        if self._compared or not created.planned.request.spans_roles:
            return
        self._compared = True
        decision = self._decision
        mine = take_fingerprint(
            claim=decision.plan.claim,
            role=decision.plan.role,
            rank=created.rank,
            topology=decision.topology,
            inputs=decision.inputs,
            settings=decision.settings,
            size_mib=created.effective_mib,
        )
        key = f"{self._store_key}/{self._starts}"
        stored = torch_process.exchange(group, key, mine.encode())
        other = None if stored is None else Fingerprint.decode(stored)
        if other is None:
            LOGGER.debug("cam_hccl: no fingerprint of the other ranks to compare with")
            return
        difference = mismatch(mine, other)
        if difference is None:
            return
        if decision.settings.on_mismatch == "error":
            raise InjectionError(difference)
        LOGGER.warning("cam_hccl: %s", difference)

    def _report(self) -> None:
        decision, created = self._decision, self.injection.created
        plan = decision.plan
        warnings = [
            warning
            for group in created
            for warning in size_warnings(plan, group.planned, group.effective_mib)
        ]
        warnings += self._window_warnings()
        for warning in dict.fromkeys(warnings):
            if warning not in plan.warnings:
                self._log.warning(warning)
        self._guard.check([group.effective_mib for group in created])
        sizes = [(g.planned.name, g.effective_mib, g.planned.source) for g in created]
        environment = vllm_adapter.environment_buffer()
        line = startup_line(plan, sizes, decision.inputs, decision.settings, str(environment))
        self._log.info(line)
        if decision.settings.ledger:
            self._log_ledger()

    def _window_warnings(self) -> list[str]:
        plan = self._decision.plan
        if not plan.claim.async_operators:
            return []
        variables = vllm_adapter.window_variables()
        return [
            warning
            for build in torch_process.loaded_builds()
            for group in self.injection.created
            if group.planned.request.spans_roles
            for warning in WindowCheck(
                build=build,
                role=plan.role,
                group=group.planned.name,
                raw=variables[build.variable],
                buffer_mib=group.effective_mib,
                operator_bytes=plan.need.operator_bytes if plan.need else None,
                source=group.planned.source,
            ).warnings()
        ]

    def _log_ledger(self) -> None:
        try:
            known = torch_process.hccl_groups()
        except InjectionError as error:
            self._log.info(f"ledger skipped: the HCCL groups cannot be listed: {error}")
            return
        ours = {
            group.planned.name
            for group in self.injection.created
            if group.planned.source not in (SizeSource.CALLER, SizeSource.LEFT_ALONE)
        }
        environment = vllm_adapter.environment_buffer()
        unsized = FROM_DEFAULT if environment.raw is None else FROM_ENVIRONMENT
        entries = [
            LedgerEntry(group.name, group.ranks, environment.effective_mib, unsized)
            if not is_positive_int(group.size_mib)
            else LedgerEntry(
                group.name,
                group.ranks,
                group.size_mib,
                FROM_PLUGIN if group.name in ours else FROM_CALLER,
            )
            for group in known
        ]
        self._log.info(f"HCCL communicators of this process:\n{ledger_table(entries)}")

    def _add_context(self, error: Exception) -> None:
        plan = self._decision.plan
        planned = plan.groups or (plan.fallback,)
        wanted = ", ".join(f"{g.name}={g.effective_mib}MB ({g.source.value})" for g in planned)
        done = ", ".join(g.planned.name for g in self.injection.created) or "none"
        context = (
            f"cam_hccl: {plan.connector} (role {plan.role.value}) failed to initialise; planned "
            f"groups: {wanted}; created before the failure: {done}; the planned groups take "
            f"{plan.device_memory_mib} MB of device memory; "
            f"HCCL_BUFFSIZE={vllm_adapter.environment_buffer()}"
        )
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(context)
        LOGGER.error("%s: %s", context, error)


def _unsized_groups() -> set[str]:
    """HCCL groups of this process without a size of their own; none where torch hides them."""
    try:
        return {group.name for group in torch_process.hccl_groups() if group.size_mib is None}
    except InjectionError as error:
        LOGGER.debug("cam_hccl: groups made past the hook cannot be noticed: %s", error)
        return set()
