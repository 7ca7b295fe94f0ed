# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Stores, groups and operators of a process, as the double of torch shows them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from torch_double import Options, Store, TorchDouble

from cam_hccl_plugin import torch_process
from cam_hccl_plugin.errors import InjectionError
from cam_hccl_plugin.operator_window import BINARY_BUILD, BUILDS, SOURCE_BUILD


def test_the_first_rank_puts_and_the_second_reads(torch: TorchDouble) -> None:
    store = Store()
    ours, theirs = torch.make("afd", store=store), torch.make("afd", store=store)
    assert torch_process.exchange(ours, "key", "first") == "first"
    assert torch_process.exchange(theirs, "key", "second") == "first"
    assert store.asked == ["key", "key"]
    assert torch_process.exchange(theirs, "another", "second") == "second"


class _Refuses:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        raise self._error


class _AnswersBytes:
    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return b"\xff\xfe"


@pytest.mark.parametrize(
    "store",
    [
        object(),
        None,
        _Refuses(NotImplementedError("compareSet")),
        _Refuses(RuntimeError("connection reset")),
        _AnswersBytes(),
    ],
)
def test_a_store_that_cannot_is_a_debug_line(
    torch: TorchDouble, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    group = torch.make("afd", store=store)
    with caplog.at_level(logging.DEBUG, logger="vllm.cam_hccl"):
        logging.getLogger("vllm.cam_hccl").addHandler(caplog.handler)
        try:
            assert torch_process.exchange(group, "key", "mine") is None
        finally:
            logging.getLogger("vllm.cam_hccl").removeHandler(caplog.handler)
    assert {record.levelname for record in caplog.records} == {"DEBUG"}
    assert "roles not compared" in caplog.text


def test_a_group_that_torch_does_not_know_is_no_error(torch: TorchDouble) -> None:
    group = torch.make("afd", store=Store())
    torch.close(group)
    assert torch_process.exchange(group, "key", "mine") is None


def test_hccl_groups_are_listed_in_order_with_their_own_size(torch: TorchDouble) -> None:
    torch.make("0", ranks=8)
    torch.make("gloo_group", backend="gloo")
    torch.make("afd", Options(139), ranks=32)
    torch.make("mixed", backend="cpu:gloo,npu:hccl")
    torch.make("p2p", backend="nccl")
    torch.make("unnamed", backend="undefined", backend_config="cpu:gloo,npu:hccl")
    torch.make("cpu_only", backend="undefined", backend_config="cpu:gloo")
    found = [(g.name, g.ranks, g.size_mib) for g in torch_process.hccl_groups()]
    assert found == [("0", 8, None), ("afd", 32, 139), ("mixed", 2, None), ("unnamed", 2, None)]


def test_a_torch_that_keeps_its_groups_elsewhere_is_one_error(torch: TorchDouble) -> None:
    torch.make("0")
    del torch.world.pg_names
    with pytest.raises(InjectionError, match="pg_names"):
        torch_process.hccl_groups()


def test_no_namespace_no_build(torch: TorchDouble) -> None:
    assert torch_process.loaded_builds() == ()
    del torch.torch.ops
    assert torch_process.loaded_builds() == ()


@pytest.mark.parametrize("build", BUILDS)
def test_any_one_of_the_four_operators_reveals_its_build(torch: TorchDouble, build: Any) -> None:
    assert len(build.operators) == 4
    for name in build.operators:
        vars(torch.torch.ops).clear()
        torch.register(build.namespace, name)
        assert torch_process.loaded_builds() == (build,)


def test_both_builds_can_be_loaded(torch: TorchDouble) -> None:
    torch.register("umdk_cam_op_lib", "async_dispatch_recv")
    torch.register("afd_ascend", "a2e", "e2a", "afd_async_combine_send")
    assert torch_process.loaded_builds() == (BINARY_BUILD, SOURCE_BUILD)


def test_the_operators_of_camp2p_are_no_build(torch: TorchDouble) -> None:
    torch.register("afd_ascend", "a2e", "e2a")
    torch.register("umdk_cam_op_lib", "something_else")
    assert torch_process.loaded_builds() == ()
