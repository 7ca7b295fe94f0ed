# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Questions to the real torch-npu, each answered in a forked process of its own.

Arguments and results are JSON values.  No plugin is loaded.
"""

from __future__ import annotations

from typing import Any

#: What torch-npu raises when it does not take a value.
_REFUSALS = (TypeError, ValueError, RuntimeError)


def _error(error: BaseException) -> dict[str, str]:
    return {"type": type(error).__name__, "message": str(error)}


def _options(hccl_config: dict[str, Any]) -> Any:
    import torch_npu

    options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
    options.hccl_config = hccl_config
    return options


def _one_rank_group(options: Any) -> Any:
    import torch.distributed as dist

    dist.init_process_group(
        "hccl", store=dist.HashStore(), world_size=1, rank=0, pg_options=options
    )
    return dist.distributed_c10d._get_default_group()


def _backend(group: Any) -> Any:
    import torch

    return group._get_backend(torch.device("npu"))


def size_through_a_group(hccl_config: dict[str, Any] | None) -> dict[str, Any]:
    """Assign a configuration, make a group, make its communicator; say where it stopped."""
    try:
        options = None if hccl_config is None else _options(hccl_config)
    except _REFUSALS as error:
        return {"stopped_at": "assignment", "error": _error(error)}
    try:
        group = _one_rank_group(options)
        read_back = dict(_backend(group).options.hccl_config)
    except _REFUSALS as error:
        return {"stopped_at": "group", "error": _error(error)}
    try:
        _backend(group).get_hccl_comm_name(0)
    except _REFUSALS as error:
        return {"stopped_at": "communicator", "read_back": read_back, "error": _error(error)}
    return {"stopped_at": None, "read_back": read_back}


def options_of_another_type(kind: str) -> dict[str, Any]:
    """Hand over something that is no HCCL options object."""
    import torch.distributed as dist

    wrong = {
        "dict": {"hccl_buffer_size": 321},
        "int": 321,
        "gloo": dist.ProcessGroupGloo._Options(),
    }[kind]
    group = _one_rank_group(wrong)
    _backend(group).get_hccl_comm_name(0)
    return {"read_back": dict(_backend(group).options.hccl_config)}


def change_options_afterwards() -> dict[str, Any]:
    """Change the options object once the group has it; torch-npu is asked again."""
    options = _options({"hccl_buffer_size": 321})
    group = _one_rank_group(options)
    options.hccl_config = {"hccl_buffer_size": 99}
    _backend(group).get_hccl_comm_name(0)
    return {"read_back": dict(_backend(group).options.hccl_config)}


def environment_change_between_groups(first: str | None, second: str) -> dict[str, Any]:
    """Two communicators of one process, with HCCL_BUFFSIZE changed in between."""
    import os

    import torch.distributed as dist

    if first is not None:
        os.environ["HCCL_BUFFSIZE"] = first
    _backend(_one_rank_group(None)).get_hccl_comm_name(0)
    os.environ["HCCL_BUFFSIZE"] = second
    _backend(dist.new_group([0], backend="hccl")).get_hccl_comm_name(0)
    return {}


def name_before_and_after_the_communicator() -> dict[str, Any]:
    """``init_comm=False`` asks for the name only."""
    backend = _backend(_one_rank_group(None))
    before = backend.get_hccl_comm_name(0, init_comm=False)
    backend.get_hccl_comm_name(0)
    return {"before": before, "after": backend.get_hccl_comm_name(0, init_comm=False)}


def device_memory() -> dict[str, Any]:
    """What a worker is told about its device."""
    import torch

    torch.npu.set_device(0)
    free, total = torch.npu.mem_get_info()
    return {"free": free, "total": total}


def loaded_modules() -> dict[str, Any]:
    """The modules that a rank finds imported when it is forked."""
    import sys

    return {"modules": sorted(name for name in sys.modules if "." not in name)}
