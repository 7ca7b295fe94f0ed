# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The decision at call time: fill ``pg_options``, or pass the call through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cam_hccl_plugin.errors import CamHcclError, InjectionError, PlanError, SeamError
from cam_hccl_plugin.model import BufferPlan, PlannedGroup, SizeSource
from cam_hccl_plugin.model_config import is_positive_int
from cam_hccl_plugin.planning import plan_unlisted
from cam_hccl_plugin.settings import Settings

NEEDED_KEYWORDS = ("backend", "rank", "group_name")
"""Keywords of upstream's group creation that the plugin reads; ``pg_options`` it writes."""


class OptionsAdapter(Protocol):
    """The functions of :mod:`cam_hccl_plugin.hccl_options` that an injection uses."""

    def is_hccl(self, backend: Any) -> bool: ...
    def check_options(self, group_name: str, options: Any) -> None: ...
    def explicit_size(self, options: Any) -> Any: ...
    def sized_options(self, size_mib: int, options: Any) -> Any: ...
    def read_back(self, group: Any) -> Any: ...
    def close_group(self, group: Any) -> None: ...


@dataclass(frozen=True)
class CreatedGroup:
    """One HCCL group that went through: its plan, and the size that its options hold.

    ``held_mib`` was read back, but for a group left alone: there it is the caller's own,
    if any. ``rank`` is this process's rank in the group.
    """

    planned: PlannedGroup
    held_mib: Any
    rank: int = 0

    @property
    def effective_mib(self) -> int:
        """What HCCL allocates per area, in MiB."""
        return self.held_mib if is_positive_int(self.held_mib) else self.planned.effective_mib


class Injection:
    """Sizes the groups of one connector while it initialises.

    ``adjust`` may raise a planned size at the last moment, ``on_created`` looks at each
    group that went through; what they raise stops the start.
    """

    def __init__(
        self,
        plan: BufferPlan,
        settings: Settings,
        options: OptionsAdapter,
        upstream: str,
        adjust: Callable[[PlannedGroup], PlannedGroup] = lambda planned: planned,
        on_created: Callable[[Any, CreatedGroup], None] = lambda group, created: None,
    ) -> None:
        self.plan = plan
        self.upstream = upstream
        self._adjust = adjust
        self._on_created = on_created
        self.created: list[CreatedGroup] = []
        self._settings = settings
        self._options = options

    def create_group(self, create: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call upstream's ``create`` with a size where it makes an HCCL group.

        Raises:
            SeamError: the call does not carry the keywords that the plugin relies on.
            InjectionError: unusable options, or torch-npu holds another size than planned.
        """
        missing = [key for key in NEEDED_KEYWORDS if key not in kwargs]
        if missing:
            raise SeamError(
                f"init_afd_process_group was called without the keyword(s) {', '.join(missing)}; "
                f"found {', '.join(kwargs) or 'none'}; {self.upstream} is not supported"
            )
        if not self._options.is_hccl(kwargs["backend"]):
            return create(*args, **kwargs)
        name, given = kwargs["group_name"], kwargs.get("pg_options")
        planned = self._planned(name)
        self._options.check_options(name, given)
        explicit = self._options.explicit_size(given)
        if planned.source is SizeSource.LEFT_ALONE:
            created = CreatedGroup(planned, explicit, kwargs["rank"])
            return self._recorded(create(*args, **kwargs), created)
        if explicit is not None:
            planned = replace(planned, source=SizeSource.CALLER)
            group = create(*args, **kwargs)
            return self._verified(group, CreatedGroup(planned, explicit, kwargs["rank"]))
        if planned.size_mib is None:
            raise PlanError(
                f"{self.plan.connector} creates group {name}, its size cannot be derived and no "
                "fixed size covers it; set cam_hccl.buffer_size_mb or group_buffer_size_mb"
            )
        planned = replace(planned, source=planned.size_source, effective_mib=planned.size_mib)
        planned = self._adjust(planned)  # the caller gave no size after all
        size_mib = planned.effective_mib
        options = self._options.sized_options(size_mib, given)
        group = create(*args, **{**kwargs, "pg_options": options})
        return self._verified(group, CreatedGroup(planned, size_mib, kwargs["rank"]))

    def finish(self) -> None:
        """After-the-fact checks, once the connector has initialised.

        Raises:
            SeamError: no HCCL group went through.
            PlanError: ``group_buffer_size_mb`` names a group that was not created.
        """
        if not self.created:
            raise SeamError(
                f"{self.plan.connector} initialised and no HCCL group went through the cam_hccl "
                f"hook, so none was sized: the group creation of {self.upstream} no longer goes "
                "through init_afd_process_group in the connector's module"
            )
        if self.plan.groups_known:
            return
        names = [created.planned.name for created in self.created]
        unknown = sorted(set(self._settings.group_sizes_mib) - set(names))
        if unknown:
            raise PlanError(
                f"cam_hccl.group_buffer_size_mb names {', '.join(unknown)}, which "
                f"{self.plan.connector} did not create; its groups are {', '.join(names)}"
            )

    def _planned(self, name: str) -> PlannedGroup:
        for group in self.plan.groups:
            if group.name == name:
                return group
        return plan_unlisted(self.plan, self._settings, name)

    def _verified(self, group: Any, created: CreatedGroup) -> Any:
        """Read the size back; a group that holds another one is closed before the error."""
        try:
            held = self._options.read_back(group)
            if held != created.held_mib:
                raise InjectionError(
                    f"group {created.planned.name} was created with {created.held_mib} MB and "
                    f"torch-npu holds {held!r}: the size did not arrive, this stack is not "
                    "supported"
                )
        except CamHcclError:
            self._options.close_group(group)
            raise
        return self._recorded(group, created)

    def _recorded(self, group: Any, created: CreatedGroup) -> Any:
        try:
            self._on_created(group, created)
        except CamHcclError:
            self._options.close_group(group)
            raise
        self.created.append(created)
        return group
