# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Frozen values that travel through the plugin, and the unit they are in.

HCCL's "MB" is a MiB. Names say the unit: ``_bytes``, ``_mib``, ``_tokens``, ``_ranks``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MiB = 2**20
"""Bytes in one MiB, the unit of ``hccl_buffer_size`` and of ``HCCL_BUFFSIZE``."""

HCCL_DEFAULT_MIB = 200
"""Buffer of a communicator without a size of its own and without ``HCCL_BUFFSIZE`` (CANN)."""

AREAS_PER_COMMUNICATOR = 2
"""Device memory of a communicator in buffers: one send and one receive area (CANN)."""

_NO_EXTRA: Mapping[str, object] = MappingProxyType({})


class Role(str, enum.Enum):
    """Side of the Attention-FFN split that a process is on."""

    ATTENTION = "attention"
    FFN = "ffn"

    @property
    def other(self) -> Role:
        """The opposite side."""
        return Role.FFN if self is Role.ATTENTION else Role.ATTENTION


BOTH_ROLES = frozenset(Role)


@dataclass(frozen=True)
class ModelShape:
    """The three numbers of a MoE model that decide a buffer.

    ``hidden_size`` in elements, ``topk`` and ``routed_experts`` in experts.
    """

    hidden_size: int
    topk: int
    routed_experts: int


@dataclass(frozen=True)
class Topology:
    """Ranks of one AFD deployment.

    ``attn_ranks_per_dp`` is what the connector tells its operators, ``tp_pcp_ranks`` is
    TP x PCP of this process, ``npus_per_dp_group`` is the user's override; ``None`` where
    unknown. ``npus_per_dp_group`` and ``tp_pcp_ranks`` describe Attention.
    """

    attention_ranks: int
    ffn_ranks: int
    num_ubatches: int = 1
    attn_ranks_per_dp: int | None = None
    tp_pcp_ranks: int | None = None
    npus_per_dp_group: int | None = None


@dataclass(frozen=True)
class SizingInputs:
    """All that a role's byte requirement depends on."""

    model: ModelShape
    topology: Topology
    max_num_batched_tokens: int
    dynamic_quant: bool


@dataclass(frozen=True)
class ConnectorIdentity:
    """A connector as an extension sees it.

    ``base_names`` are the class names in method resolution order, the class itself
    first. ``extra_config`` is AFD's ``connector_extra_config`` as given, read-only.
    """

    class_name: str
    base_names: tuple[str, ...]
    extra_config: Mapping[str, object] = field(default_factory=lambda: _NO_EXTRA)


@dataclass(frozen=True)
class GroupRequest:
    """An HCCL group that a connector will create, and the roles whose ranks are in it."""

    name: str
    roles: frozenset[Role] = BOTH_ROLES

    @property
    def spans_roles(self) -> bool:
        """Whether Attention and FFN ranks meet in this group."""
        return self.roles == BOTH_ROLES


@dataclass(frozen=True)
class ConnectorClaim:
    """The answer to "is this connector CAM-type?".

    ``kind`` names the rules that apply. ``tokens_shared`` says that both roles must run
    with the same ``max_num_batched_tokens``, so that each can compute the other's size;
    ``ubatches_shared`` that they must count the same ubatches; ``async_operators`` that the
    connector runs the CAM Async operators, some builds of which believe in a window size.
    """

    kind: str
    tokens_shared: bool = False
    ubatches_shared: bool = False
    async_operators: bool = False


@dataclass(frozen=True)
class RoleNeed:
    """What one role needs in each of its windows, in bytes, before any headroom.

    ``operator_bytes`` is ``None`` where the operators' own need is not known.
    ``warnings`` are operator limits that the inputs exceed, as sentences.
    """

    published_bytes: int
    operator_bytes: int | None
    npus_per_dp_group: int
    warnings: tuple[str, ...] = ()


class SizeSource(str, enum.Enum):
    """Where a group's size came from, in order of precedence."""

    CALLER = "caller's options"
    GROUP = "group_buffer_size_mb"
    LEFT_ALONE = "group_buffer_size_mb null"
    FIXED = "buffer_size_mb"
    DERIVED = "derived"
    FOLLOWED = "raised to the operator window"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class PlannedGroup:
    """One HCCL group of this process and the size it gets.

    ``size_mib`` is what the plugin gives unless the caller's own options carry a size;
    ``None`` where it has none to give. ``effective_mib`` is what HCCL is expected to
    allocate per area, a size of the caller or of the environment included, and ``source``
    is where that came from; ``size_source`` is where ``size_mib`` came from.
    """

    request: GroupRequest
    size_mib: int | None
    effective_mib: int
    source: SizeSource
    size_source: SizeSource

    @property
    def name(self) -> str:
        """Group name, as the connector spells it."""
        return self.request.name


@dataclass(frozen=True)
class BufferPlan:
    """Sizes decided for one role of one connector.

    ``groups`` lists this role's groups; it is empty where only the connector knows them
    (``groups_known`` is false), and then ``fallback`` is what any group gets. ``need`` is
    ``None`` if every size is fixed and the inputs were not available; ``derived_mib`` is
    the role's own derived size, ``unsized_mib`` what a group is expected to get that is
    left alone. ``warnings`` and ``notes`` are sentences for the log, at
    WARNING and INFO; ``floor_note`` says that the operators' need raised the size.
    """

    connector: str
    claim: ConnectorClaim
    role: Role
    groups_known: bool
    groups: tuple[PlannedGroup, ...]
    fallback: PlannedGroup
    need: RoleNeed | None
    derived_mib: int | None
    unsized_mib: int = HCCL_DEFAULT_MIB
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    floor_note: str = ""

    @property
    def selected_mib(self) -> int:
        """The largest buffer among this role's groups, in MiB."""
        return max((g.effective_mib for g in self.groups), default=self.fallback.effective_mib)

    @property
    def device_memory_mib(self) -> int:
        """Device memory that this role's planned groups take, in MiB."""
        counted = self.groups or (self.fallback,)
        return AREAS_PER_COMMUNICATOR * sum(g.effective_mib for g in counted)
