# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What a world is to do, and what its ranks report.

A :class:`World` is plain data: it crosses to the warmed process as JSON.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

ASYNC = "CAMAsyncAFDConnector"
CAMP2P = "CAMP2pAFDConnector"


@dataclass(frozen=True)
class Connector:
    """One connector that every rank of the world creates.

    ``tokens`` is ``max_num_batched_tokens`` of (Attention, FFN).  ``flag`` is
    ``additional_config["cam_hccl"]`` of every rank; None leaves it out.  ``by_role`` overrides
    fields for the ranks of one role, also ``num_attention_ranks`` and ``num_ffn_ranks``, which
    are otherwise the world's.
    """

    name: str = ASYNC
    tokens: tuple[int, int] = (8192, 8192)
    hidden_size: int = 7168
    topk: int = 8
    routed_experts: int = 256
    extra: dict[str, Any] = field(default_factory=dict)
    flag: dict[str, Any] | None = field(default_factory=dict)
    num_ubatches: int = 0
    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.9
    by_role: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """``attention_ranks`` + ``ffn_ranks`` processes and the steps that each takes.

    A step is a dict with ``do`` and arguments, see ``rank.py``.  Without ``steps`` each
    connector is created, initialised and closed, one after the other.  ``env`` is set in each
    rank before anything is loaded.  ``caller_hccl_config`` makes generation b connectors pass
    options that hold this, or, when it is a text, options of that other type (``gloo``,
    ``dict``).  ``log_level`` is given to the logger ``vllm.cam_hccl``.  ``own_group`` is the HCCL
    group that a worker has before any connector.  ``upstream`` is the folder of a real checkout.
    ``env_by_role`` adds to ``env``.  With ``one_port`` all groups but the own one meet at the
    same address.  ``grace_seconds`` is how long ranks go on once another has failed.
    """

    attention_ranks: int = 2
    ffn_ranks: int = 1
    connectors: tuple[Connector, ...] = (Connector(),)
    env: dict[str, str] = field(default_factory=dict)
    generation: str = "a"
    caller_hccl_config: dict[str, Any] | str | None = None
    steps: tuple[dict[str, Any], ...] = ()
    log_level: str | None = None
    own_group: bool = True
    afd_before_plugins: bool = False
    upstream: str | None = None
    timeout_seconds: float = 60.0
    env_by_role: dict[str, dict[str, str]] = field(default_factory=dict)
    one_port: bool = False
    grace_seconds: float = 2.0

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.attention_ranks + self.ffn_ranks

    def to_json(self) -> dict[str, Any]:
        """The world as JSON values, with the default steps filled in."""
        values = asdict(self)
        values["steps"] = list(self.steps) or [
            {"do": do, "connector": index}
            for index in range(len(self.connectors))
            for do in ("create", "init", "close")
        ]
        return values


@dataclass(frozen=True)
class Group:
    """One process group of one rank, from what was asked to what reached HCCL.

    ``requested`` is the ``hccl_config`` of the options handed to torch (None: no options),
    ``read_back`` the one torch-npu holds, ``struct_mb`` the size in the structure that the C
    interface received (None: not an HCCL group, or no communicator was made).
    """

    name: str
    backend: str
    requested: dict[str, Any] | None
    read_back: dict[str, Any] | None
    struct_mb: int | None
    struct_op_expansion_mode: int | None


@dataclass(frozen=True)
class RankReport:
    """All that one rank told, and what the shim recorded of its process.

    ``hccl_buffsize`` and ``environ_changed`` compare the environment before plugins are loaded
    (or after the last ``setenv``) with the end.  ``initialized`` has one entry for each ``init``
    step, also a failed one.  ``destroyed`` lists groups whose communicator was destroyed,
    ``groups_left`` those that torch still knows in the end.
    """

    rank: int
    role: str
    groups: tuple[Group, ...]
    logs: tuple[tuple[str, str], ...]
    errors: tuple[dict[str, Any], ...]
    hccl_buffsize: tuple[str | None, str | None]
    environ_changed: tuple[str, ...]
    plugin_loaded: bool
    initialized: tuple[bool, ...]
    caller_options_after: tuple[dict[str, Any], ...]
    destroyed: tuple[str, ...]
    groups_left: tuple[str, ...]
    peak_rss_mib: float
    private_mib: float

    def sizes(self) -> dict[str, int | None]:
        """Struct size by name, of the connectors' HCCL groups in order of creation."""
        return {
            group.name: group.struct_mb
            for group in self.groups
            if group.backend == "hccl" and group.name != "default"
        }

    @property
    def default_group(self) -> Group:
        """The worker's own group, made with no size before any connector."""
        return next(group for group in self.groups if group.name == "default")

    def log_text(self, level: str | None = None) -> str:
        """The lines of ``vllm.cam_hccl``, of one level or of all."""
        return "\n".join(text for name, text in self.logs if level in (None, name))


@dataclass(frozen=True)
class WorldReport:
    """The reports of all ranks, Attention first; a rank that was killed left none."""

    ranks: tuple[RankReport, ...]
    seconds: float

    def of(self, role: str) -> list[RankReport]:
        """The ranks of ``attention`` or ``ffn``."""
        return [rank for rank in self.ranks if rank.role == role]
