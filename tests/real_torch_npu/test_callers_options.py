# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The newer upstream generation: what the user set there wins, and nothing of it is lost."""

import pytest

from worlds.expected import async_mb
from worlds.model import CAMP2P, Connector, World
from worlds.promises import check_sizes, hccl_groups

pytestmark = pytest.mark.torch_npu

_EXTRA = {"attn_ranks_per_dp": 2, "dynamicQuant": 1}
_DERIVED = async_mb(attention_ranks=2, ffn_ranks=1, tokens=8192, ranks_per_dp=2, quant=True)


def _async_connector(**extra):
    return Connector(extra=_EXTRA | extra, tensor_parallel=2)


def _both(sizes):
    return {"attention": sizes, "ffn": sizes}


def test_without_a_size_of_the_caller_the_derived_one_is_given(warmed):
    report = warmed.run(World(2, 1, (_async_connector(),), generation="b"))
    check_sizes(report, {role: {"afd_async_cam": size} for role, size in _DERIVED.items()})


@pytest.mark.parametrize("env", [{}, {"HCCL_BUFFSIZE": "4096"}], ids=["unset", "4096"])
def test_the_callers_size_wins_in_async(warmed, env):
    world = World(2, 1, (_async_connector(hccl_buffer_size=333),), env=env, generation="b")
    report = warmed.run(world)
    check_sizes(report, _both({"afd_async_cam": 333}))


def test_a_callers_size_below_the_derived_one_is_warned_of(warmed):
    connector = _async_connector(hccl_buffer_size=333)
    assert _DERIVED["ffn"] < 333 < _DERIVED["attention"]
    report = warmed.run(World(2, 1, (connector,), generation="b"))
    warning = report.of("attention")[0].log_text("WARNING")
    assert "333" in warning
    assert str(_DERIVED["attention"]) in warning
    assert report.of("ffn")[0].log_text("WARNING") == ""


@pytest.mark.parametrize(
    "flag", [{}, {"buffer_size_mb": 50}, {"group_buffer_size_mb": {"afd": 60, "afd_moe": None}}]
)
def test_the_callers_size_wins_in_camp2p_over_every_flag(warmed, flag):
    extra = {"hccl_buffer_size": 333}
    connector = Connector(name=CAMP2P, tokens=(64, 128), extra=extra, flag=flag, num_ubatches=2)
    report = warmed.run(World(2, 1, (connector,), generation="b"))
    both = {"afd": 333, "afd1": 333}
    check_sizes(report, {"attention": both, "ffn": both | {"afd_moe": 333}})


def test_other_settings_of_the_caller_survive_beside_our_size(warmed):
    caller = {"hccl_op_expansion_mode": 3}
    world = World(2, 1, (_async_connector(),), generation="b", caller_hccl_config=caller)
    report = warmed.run(world)
    check_sizes(report, {role: {"afd_async_cam": size} for role, size in _DERIVED.items()})
    for rank in report.ranks:
        (group,) = hccl_groups(rank)
        merged = caller | {"hccl_buffer_size": _DERIVED[rank.role]}
        assert group.requested == merged
        assert group.read_back == merged
        assert group.struct_op_expansion_mode == 3


def test_the_callers_options_object_is_not_changed(warmed):
    caller = {"hccl_op_expansion_mode": 3}
    world = World(2, 1, (_async_connector(),), generation="b", caller_hccl_config=caller)
    for rank in warmed.run(world).ranks:
        assert rank.caller_options_after == (caller,)


@pytest.mark.parametrize("kind", ["gloo", "dict"])
def test_options_of_another_type_stop_the_start(warmed, kind):
    steps = (
        {"do": "create", "connector": 0},
        {"do": "init", "connector": 0, "expect_error": True},
    )
    world = World(2, 1, (_async_connector(),), generation="b", caller_hccl_config=kind, steps=steps)
    for rank in warmed.run(world).ranks:
        assert hccl_groups(rank) == []
        assert "afd_async_cam" in rank.errors[0]["message"]
