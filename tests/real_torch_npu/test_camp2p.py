# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""CAMP2P worlds: one group per ubatch, one among FFN ranks, and a Gloo group left alone."""

import pytest

from worlds.expected import camp2p_mb
from worlds.model import CAMP2P, Connector, World
from worlds.promises import check_left_alone, check_others_untouched, check_sizes, hccl_groups

pytestmark = pytest.mark.torch_npu

_TOKENS = (512, 1024)


def _connector(**changes):
    return Connector(**({"name": CAMP2P, "tokens": _TOKENS} | changes))


def _expected(attention_ranks, ffn_ranks, ubatches, tensor_parallel=1):
    sizes = camp2p_mb(
        attention_ranks=attention_ranks,
        ffn_ranks=ffn_ranks,
        attention_tokens=_TOKENS[0],
        ffn_tokens=_TOKENS[1],
        tensor_parallel=tensor_parallel,
    )
    spanning = ["afd", "afd1", "afd2"][:ubatches]
    return {
        "attention": dict.fromkeys(spanning, sizes["attention"]),
        "ffn": dict.fromkeys([*spanning, "afd_moe"], sizes["ffn"]),
    }


@pytest.mark.parametrize("env", [{}, {"HCCL_BUFFSIZE": "4096"}], ids=["unset", "4096"])
@pytest.mark.parametrize("num_ubatches", [0, 1, 2])
@pytest.mark.parametrize(("attention_ranks", "ffn_ranks"), [(2, 1), (4, 2)])
def test_each_role_gets_its_own_size_in_every_group(
    warmed, attention_ranks, ffn_ranks, num_ubatches, env
):
    world = World(attention_ranks, ffn_ranks, (_connector(num_ubatches=num_ubatches),), env=env)
    report = warmed.run(world)
    expected = _expected(attention_ranks, ffn_ranks, max(1, num_ubatches))
    assert expected["attention"]["afd"] != expected["ffn"]["afd"]
    check_sizes(report, expected)
    check_others_untouched(report, env.get("HCCL_BUFFSIZE"))
    assert all(rank.environ_changed == () for rank in report.ranks)


def test_tensor_parallel_attention_divides_its_tokens(warmed):
    report = warmed.run(World(4, 2, (_connector(tensor_parallel=2),)))
    assert _expected(4, 2, 1, tensor_parallel=2) != _expected(4, 2, 1)
    check_sizes(report, _expected(4, 2, 1, tensor_parallel=2))


@pytest.mark.parametrize("env", [{}, {"HCCL_BUFFSIZE": "4096"}], ids=["unset", "4096"])
def test_without_the_flag_everything_is_as_without_the_plugin(warmed, env):
    report = warmed.run(World(2, 1, (_connector(flag=None, num_ubatches=2),), env=env))
    assert all(rank.plugin_loaded for rank in report.ranks)
    check_left_alone(report, int(env.get("HCCL_BUFFSIZE", 200)))


@pytest.mark.parametrize("env", [{}, {"HCCL_BUFFSIZE": "4096"}], ids=["unset", "4096"])
def test_a_size_per_group_and_null_for_one_left_to_the_environment(warmed, env):
    flag = {"group_buffer_size_mb": {"afd_moe": 300, "afd": None}}
    report = warmed.run(World(2, 1, (_connector(flag=flag, num_ubatches=2),), env=env))
    derived = _expected(2, 1, 2)
    alone = int(env.get("HCCL_BUFFSIZE", 200))
    for rank in report.ranks:
        own = {"afd": alone, "afd1": derived[rank.role]["afd1"]}
        assert rank.sizes() == own | ({"afd_moe": 300} if rank.role == "ffn" else {})
        left = next(group for group in hccl_groups(rank) if group.name == "afd")
        assert left.requested is None


def test_an_unknown_group_name_stops_the_start_and_lists_the_names(warmed):
    steps = ({"do": "create", "connector": 0, "expect_error": True},)
    flag = {"group_buffer_size_mb": {"afd_mo": 300}}
    report = warmed.run(World(2, 1, (_connector(flag=flag, num_ubatches=2),), steps=steps))
    for rank in report.ranks:
        message = rank.errors[0]["message"]
        for name in ("afd_mo", "afd", "afd1", "afd_moe"):
            assert name in message


@pytest.mark.parametrize(
    "flag",
    [
        {"buffer_size_mb": 400},
        {"buffer_size_mb": {"attention": 400, "ffn": 400}},
        {"group_buffer_size_mb": {"afd": 400, "afd1": 400, "afd_moe": 400}},
    ],
)
def test_a_fixed_size_reaches_every_group(warmed, flag):
    report = warmed.run(World(2, 1, (_connector(flag=flag, num_ubatches=2),)))
    everywhere = {"afd": 400, "afd1": 400}
    check_sizes(report, {"attention": everywhere, "ffn": everywhere | {"afd_moe": 400}})


def test_scope_group_needs_a_fixed_size(warmed):
    steps = ({"do": "create", "connector": 0, "expect_error": True},)
    report = warmed.run(World(2, 1, (_connector(flag={"scope": "group"}),), steps=steps))
    for rank in report.ranks:
        assert "scope" in rank.errors[0]["message"]
        assert "buffer_size_mb" in rank.errors[0]["message"]


def test_scope_group_with_both_roles_fixed_uses_the_larger(warmed):
    flag = {"scope": "group", "buffer_size_mb": {"attention": 300, "ffn": 500}}
    report = warmed.run(World(2, 1, (_connector(flag=flag),)))
    check_sizes(report, {"attention": {"afd": 500}, "ffn": {"afd": 500, "afd_moe": 500}})
