# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A failing communicator, and connectors and groups that come and go in one process."""

import pytest

from worlds.expected import async_mb, camp2p_mb
from worlds.model import CAMP2P, Connector, World
from worlds.promises import check_sizes, hccl_groups

pytestmark = pytest.mark.torch_npu

_ASYNC = Connector(extra={"attn_ranks_per_dp": 2, "dynamicQuant": 1}, tensor_parallel=2)
_CAMP2P = Connector(name=CAMP2P, tokens=(512, 1024))
_ASYNC_MB = async_mb(attention_ranks=2, ffn_ranks=1, tokens=8192, ranks_per_dp=2, quant=True)
_CAMP2P_MB = camp2p_mb(attention_ranks=2, ffn_ranks=1, attention_tokens=512, ffn_tokens=1024)
_FAIL = "CAM_HCCL_SHIM_FAIL_COMM"


def _step(do, connector=0, **more):
    return {"do": do, "connector": connector, **more}


def _struct_sizes(rank):
    return [(group.name, group.struct_mb) for group in hccl_groups(rank)]


def test_a_failing_communicator_gives_the_original_error_with_our_context(warmed):
    steps = (_step("create"), _step("init", expect_error=True))
    report = warmed.run(World(2, 1, (_ASYNC,), env={_FAIL: "afd_async_cam"}, steps=steps))
    bare = Connector(extra=_ASYNC.extra, tensor_parallel=2, flag=None)
    original = warmed.run(World(2, 1, (bare,), env={_FAIL: "afd_async_cam"}, steps=steps))
    for rank, without_us in zip(report.ranks, original.ranks, strict=True):
        (error,) = rank.errors
        (wanted,) = without_us.errors
        assert (error["type"], wanted["type"]) == ("RuntimeError", "RuntimeError")
        assert error["message"].splitlines()[0] == wanted["message"].splitlines()[0]
        context = "\n".join(error["notes"])
        assert f"afd_async_cam={_ASYNC_MB[rank.role]}" in context
        assert rank.role in context
        assert rank.initialized == (False,)


def test_after_a_failure_nothing_is_half_installed(warmed):
    steps = (
        _step("create"),
        _step("init", expect_error=True),
        {"do": "setenv", "name": _FAIL, "value": None},
        _step("plain_group", name="by_hand"),
        {"do": "destroy_all"},
        _step("create", 1),
        _step("init", 1),
    )
    world = World(2, 1, (_ASYNC, _ASYNC), env={_FAIL: "afd_async_cam"}, steps=steps)
    for rank in warmed.run(world).ranks:
        size = _ASYNC_MB[rank.role]
        assert _struct_sizes(rank) == [
            ("afd_async_cam", None),
            ("by_hand", 200),
            ("afd_async_cam", size),
        ]
        assert rank.initialized == (False, True)


def test_a_failure_in_a_later_group_names_what_was_created_before(warmed):
    steps = (_step("create"), _step("init", expect_error=True))
    connector = Connector(name=CAMP2P, tokens=(512, 1024), num_ubatches=2)
    report = warmed.run(World(2, 1, (connector,), env={_FAIL: "afd1"}, steps=steps))
    for rank in report.ranks:
        assert _struct_sizes(rank) == [("afd", _CAMP2P_MB[rank.role]), ("afd1", None)]
        assert "afd1" in "\n".join(rank.errors[0]["notes"])


def test_two_connectors_one_after_the_other(warmed):
    report = warmed.run(World(2, 1, (_ASYNC, _CAMP2P)))
    expected = {
        role: {"afd_async_cam": _ASYNC_MB[role], "afd": _CAMP2P_MB[role]}
        for role in ("attention", "ffn")
    }
    expected["ffn"]["afd_moe"] = _CAMP2P_MB["ffn"]
    check_sizes(report, expected)


def test_two_connectors_alive_at_once_and_initialised_in_reverse(warmed):
    steps = (_step("create", 0), _step("create", 1), _step("init", 1), _step("init", 0))
    report = warmed.run(World(2, 1, (_ASYNC, _CAMP2P), steps=steps))
    for rank in report.ranks:
        assert rank.sizes()["afd_async_cam"] == _ASYNC_MB[rank.role]
        assert rank.sizes()["afd"] == _CAMP2P_MB[rank.role]


def test_a_second_connector_without_the_flag_is_left_alone(warmed):
    without = Connector(name=CAMP2P, tokens=(512, 1024), flag=None)
    for rank in warmed.run(World(2, 1, (_ASYNC, without))).ranks:
        assert rank.sizes()["afd_async_cam"] == _ASYNC_MB[rank.role]
        assert rank.sizes()["afd"] == 200


def test_a_closed_connector_can_be_initialised_again(warmed):
    steps = (_step("create"), *(_step("init"), _step("close")) * 2)
    for rank in warmed.run(World(2, 1, (_ASYNC,), steps=steps)).ranks:
        assert _struct_sizes(rank) == [("afd_async_cam", _ASYNC_MB[rank.role])] * 2
        assert rank.destroyed.count("afd_async_cam") == 2


def test_all_groups_destroyed_and_a_second_start(warmed):
    steps = (
        _step("create", 0),
        _step("init", 0),
        {"do": "destroy_all"},
        _step("create", 1),
        _step("init", 1),
    )
    for rank in warmed.run(World(2, 1, (_ASYNC, _ASYNC), steps=steps)).ranks:
        assert _struct_sizes(rank) == [("afd_async_cam", _ASYNC_MB[rank.role])] * 2
        assert rank.initialized == (True, True)


def test_groups_made_by_hand_after_a_start_are_left_alone(warmed):
    steps = (_step("create"), _step("init"), _step("plain_group", name="by_hand"))
    for rank in warmed.run(World(2, 1, (_ASYNC,), steps=steps)).ranks:
        by_hand = hccl_groups(rank)[-1]
        assert (by_hand.name, by_hand.requested, by_hand.struct_mb) == ("by_hand", None, 200)


@pytest.mark.parametrize("text", ["abc", "0", ""])
def test_an_unusable_hccl_buffsize_is_warned_of_before_torch_npu_fails(warmed, text):
    steps = (_step("create"), _step("init", expect_error=True))
    env = {"HCCL_BUFFSIZE": text}
    report = warmed.run(World(2, 1, (_ASYNC,), env=env, steps=steps, own_group=False))
    for rank in report.ranks:
        assert rank.hccl_buffsize == (text, text)
        assert _struct_sizes(rank) == [("afd_async_cam", None)]
    assert "HCCL_BUFFSIZE" in report.of("attention")[0].log_text("WARNING")
