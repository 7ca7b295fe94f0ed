# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Operator builds that are registered in a rank, and the window that each believes in."""

import pytest

from worlds.expected import async_mb
from worlds.model import ASYNC, CAMP2P, Connector, World

pytestmark = pytest.mark.torch_npu

_STEPS = ("dispatch_send", "dispatch_recv", "combine_send", "combine_recv")
_BINARY = {"namespace": "umdk_cam_op_lib", "names": [f"async_{step}" for step in _STEPS]}
_SOURCE = {"namespace": "afd_ascend", "names": [f"afd_async_{step}" for step in _STEPS]}
_CAMP2P_OPERATORS = {"namespace": "afd_ascend", "names": ["a2e", "e2a"]}
_START = ({"do": "create", "connector": 0}, {"do": "init", "connector": 0})
_MB = async_mb(attention_ranks=1, ffn_ranks=1, tokens=512, ranks_per_dp=1, quant=False)


def _run(warmed, *operators, env=None, early=False, **connector):
    """A world of 1 + 1 with operators registered before the connector exists, or after."""
    register = tuple({"do": "operators", **each} for each in operators)
    create, init = _START
    steps = (*register, create, init) if early else (create, *register, init)
    generation = connector.pop("generation", "a")
    made = Connector(**{"name": ASYNC, "tokens": (512, 512), **connector})
    world = World(1, 1, (made,), env=env or {}, steps=steps, generation=generation)
    report = warmed.run(world)
    for rank in report.ranks:
        assert rank.environ_changed == ()
    return report


def _warnings(rank):
    return [line for line in rank.log_text("WARNING").splitlines() if "operator window" in line]


@pytest.mark.parametrize("early", [True, False])
def test_the_binary_build_without_its_variable_believes_200(warmed, early):
    for rank in _run(warmed, _BINARY, early=early).ranks:
        size = _MB[rank.role]
        assert rank.sizes() == {"afd_async_cam": size}
        (line,) = _warnings(rank)
        assert "HCCL_BUFFSIZE=unset" in line
        assert " 200 MB" in line
        assert f"holds {size} MB" in line
        assert f"lower HCCL_BUFFSIZE to {size}" in line


def test_the_binary_build_believes_its_variable(warmed):
    for rank in _run(warmed, _BINARY, env={"HCCL_BUFFSIZE": "1"}).ranks:
        (line,) = _warnings(rank)
        assert "HCCL_BUFFSIZE=1 " in line
        assert "tiling failed" in line
        assert f"export HCCL_BUFFSIZE={_MB[rank.role]}" in line
        assert rank.hccl_buffsize == ("1", "1")
        assert rank.default_group.struct_mb == 1


def test_the_build_from_source_without_its_variable_believes_408(warmed):
    for rank in _run(warmed, _SOURCE, env={"HCCL_BUFFSIZE": "1"}).ranks:
        (line,) = _warnings(rank)
        assert "LCCL_BUFFER_SIZE=unset" in line
        assert " 408 MB" in line
        assert f"lower LCCL_BUFFER_SIZE to {_MB[rank.role]}" in line


def test_the_build_from_source_believes_its_variable(warmed):
    for rank in _run(warmed, _SOURCE, env={"LCCL_BUFFER_SIZE": "2"}).ranks:
        (line,) = _warnings(rank)
        assert "LCCL_BUFFER_SIZE=2 " in line
        assert "tiling failed" in line
        assert f"export LCCL_BUFFER_SIZE={_MB[rank.role]}" in line


def test_a_window_that_fits_is_no_news(warmed):
    assert _MB["attention"] != _MB["ffn"]
    role_env = {role: {"LCCL_BUFFER_SIZE": str(mb)} for role, mb in _MB.items()}
    steps = ({"do": "operators", **_SOURCE}, *_START)
    world = World(1, 1, (Connector(tokens=(512, 512)),), steps=steps, env_by_role=role_env)
    for rank in warmed.run(world).ranks:
        assert _warnings(rank) == []
        assert rank.sizes() == {"afd_async_cam": _MB[rank.role]}


def test_both_builds_are_judged_by_their_own_variable(warmed):
    env = {"HCCL_BUFFSIZE": "3", "LCCL_BUFFER_SIZE": "4000"}
    for rank in _run(warmed, _BINARY, _SOURCE, env=env).ranks:
        lines = "\n".join(_warnings(rank))
        assert "export HCCL_BUFFSIZE=" in lines
        assert "lower LCCL_BUFFER_SIZE to" in lines


@pytest.mark.parametrize("operators", [(), (_CAMP2P_OPERATORS,)])
def test_without_a_build_that_believes_a_variable_nothing_is_said(warmed, operators):
    env = {"HCCL_BUFFSIZE": "1", "LCCL_BUFFER_SIZE": "1"}
    for rank in _run(warmed, *operators, env=env).ranks:
        assert _warnings(rank) == []


def test_camp2p_believes_nothing(warmed):
    env = {"HCCL_BUFFSIZE": "1", "LCCL_BUFFER_SIZE": "1"}
    report = _run(warmed, _BINARY, _SOURCE, _CAMP2P_OPERATORS, env=env, name=CAMP2P)
    for rank in report.ranks:
        assert _warnings(rank) == []
        assert "LCCL_BUFFER_SIZE" not in rank.log_text()


_FOLLOW = {"operator_window": "follow"}


@pytest.mark.parametrize(
    ("operators", "env", "size"),
    [
        ((_SOURCE,), {"LCCL_BUFFER_SIZE": "600", "HCCL_BUFFSIZE": "900"}, 600),
        ((_SOURCE,), {}, 408),
        ((_BINARY,), {"LCCL_BUFFER_SIZE": "600", "HCCL_BUFFSIZE": "900"}, 900),
        ((_BINARY, _SOURCE), {"LCCL_BUFFER_SIZE": "600", "HCCL_BUFFSIZE": "900"}, 900),
    ],
)
def test_follow_gives_hccl_the_window_that_the_operators_believe_in(warmed, operators, env, size):
    for rank in _run(warmed, *operators, env=env, flag=_FOLLOW).ranks:
        assert rank.sizes() == {"afd_async_cam": size}
        assert _warnings(rank) == []
        info = rank.log_text("INFO")
        assert f"selected={size}MB" in info
        assert f"device_memory={2 * size}MB" in info
        assert rank.default_group.struct_mb == int(env.get("HCCL_BUFFSIZE", 200))


def test_follow_never_lowers_and_still_warns(warmed):
    for rank in _run(warmed, _SOURCE, env={"LCCL_BUFFER_SIZE": "2"}, flag=_FOLLOW).ranks:
        assert rank.sizes() == {"afd_async_cam": _MB[rank.role]}
        assert "tiling failed" in "".join(_warnings(rank))


@pytest.mark.parametrize(
    "fixed", [{"buffer_size_mb": 300}, {"group_buffer_size_mb": {"afd_async_cam": 300}}]
)
def test_follow_leaves_fixed_sizes_alone(warmed, fixed):
    report = _run(warmed, _SOURCE, env={"LCCL_BUFFER_SIZE": "600"}, flag=_FOLLOW | fixed)
    for rank in report.ranks:
        assert rank.sizes() == {"afd_async_cam": 300}
        (line,) = _warnings(rank)
        assert "600 MB" in line
        assert "300 MB" in line


def test_follow_leaves_a_group_set_to_null_alone(warmed):
    flag = _FOLLOW | {"group_buffer_size_mb": {"afd_async_cam": None}}
    for rank in _run(warmed, _SOURCE, env={"LCCL_BUFFER_SIZE": "600"}, flag=flag).ranks:
        assert rank.sizes() == {"afd_async_cam": 200}


def test_follow_leaves_the_callers_own_size_alone(warmed):
    report = _run(
        warmed,
        _SOURCE,
        env={"LCCL_BUFFER_SIZE": "600"},
        flag=_FOLLOW,
        extra={"hccl_buffer_size": 350},
        generation="b",
    )
    for rank in report.ranks:
        assert rank.sizes() == {"afd_async_cam": 350}


def test_scoped_is_the_default_and_raises_nothing(warmed):
    for rank in _run(warmed, _SOURCE, env={"LCCL_BUFFER_SIZE": "600"}).ranks:
        assert rank.sizes() == {"afd_async_cam": _MB[rank.role]}


def test_follow_without_operators_says_that_there_is_nothing_to_follow(warmed):
    for rank in _run(warmed, flag=_FOLLOW, env={"LCCL_BUFFER_SIZE": "600"}).ranks:
        assert rank.sizes() == {"afd_async_cam": _MB[rank.role]}
        assert "no known build" in rank.log_text("WARNING")


def test_a_followed_window_counts_in_the_memory_guard(warmed):
    # 64 GiB: 0.1 of it is 6553.6 MiB, less than 2.5 x 3000.
    for rank in _run(warmed, _SOURCE, env={"LCCL_BUFFER_SIZE": "3000"}, flag=_FOLLOW).ranks:
        assert "memory guard" in rank.log_text("WARNING")
        assert "7500 MiB" in rank.log_text("WARNING")
