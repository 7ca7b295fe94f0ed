# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The memory guard on the real ``torch.npu.mem_get_info()``, over a device we can choose."""

import pytest

from worlds.model import Connector, World

pytestmark = pytest.mark.torch_npu

# Two Attention ranks per DP group and 8192 tokens of DeepSeek-V3.2: 4096 tokens per NPU.
_ATTENTION_MB = 555
_EXTRA = {"attn_ranks_per_dp": 2, "dynamicQuant": 1}
_CREATE = ({"do": "create", "connector": 0},)
_REFUSED = ({"do": "create", "connector": 0, "expect_error": True, "only": "attention"},)


def _world(steps=_CREATE, env=None, flag=None, utilization=0.9):
    connector = Connector(
        extra=_EXTRA, tensor_parallel=2, flag=flag or {}, gpu_memory_utilization=utilization
    )
    return World(2, 1, (connector,), env=env or {}, steps=steps)


def _warnings(report, role="attention"):
    return [rank.log_text("WARNING") for rank in report.of(role)]


def test_a_device_of_64_gib_has_enough_outside(warmed):
    report = warmed.run(_world())
    assert _warnings(report) == ["", ""]


def test_too_little_outside_the_utilization_is_warned_of_with_the_numbers(warmed):
    # 2 % of 65536 MiB are 1310.72 MiB; 2.5 x 555 = 1387.5 are wanted: 0.97 would do.
    report = warmed.run(_world(utilization=0.98))
    for warning in _warnings(report):
        for number in ("1310.7", "1387.5", "1110", "0.97"):
            assert number in warning
    assert all(rank.errors == () for rank in report.ranks)


def test_the_warning_can_be_made_an_error(warmed):
    flag = {"on_memory_shortage": "error"}
    report = warmed.run(_world(_REFUSED, flag=flag, utilization=0.98))
    for rank in report.of("attention"):
        assert "0.97" in rank.errors[0]["message"]


def test_equal_is_enough(warmed):
    # Half of 2220 MiB is 1110 MiB, exactly 2 x 555; the ratio is switched off.
    env = {"CAM_HCCL_SHIM_TOTAL_MIB": "2220"}
    report = warmed.run(_world(env=env, flag={"memory_guard_ratio": 0}, utilization=0.5))
    assert _warnings(report) == ["", ""]
    less = {"CAM_HCCL_SHIM_TOTAL_MIB": "2219"}
    report = warmed.run(_world(env=less, flag={"memory_guard_ratio": 0}, utilization=0.5))
    assert all("1110" in warning for warning in _warnings(report))


def test_a_device_smaller_than_the_plan_stops_the_start_before_any_rendezvous(warmed):
    env = {"CAM_HCCL_SHIM_TOTAL_MIB": str(2 * _ATTENTION_MB - 1)}
    report = warmed.run(_world(_REFUSED, env=env))
    for rank in report.of("attention"):
        assert "1110" in rank.errors[0]["message"]
        assert "1109" in rank.errors[0]["message"]
        assert rank.sizes() == {}


def test_a_device_just_large_enough_is_warned_of_only(warmed):
    env = {"CAM_HCCL_SHIM_TOTAL_MIB": str(2 * _ATTENTION_MB)}
    report = warmed.run(_world(env=env))
    assert all("1110" in warning for warning in _warnings(report))


def test_an_unreadable_device_is_warned_of(warmed):
    report = warmed.run(_world(env={"CAM_HCCL_SHIM_FAIL_MEM_INFO": "1"}))
    assert all("memory guard skipped" in warning for warning in _warnings(report))


def test_an_unreadable_device_can_be_made_an_error(warmed):
    flag = {"on_memory_shortage": "error"}
    env = {"CAM_HCCL_SHIM_FAIL_MEM_INFO": "1"}
    report = warmed.run(_world(_REFUSED, env=env, flag=flag))
    assert all("memory guard" in r.errors[0]["message"] for r in report.of("attention"))
