# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Off means off: without the flag no upstream attribute behaves differently."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Records, Stack
from fakes import async_config, camp2p_config, vllm_config

CONNECTORS = [
    lambda role, flag: async_config(role, flag=flag),
    lambda role, flag: camp2p_config(role, flag=flag, ubatches=2),
    lambda role, flag: vllm_config(connector="P2pNcclAFDConnector", role=role, flag=flag),
]

pytestmark = [
    pytest.mark.parametrize("flag", [None, {"enabled": False}], ids=["absent", "disabled"]),
    pytest.mark.parametrize("make", CONNECTORS, ids=["async", "camp2p", "p2p-nccl"]),
    pytest.mark.parametrize("role", ["attention", "ffn"]),
]


def trace(stack: Stack, config: Any) -> list[Any]:
    """Everything that can be observed of a start, a close and a second start."""
    connector = stack.create(config)
    seen: list[Any] = [type(connector).__name__, sorted(vars(connector))]
    connector.init_afd_connector()
    connector.close()
    connector.init_afd_connector()
    fields = ("backend", "group_name", "rank", "world_size", "pg_options", "timeout")
    seen += [{key: call.get(key) for key in fields} for call in stack.groups.calls]
    return seen


def test_a_start_is_the_same_as_without_the_plugin(
    stack: Stack, make: Any, flag: Any, role: str
) -> None:
    armed = trace(stack, make(role, flag))
    stack.installation.disarm()
    stack.groups.calls.clear()
    stack.groups.alive.clear()
    assert trace(stack, make(role, flag)) == armed


def test_nothing_is_logged_above_debug(
    stack: Stack, make: Any, flag: Any, role: str, records: Records
) -> None:
    trace(stack, make(role, flag))
    assert records.above_debug == []


def test_no_binding_of_a_connector_module_is_replaced(
    stack: Stack, make: Any, flag: Any, role: str
) -> None:
    names = ("connectors.npu.async_cam", "connectors.npu.camp2p", "connectors.gpu.p2p")
    before = [stack.module(name).init_afd_process_group for name in names]
    trace(stack, make(role, flag))
    after = [stack.module(name).init_afd_process_group for name in names]
    assert all(a is b for a, b in zip(after, before, strict=True))


def test_a_device_that_cannot_be_asked_is_not_asked(
    stack: Stack, make: Any, flag: Any, role: str
) -> None:
    stack.set_device(error=AssertionError("nobody may ask"))
    trace(stack, make(role, flag))


def test_bad_inputs_are_upstreams_affair(stack: Stack, make: Any, flag: Any, role: str) -> None:
    config = make(role, flag)
    config.scheduler_config.max_num_batched_tokens = "many"
    config.cache_config.gpu_memory_utilization = None
    trace(stack, config)
