# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Section 4: planning takes the same time at any scale, the fingerprint one round trip a rank."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from datetime import timedelta
from typing import Any

from benchmarks.cases import ASYNC, CAMP2P, DEEPSEEK_V3_2, Case
from benchmarks.counting import CountingStore
from benchmarks.table import Figures, Table, Target
from benchmarks.timing import median_us
from cam_hccl_plugin import torch_process
from cam_hccl_plugin.model import ModelShape, Role
from cam_hccl_plugin.plugin_host import build_host
from cam_hccl_plugin.role_match import take_fingerprint
from cam_hccl_plugin.settings import Settings

_RANKS = (1, 16, 64, 384)
_TOKENS = (1, 8192, 262144)
_RATIO_LIMIT = 1.5
_ROUNDS = 5
"""Of all cells one after the other: what disturbs the machine for a moment hits one round."""
_CLIENTS = 8
"""Connections that stand for all ranks: torch is slow to make many from one process."""
_SHAPE = ModelShape(hidden_size=7168, topk=8, routed_experts=256)


def _case(connector: str, ranks: int, tokens: int) -> Case:
    return Case(
        f"{connector} {ranks}+{ranks}",
        DEEPSEEK_V3_2,
        connector,
        _SHAPE,
        ranks,
        ranks,
        dict.fromkeys(Role, tokens),
        npus_per_dp_group=min(ranks, 8),
        dynamic_quant=connector == ASYNC,
        num_ubatches=1 if connector == ASYNC else 2,
    )


def _planning(runs: int) -> tuple[Table, list[Target]]:
    host = build_host(installed=False)
    rows: list[tuple[Any, ...]] = []
    targets = []
    for connector in (ASYNC, CAMP2P):
        medians: dict[tuple[int, int], list[float]] = {}
        for ranks, tokens in list(itertools.product(_RANKS, _TOKENS)) * _ROUNDS:
            case = _case(connector, ranks, tokens)
            plan = lambda case=case: [case.plan(role, host) for role in Role]  # noqa: E731 - one use
            medians.setdefault((ranks, tokens), []).append(median_us(plan, runs * 4))
        best = {cell: min(found) for cell, found in medians.items()}
        rows += [(connector, ranks, *(best[ranks, t] for t in _TOKENS)) for ranks in _RANKS]
        ratio = max(best.values()) / min(best.values())
        targets.append(
            Target(f"planning {connector}, max/min over scale", ratio, _RATIO_LIMIT, "x")
        )
    columns = {"connector": "connector", "ranks": "ranks a role"}
    columns |= {f"tokens_{tokens}": f"{tokens} tokens" for tokens in _TOKENS}
    notes = [f"the lowest of {_ROUNDS} medians of {runs * 4} runs"]
    title = "Planning both roles, median microseconds (rules, plan, checks)"
    return Table("planning", title, columns, rows, notes), targets


def _fingerprint(case: Case, role: Role, rank: int) -> str:
    host = build_host(installed=False)
    plan = case.plan(role, host)
    return take_fingerprint(
        claim=plan.claim,
        role=role,
        rank=rank,
        topology=case.topology,
        inputs=None,
        settings=Settings(),
        size_mib=None,
    ).encode()


def _exchanges(ranks: int) -> tuple[int, int, float, float]:
    """Let ``ranks`` clients of one store compare: ranks, calls, median and total ms."""
    from torch.distributed import PrefixStore, TCPStore, distributed_c10d

    seconds = timedelta(seconds=60)
    server = TCPStore("127.0.0.1", 0, None, True, seconds, wait_for_workers=False)
    case = _case(ASYNC, ranks // 2, 8192)
    mine = _fingerprint(case, Role.ATTENTION, 0)
    calls, durations = 0, []
    clients = [TCPStore("127.0.0.1", server.port, None, False, seconds) for _ in range(_CLIENTS)]
    for rank in range(ranks):
        client = clients[rank % _CLIENTS]
        store = CountingStore(PrefixStore("afd_async_cam", client))
        group = object()
        distributed_c10d._world.pg_map[group] = ("hccl", store)
        start = time.perf_counter()
        stored = torch_process.exchange(group, "cam_hccl/fingerprint/0/1", mine)
        durations.append((time.perf_counter() - start) * 1e3)
        del distributed_c10d._world.pg_map[group]
        if stored != mine:
            raise RuntimeError(f"the store gave {stored!r}")
        calls += store.total
    return ranks, calls, statistics.median(durations), sum(durations)


def measure(runs: int) -> Figures:
    """Planning over ranks and tokens; the exchange over a real TCPStore."""
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    planning, targets = _planning(runs)
    rows = [_exchanges(ranks) for ranks in (2, 32, 128, 768)]
    columns = {
        "ranks": "ranks",
        "store_calls": "store calls",
        "median_ms": "median ms a rank",
        "total_ms": "sum ms",
    }
    notes = [
        "calls of the plugin on the group's PrefixStore over a TCPStore on the loopback device, "
        f"one rank after the other over {_CLIENTS} connections; all of them are compare_set",
        "counted as one group; a connector start compares in its first group of both roles only",
    ]
    title = "Fingerprint: store round trips"
    targets.append(Target("store calls per rank", rows[-1][1] / rows[-1][0], 1.0, "calls"))
    return Figures([planning, Table("fingerprint", title, columns, rows, notes)], targets)
