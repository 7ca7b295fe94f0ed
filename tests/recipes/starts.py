# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Starts a worker of a recipe on the plugin's own code, with stand-ins for vLLM and torch-npu."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

from launches import Command

from cam_hccl_plugin import hccl_options, startup, torch_process
from cam_hccl_plugin.model import MiB
from cam_hccl_plugin.operator_window import OperatorBuild
from cam_hccl_plugin.plugin_host import build_host
from cam_hccl_plugin.torch_process import ProcessGroup

DIE_MIB = 64 * 1024
"""Memory of one 910C die."""

DEEPSEEK_V3_2 = {"hidden_size": 7168, "num_experts_per_tok": 8, "n_routed_experts": 256}


@dataclass(frozen=True)
class WorkerArguments:
    """What a worker learns from the command line of a recipe."""

    additional_config: dict[str, Any]
    tokens: int
    tensor_parallel: int
    ubatches: int
    utilization: float
    model: dict[str, int] = field(default_factory=lambda: dict(DEEPSEEK_V3_2))

    @classmethod
    def of(cls, command: Command) -> WorkerArguments:
        options = command.options
        return cls(
            command.additional_config,
            command.tokens,
            int(options["--tensor-parallel-size"]),
            int(options.get("--ubatch-size", 0)),
            float(options["--gpu-memory-utilization"]),
        )


@dataclass(frozen=True)
class Machine:
    """What a worker finds: the die, the loaded operator builds, the other HCCL groups."""

    die_mib: int = DIE_MIB
    builds: tuple[OperatorBuild, ...] = ()
    other_groups: tuple[ProcessGroup, ...] = ()
    hccl_buffsize: str | None = None


@contextlib.contextmanager
def _stand_ins(machine: Machine, created: list[ProcessGroup]) -> Iterator[None]:
    """torch-npu: a group holds the size that it was handed; torch: the groups so far."""
    environment = {} if machine.hccl_buffsize is None else {"HCCL_BUFFSIZE": machine.hccl_buffsize}
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.multiple(
            hccl_options,
            check_options=lambda name, options: None,
            sized_options=lambda size_mib, options: size_mib,
            read_back=lambda group: group["pg_options"],
            device_total_bytes=lambda: machine.die_mib * MiB,
        ),
        mock.patch.multiple(
            torch_process,
            exchange=lambda group, key, mine: None,
            loaded_builds=lambda: machine.builds,
            hccl_groups=lambda: [*machine.other_groups, *created],
        ),
    ):
        yield


def _connector(afd: dict[str, Any]) -> Any:
    extra = afd.get("connector_extra_config", {})
    attributes = {
        "local_rank": 0,
        "afd_config": SimpleNamespace(
            role=afd["role"],
            num_attention_ranks=afd["num_attention_ranks"],
            num_ffn_ranks=afd["num_ffn_ranks"],
        ),
        "extra_info": SimpleNamespace(
            attn_ranks_per_dp=extra.get("attn_ranks_per_dp"),
            dynamic_quant=extra.get("dynamicQuant"),
        ),
    }
    return type(afd["connector"], (), attributes)()


def _vllm_config(arguments: WorkerArguments) -> Any:
    return SimpleNamespace(
        additional_config=arguments.additional_config,
        kv_transfer_config=None,
        scheduler_config=SimpleNamespace(max_num_batched_tokens=arguments.tokens),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=arguments.tensor_parallel,
            prefill_context_parallel_size=1,
            num_ubatches=arguments.ubatches,
        ),
        model_config=SimpleNamespace(hf_text_config=SimpleNamespace(**arguments.model)),
        cache_config=SimpleNamespace(gpu_memory_utilization=arguments.utilization),
    )


@contextlib.contextmanager
def _recorded(lines: list[str]) -> Iterator[None]:
    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname} {record.getMessage()}")

    logger = logging.getLogger("vllm.cam_hccl")
    keep, level = Keep(), logger.level
    logger.addHandler(keep)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(keep)
        logger.setLevel(level)


def start_worker(
    arguments: WorkerArguments, machine: Machine | None = None
) -> tuple[dict[str, int], list[str]]:
    """The MiB of each group of one worker, and what it logs, each line with its level in front."""
    lines: list[str] = []
    created: list[ProcessGroup] = []
    config = _vllm_config(arguments)
    afd = arguments.additional_config["afd"]

    def create(**keywords: Any) -> dict[str, Any]:
        name = keywords["group_name"]
        ranks = afd["num_ffn_ranks"] + (name != "afd_moe") * afd["num_attention_ranks"]
        created.append(ProcessGroup(name, ranks, keywords["pg_options"]))
        return keywords

    with _stand_ins(machine or Machine(), created), _recorded(lines):
        startup.check_launch(config, afd_loaded=True)
        start = startup.prepare(
            _connector(afd), config, host=lambda: build_host(installed=False), upstream="a stand-in"
        )
        assert start is not None
        injection = start.injection

        def init() -> None:
            for group in injection.plan.groups:
                keywords = {"backend": "hccl", "rank": 0, "group_name": group.name}
                injection.create_group(create, (), keywords)

        start.initialise(init, lambda _: contextlib.nullcontext())
    return {group.name: group.size_mib for group in created}, lines
