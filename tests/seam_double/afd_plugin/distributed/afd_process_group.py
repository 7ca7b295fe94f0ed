# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Creation of the connectors' process groups.

``init_afd_process_group`` hands everything to the module attribute ``create_group``, and
``destroy_group`` undoes it: a unit test without torch replaces these two (and nothing else)
with its own recorder.  A replacement of ``create_group`` receives the keywords of
``init_afd_process_group`` and returns an object whose ``_get_backend(device)`` offers
``get_hccl_comm_name(rank)``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from afd_plugin.generation import TAKES_BUFFER_SIZE


def _create_torch_group(
    *,
    backend: str,
    init_method: str,
    world_size: int,
    rank: int,
    group_name: str,
    timeout: timedelta,
    pg_options: Any | None = None,
    on_rendezvous: Any | None = None,
) -> Any:
    """Create a real torch process group beside the default one."""
    from torch.distributed import Backend, PrefixStore, distributed_c10d
    from torch.distributed.rendezvous import rendezvous

    store, rank, world_size = next(rendezvous(init_method, rank, world_size, timeout=timeout))
    store.set_timeout(timeout)
    if on_rendezvous is not None:
        on_rendezvous(store)
    group, _ = distributed_c10d._new_process_group_helper(
        world_size,
        rank,
        [],
        Backend(backend or "undefined"),
        PrefixStore(group_name, store),
        group_name=group_name,
        backend_options=pg_options,
        timeout=timeout,
    )
    distributed_c10d._world.pg_group_ranks[group] = {i: i for i in range(world_size)}
    return group


def _destroy_torch_group(group: Any) -> None:
    import torch.distributed

    torch.distributed.destroy_process_group(group)


create_group = _create_torch_group
destroy_group = _destroy_torch_group


def npu_device() -> Any:
    """``torch.device("npu")``, or the text ``npu`` where torch is not installed."""
    try:
        import torch
    except ImportError:
        return "npu"
    return torch.device("npu")


def hccl_options(hccl_buffer_size: int | None) -> Any | None:
    """Generation b's options for one group: a fresh object, or ``None`` without a size."""
    if hccl_buffer_size is None:
        return None
    import torch_npu

    options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
    options.hccl_config = {"hccl_buffer_size": hccl_buffer_size}
    return options


if TAKES_BUFFER_SIZE:

    def init_afd_process_group(
        *,
        backend: str,
        init_method: str,
        world_size: int,
        rank: int,
        group_name: str,
        timeout: timedelta,
        pg_options: Any | None = None,
        on_rendezvous: Any | None = None,
    ) -> Any:
        """Create one process group of a connector (generation b)."""
        return create_group(
            backend=backend,
            init_method=init_method,
            world_size=world_size,
            rank=rank,
            group_name=group_name,
            timeout=timeout,
            pg_options=pg_options,
            on_rendezvous=on_rendezvous,
        )

else:

    def init_afd_process_group(
        *,
        backend: str,
        init_method: str,
        world_size: int,
        rank: int,
        group_name: str,
        timeout: timedelta,
        pg_options: Any | None = None,
    ) -> Any:
        """Create one process group of a connector (generation a)."""
        return create_group(
            backend=backend,
            init_method=init_method,
            world_size=world_size,
            rank=rank,
            group_name=group_name,
            timeout=timeout,
            pg_options=pg_options,
        )
