# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Options made from a plan entry, the read-back, and the device's memory."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from fakes import GIB, Group, Groups, Options, fake_torch, fake_torch_npu

from cam_hccl_plugin import hccl_options
from cam_hccl_plugin.errors import InjectionError


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    made = Groups()
    monkeypatch.setitem(sys.modules, "torch", fake_torch(made))
    monkeypatch.setitem(sys.modules, "torch_npu", fake_torch_npu())
    return made


@pytest.mark.parametrize("backend", ["hccl", "HCCL", "npu:hccl", "cpu:gloo,npu:hccl"])
def test_hccl_backends_are_recognised(backend: str) -> None:
    assert hccl_options.is_hccl(backend)


@pytest.mark.parametrize("backend", ["gloo", "nccl", "cpu:gloo,cuda:nccl", "", None, "lccl", "x"])
def test_other_backends_are_not(backend: Any) -> None:
    assert not hccl_options.is_hccl(backend)


def test_without_options_fresh_ones_carry_the_size_and_defaults() -> None:
    fresh = hccl_options.sized_options(139, None)
    assert type(fresh) is Options
    assert fresh.hccl_config == {"hccl_buffer_size": 139}
    assert type(fresh.hccl_config["hccl_buffer_size"]) is int


def test_options_of_the_caller_are_copied_whole_and_never_changed() -> None:
    caller = Options()
    caller.hccl_config = {"hccl_op_expansion_mode": 3}
    caller.is_high_priority_stream = True
    caller.global_ranks_in_group = [0, 1]
    caller.group_id = "g"
    caller._timeout = "theirs"
    before = dict(vars(caller))
    config = caller.hccl_config
    fresh = hccl_options.sized_options(139, caller)
    assert fresh is not caller
    assert fresh.hccl_config == {"hccl_op_expansion_mode": 3, "hccl_buffer_size": 139}
    assert fresh.is_high_priority_stream is True
    assert fresh.global_ranks_in_group == [0, 1]
    assert fresh.group_id == "g"
    assert fresh._timeout is None
    assert vars(caller) == before
    assert caller.hccl_config is config
    assert config == {"hccl_op_expansion_mode": 3}


def test_two_groups_never_share_options() -> None:
    first, second = (hccl_options.sized_options(139, None) for _ in range(2))
    assert first is not second
    assert first.hccl_config is not second.hccl_config


@pytest.mark.parametrize("options", [{}, {"hccl_buffer_size": 1}, 4096, "hccl", object()])
def test_options_that_torch_npu_would_ignore_are_refused(options: Any) -> None:
    with pytest.raises(InjectionError) as caught:
        hccl_options.check_options("afd", options)
    for words in ("afd", type(options).__qualname__, "ProcessGroupHCCL.Options"):
        assert words in str(caught.value)


def test_no_options_and_the_right_ones_pass() -> None:
    hccl_options.check_options("afd", None)
    hccl_options.check_options("afd", Options())


def test_an_explicit_size_is_found() -> None:
    options = Options()
    assert hccl_options.explicit_size(None) is None
    assert hccl_options.explicit_size(options) is None
    options.hccl_config = {"hccl_buffer_size": 7}
    assert hccl_options.explicit_size(options) == 7


@pytest.mark.parametrize("broken", [None, types.ModuleType("torch_npu")])
def test_a_torch_npu_that_cannot_be_used_is_an_error(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", broken)
    with pytest.raises(InjectionError, match="torch_npu has no usable"):
        hccl_options.sized_options(139, None)


@pytest.mark.parametrize("kind", [OSError, RuntimeError, ValueError, KeyError, IndexError])
def test_a_library_that_cannot_be_loaded_is_an_error(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    class Broken(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise kind("libhccl.so: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "torch_npu", Broken("torch_npu"))
    for ask in (hccl_options.require_options, lambda: hccl_options.sized_options(139, None)):
        with pytest.raises(InjectionError, match=r"libhccl\.so") as caught:
            ask()
        assert "install the torch-npu and CANN" in str(caught.value)


def test_the_size_is_read_back_from_what_the_group_holds() -> None:
    held = Options()
    held.hccl_config = {"hccl_buffer_size": 5}
    assert hccl_options.read_back(Group("afd", held)) == 5
    assert hccl_options.read_back(Group("afd", Options())) is None


@pytest.mark.parametrize("group", [object(), None, Group("afd", object())])
def test_a_group_that_cannot_be_asked_is_an_error(group: Any) -> None:
    with pytest.raises(InjectionError, match="cannot read back"):
        hccl_options.read_back(group)


def test_a_group_is_closed_through_torch(groups: Groups) -> None:
    group = groups.create(group_name="afd")
    hccl_options.close_group(group)
    assert groups.destroyed == ["afd"]


def test_device_memory_is_the_total_of_mem_get_info() -> None:
    assert hccl_options.device_total_bytes() == 64 * GIB


@pytest.mark.parametrize(
    "error", [NotImplementedError("no"), RuntimeError("no"), OSError("no"), ValueError("no")]
)
def test_memory_that_cannot_be_read_is_an_error_with_the_reason(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mem_get_info() -> None:
        raise error

    npu = types.SimpleNamespace(mem_get_info=mem_get_info)
    monkeypatch.setattr(sys.modules["torch"], "npu", npu)
    with pytest.raises(InjectionError, match=f"{type(error).__name__}: no"):
        hccl_options.device_total_bytes()


@pytest.mark.parametrize("answer", [(0, 0), (0, -1), None])
def test_a_total_that_is_none_is_an_error(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    npu = types.SimpleNamespace(mem_get_info=lambda: answer)
    monkeypatch.setattr(sys.modules["torch"], "npu", npu)
    with pytest.raises(InjectionError):
        hccl_options.device_total_bytes()


def test_without_an_npu_build_memory_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["torch"], "npu")
    with pytest.raises(InjectionError):
        hccl_options.device_total_bytes()


@pytest.mark.parametrize("size", [0, True, False, -5, 2**32 - 1, 2**32, "4096", 4096.0, [1]])
def test_a_size_of_the_caller_that_hccl_cannot_be_given_is_refused(size: Any) -> None:
    caller = Options()
    caller.hccl_config = {"hccl_buffer_size": size}
    with pytest.raises(InjectionError) as caught:
        hccl_options.check_options("afd", caller)
    for words in ("group afd", repr(size), "1 to 4294967294", "connector_extra_config"):
        assert words in str(caught.value)


@pytest.mark.parametrize("size", [1, 4096, 2**32 - 2])
def test_a_size_of_the_caller_that_it_can_be_given_is_not(size: int) -> None:
    caller = Options()
    caller.hccl_config = {"hccl_buffer_size": size}
    hccl_options.check_options("afd", caller)


@pytest.mark.parametrize("backend", ["", None, "undefined", "UNDEFINED"])
@pytest.mark.parametrize(
    ("per_device", "expected"),
    [("cpu:gloo,cuda:nccl", False), ("cpu:gloo,cuda:nccl,npu:hccl", True)],
)
def test_without_a_backend_it_is_what_torch_takes_for_each_device(
    monkeypatch: pytest.MonkeyPatch, backend: Any, per_device: str, expected: bool
) -> None:
    c10d: Any = types.ModuleType("torch.distributed.distributed_c10d")
    c10d.Backend = str
    c10d.BackendConfig = {"undefined": per_device}.__getitem__
    monkeypatch.setitem(sys.modules, "torch.distributed", types.ModuleType("torch.distributed"))
    monkeypatch.setitem(sys.modules, c10d.__name__, c10d)
    assert hccl_options.is_hccl(backend) is expected
