# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Whole worlds on the CANN shim, for the buffer sizes that HCCL really received."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from benchmarks.cases import ASYNC, PRACTICE_MIB, Case
from cam_hccl_plugin.model import Role
from cann_shim.build import torch_npu_dir
from worlds.client import WarmedProcess
from worlds.model import Connector, World

LARGEST_WORLD = 6
"""Ranks of the largest world that is run; one takes about half a GiB."""


class Recorder:
    """Runs each world once, even where both roles ask for it."""

    def __init__(self, process: WarmedProcess) -> None:
        self._process = process
        self._seen: dict[tuple[str, int, bool], dict[Role, tuple[int, ...]]] = {}

    @staticmethod
    @contextlib.contextmanager
    def open() -> Iterator[Recorder | None]:
        """A recorder, or ``None`` where no torch-npu is named."""
        if not os.environ.get("CAM_HCCL_TORCH_NPU_DIR"):
            yield None
            return
        process = WarmedProcess(torch_npu_dir())
        try:
            yield Recorder(process)
        finally:
            process.close()

    def buffers_mib(self, case: Case, role: Role, *, plugin: bool) -> tuple[int, ...]:
        """Buffers of the CAM groups of a ``role`` rank, in order of creation.

        ``HCCL_BUFFSIZE`` is the published one of ``role``, with and without the plugin.
        """
        practice = PRACTICE_MIB[case.connector][role]
        key = (case.name, practice, plugin)
        if key not in self._seen:
            self._seen[key] = self._run(case, practice, plugin)
        return self._seen[key][role]

    def _run(self, case: Case, practice_mib: int, plugin: bool) -> dict[Role, tuple[int, ...]]:
        extra = {}
        if case.connector == ASYNC:
            extra = {
                "dynamicQuant": int(case.dynamic_quant),
                "attn_ranks_per_dp": case.npus_per_dp_group,
            }
        connector = Connector(
            name=case.connector,
            tokens=(case.tokens[Role.ATTENTION], case.tokens[Role.FFN]),
            hidden_size=case.shape.hidden_size,
            topk=case.shape.topk,
            routed_experts=case.shape.routed_experts,
            extra=extra,
            flag={} if plugin else None,
            num_ubatches=case.num_ubatches,
            tensor_parallel=case.npus_per_dp_group,
        )
        env = {"HCCL_BUFFSIZE": str(practice_mib)}
        if not plugin:
            env["VLLM_PLUGINS"] = "afd"
        world = World(case.attention_ranks, case.ffn_ranks, (connector,), env=env)
        report = self._process.run(world)
        sizes = {}
        for role in Role:
            kinds = {tuple(rank.sizes().values()) for rank in report.of(role.value)}
            if len(kinds) != 1 or None in next(iter(kinds)):
                raise RuntimeError(f"{case.name}: the {role.value} ranks differ: {kinds}")
            sizes[role] = tuple(size for size in kinds.pop() if size is not None)
        return sizes
