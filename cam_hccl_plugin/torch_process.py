# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What torch knows about this process: stores, HCCL groups, registered operators.

torch is imported inside the functions, see :mod:`cam_hccl_plugin.hccl_options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cam_hccl_plugin.errors import InjectionError
from cam_hccl_plugin.hccl_options import explicit_size, is_hccl
from cam_hccl_plugin.log import LOGGER
from cam_hccl_plugin.operator_window import BUILDS, OperatorBuild

_STORE_ERRORS = (AttributeError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class ProcessGroup:
    """An HCCL group that torch-distributed knows; ``size_mib`` is its own size, if it has one."""

    name: str
    ranks: int
    size_mib: Any


def exchange(group: Any, key: str, mine: str) -> str | None:
    """Put ``mine`` under ``key`` into the group's store, or read what was put first.

    One ``compare_set``: no waiting, no collective. ``None`` where the store cannot.
    """
    import torch

    try:
        store = torch.distributed.distributed_c10d._world.pg_map[group][1]
        value = store.compare_set(key, "", mine)
        return value.decode() if isinstance(value, bytes) else str(value)
    except _STORE_ERRORS as error:
        LOGGER.debug("cam_hccl: roles not compared, the store cannot: %s", error)
        return None


def hccl_groups() -> list[ProcessGroup]:
    """Every HCCL group of this process, in the order of creation.

    Raises:
        InjectionError: this torch keeps its groups elsewhere.
    """
    try:
        import torch

        world = torch.distributed.distributed_c10d._world
        return [
            ProcessGroup(
                str(world.pg_names[group]), len(world.pg_group_ranks[group]), _own_size(group)
            )
            for group, (backend, _) in list(world.pg_map.items())
            # A group made without naming a backend is "undefined" in the first table.
            if is_hccl(backend) or is_hccl(world.pg_backend_config.get(group))
        ]
    except (
        AttributeError,
        ImportError,
        KeyError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise InjectionError(f"{type(error).__name__}: {error}") from error


def _own_size(group: Any) -> Any:
    import torch

    return explicit_size(group._get_backend(torch.device("npu")).options)


def loaded_builds() -> tuple[OperatorBuild, ...]:
    """The CAM Async operator builds that are registered in this process."""
    import torch

    return tuple(
        build
        for build in BUILDS
        if any(
            hasattr(getattr(getattr(torch, "ops", None), build.namespace, None), name)
            for name in build.operators
        )
    )
