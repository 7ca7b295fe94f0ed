# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Starts a worker of a recipe on the plugin's own code, with stand-ins for vLLM and torch-npu."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from launches import Command

from cam_hccl_plugin import startup
from cam_hccl_plugin.model import BufferPlan
from cam_hccl_plugin.plugin_host import build_host

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


class RecordingStack:
    """Stands for torch-npu: a group holds the size that it was handed."""

    def __init__(self, total_mib: int = DIE_MIB) -> None:
        self._total_bytes = total_mib * 2**20

    def is_hccl(self, backend: Any) -> bool:
        return backend == "hccl"

    def check_options(self, group_name: str, options: Any) -> None:
        assert options is None

    def explicit_size(self, options: Any) -> Any:
        return options

    def sized_options(self, size_mib: int, options: Any) -> Any:
        return size_mib

    def read_back(self, group: Any) -> Any:
        return group["pg_options"]

    def close_group(self, group: Any) -> None:
        raise AssertionError("no group is closed")

    def device_total_bytes(self) -> int:
        return self._total_bytes


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
    arguments: WorkerArguments, stack: RecordingStack | None = None
) -> tuple[BufferPlan, list[str]]:
    """The plan of one worker and what it logs, each line with its level in front."""
    lines: list[str] = []
    config = _vllm_config(arguments)
    with _recorded(lines):
        startup.check_launch(config, afd_loaded=True)
        start = startup.prepare(
            _connector(arguments.additional_config["afd"]),
            config,
            host=lambda: build_host(installed=False),
            stack=stack or RecordingStack(),
            upstream="a stand-in",
        )
        assert start is not None
        plan = start.injection.plan

        def init() -> None:
            for group in plan.groups:
                keywords = {"backend": "hccl", "rank": 0, "group_name": group.name}
                start.injection.create_group(_create, (), keywords)

        start.initialise(init, lambda _: contextlib.nullcontext())
    return plan, lines


_create: Callable[..., Any] = lambda **keywords: keywords  # noqa: E731 - one expression
