# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A connector's start on the double of torch, and what it logs."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from torch_double import Options, Store, TorchDouble

from cam_hccl_plugin.connector_start import ConnectorStart, Decision
from cam_hccl_plugin.log import RankLog
from cam_hccl_plugin.memory_guard import MemoryGuard
from cam_hccl_plugin.model import ConnectorIdentity, ModelShape, Role, SizingInputs, Topology
from cam_hccl_plugin.planning import PlanRequest, plan_buffers
from cam_hccl_plugin.plugin_host import build_host
from cam_hccl_plugin.settings import Settings

ASYNC, CAMP2P = "CAMAsyncAFDConnector", "CAMP2pAFDConnector"
GROUPS = {ASYNC: ("afd_async_cam",), CAMP2P: ("afd", "afd1", "afd_moe")}
#: DeepSeek-V3.2, 16 + 16, 8192 tokens, DP groups of 8, dynamic quantization.
SIZE = {Role.ATTENTION: 139, Role.FFN: 113}


class Lines(logging.Handler):
    """What the plugin logs, by level."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))

    def text(self, level: str) -> str:
        return "\n".join(text for name, text in self.lines if name == level)


@contextlib.contextmanager
def logged() -> Iterator[Lines]:
    """Everything on the plugin's logger, from DEBUG."""
    logger, handler = logging.getLogger("vllm.cam_hccl"), Lines()
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(level)
    logger.removeHandler(handler)


class Start:
    """A start whose connector makes groups of the double; ``store`` is that of each group."""

    def __init__(
        self,
        torch: TorchDouble,
        role: Role = Role.ATTENTION,
        *,
        connector: str = ASYNC,
        store: Any = None,
        first: bool = True,
        number: int = 0,
        topk: int = 8,
        caller_mib: int | None = None,
        total_bytes: Callable[[], int] = lambda: 2**36,
        **settings: Any,
    ) -> None:
        self.torch, self.names = torch, GROUPS[connector]
        self.store = Store() if store is None else store
        self.caller_mib = caller_mib
        self.sizes: dict[str, Any] = {}
        given = Settings(**settings)
        topology = Topology(16, 16, num_ubatches=2, attn_ranks_per_dp=8)
        inputs = SizingInputs(ModelShape(7168, topk, 256), topology, 8192, True)
        host = build_host(installed=False)
        claim = host.claim_connector(ConnectorIdentity(connector, (connector,)))
        assert claim is not None
        request = PlanRequest(
            connector=connector,
            claim=claim,
            listed=host.describe_groups(claim, topology),
            role=role,
            settings=given,
            needs={each: host.role_need(claim, each, inputs) for each in Role},
            caller_mib=caller_mib,
        )
        decision = Decision(plan_buffers(request), topology, inputs, given)
        guard = MemoryGuard(given, Fraction("0.9"), total_bytes)
        self.start = ConnectorStart(decision, guard, RankLog(first), "afd-plugin 0", number)

    def run(self) -> None:
        """Let the connector create its groups."""
        self.start.initialise(self._init, lambda injection: contextlib.nullcontext())

    def _init(self) -> None:
        for name in self.names:
            options = None if self.caller_mib is None else Options(self.caller_mib)
            self.start.injection.create_group(
                self._create,
                (),
                {"backend": "hccl", "rank": 1, "group_name": name, "pg_options": options},
            )

    def _create(self, **kwargs: Any) -> Any:
        group = self.torch.make(kwargs["group_name"], kwargs["pg_options"], store=self.store)
        self.sizes[group.name] = group.backend.options.hccl_config.get("hccl_buffer_size")
        return group
