# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Roles that do not match are caught where their first common group comes into being."""

import re

import pytest

from worlds.model import ASYNC, CAMP2P, Connector, World

pytestmark = pytest.mark.torch_npu

_FIRST_GROUP = {ASYNC: "afd_async_cam", CAMP2P: "afd"}
_EXTRA = {"attn_ranks_per_dp": 1, "dynamicQuant": 0}
_PER_DP_FLAG = {"num_npus_per_dp_group": 1}
_SENTENCE = re.compile(r"the roles do not match: (.*); stop both roles")
_FIELD = re.compile(r"(\w+) is (\S+) on (\w+) \(rank \d+\) and (\S+) on (\w+) \(rank \d+\)")


def _connector(name, **values):
    if name == ASYNC:
        return Connector(name=name, **{"tokens": (512, 512), "extra": _EXTRA, **values})
    return Connector(name=name, **{"tokens": (512, 1024), **values})


def _only(role, **values):
    return {"by_role": {role: values}}


def _named(text):
    """Each field that the sentence names, with the value of each role."""
    (listed,) = _SENTENCE.findall(text)
    found = {}
    for part in listed.split("; "):
        field, value, here, other, there = _FIELD.fullmatch(part).groups()
        found[field] = {here: value, there: other}
    return found


def _mismatch(warmed, connector, attention_ranks=1):
    """The fields named by the ranks that noticed; checks what each of them promises."""
    world = World(
        attention_ranks,
        1,
        (connector,),
        steps=({"do": "create", "connector": 0}, {"do": "init", "connector": 0}),
        timeout_seconds=30,
        grace_seconds=0.3,
    )
    report = warmed.run(world, may_fail=True)
    # Ranks that wrote first wait for those that raised, or see the store go away.
    noticed = [r for r in report.ranks if [e["type"] for e in r.errors] == ["InjectionError"]]
    assert noticed
    for rank in noticed:
        (error,) = rank.errors
        assert error["seconds_since_group"] < 1
        assert rank.initialized == (False,)
        assert _FIRST_GROUP[connector.name] not in rank.groups_left
    return _named(noticed[0].errors[0]["message"])


# In CAM Async rank 0, which keeps the store and waits for the others, is an Attention rank, in
# CAMP2P an FFN rank: the role that counts more ranks is the other one.
_ASYNC_CASES = {
    "hidden_size": (_only("ffn", hidden_size=4096), {"attention": "7168", "ffn": "4096"}),
    "topk": (_only("ffn", topk=6), {"attention": "8", "ffn": "6"}),
    "routed_experts": (_only("ffn", routed_experts=128), {"attention": "256", "ffn": "128"}),
    "num_attention_ranks": (_only("ffn", num_attention_ranks=2), {"attention": "1", "ffn": "2"}),
    "num_ffn_ranks": (_only("ffn", num_ffn_ranks=2), {"attention": "1", "ffn": "2"}),
    "max_num_batched_tokens": ({"tokens": (512, 513)}, {"attention": "512", "ffn": "513"}),
    "dynamic_quant": (
        _only("ffn", extra={"attn_ranks_per_dp": 1, "dynamicQuant": 1}),
        {"attention": "0", "ffn": "1"},
    ),
    "attn_ranks_per_dp": (
        {"flag": _PER_DP_FLAG} | _only("ffn", extra={"attn_ranks_per_dp": 2}),
        {"attention": "1", "ffn": "2"},
    ),
    "num_npus_per_dp_group": (
        _only("ffn", flag={"num_npus_per_dp_group": 2}),
        {"attention": "1", "ffn": "2"},
    ),
    "scope": (_only("ffn", flag={"scope": "group"}), {"attention": "role", "ffn": "group"}),
    "buffer_size_mb": (
        {"flag": {"scope": "group", "buffer_size_mb": 300}}
        | _only("ffn", flag={"scope": "group", "buffer_size_mb": 301}),
        {"attention": "300", "ffn": "301"},
    ),
}
_CAMP2P_CASES = {
    "hidden_size": (_only("ffn", hidden_size=4096), {"attention": "7168", "ffn": "4096"}),
    "topk": (_only("ffn", topk=6), {"attention": "8", "ffn": "6"}),
    "routed_experts": (_only("ffn", routed_experts=128), {"attention": "256", "ffn": "128"}),
    "num_attention_ranks": (
        _only("attention", num_attention_ranks=2),
        {"attention": "2", "ffn": "1"},
    ),
    "num_ubatches": (_only("attention", num_ubatches=2), {"attention": "2", "ffn": "1"}),
    "dynamic_quant": (_only("ffn", flag={"dynamic_quant": 1}), {"attention": "0", "ffn": "1"}),
    "num_npus_per_dp_group": (
        {"flag": _PER_DP_FLAG} | _only("ffn", flag={"num_npus_per_dp_group": 2}),
        {"attention": "1", "ffn": "2"},
    ),
    "buffer_size_mb": (
        {"flag": {"scope": "group", "buffer_size_mb": 300}}
        | _only("ffn", flag={"scope": "group", "buffer_size_mb": {"attention": 300, "ffn": 301}}),
        {"attention": "300", "ffn": "301"},
    ),
}


@pytest.mark.parametrize("field", _ASYNC_CASES)
def test_cam_async_catches_each_field_alone(warmed, field):
    values, expected = _ASYNC_CASES[field]
    assert _mismatch(warmed, _connector(ASYNC, **values)) == {field: expected}


@pytest.mark.parametrize("field", _CAMP2P_CASES)
def test_camp2p_catches_each_field_alone(warmed, field):
    values, expected = _CAMP2P_CASES[field]
    assert _mismatch(warmed, _connector(CAMP2P, **values)) == {field: expected}


def test_camp2p_catches_another_number_of_ffn_ranks(warmed):
    connector = _connector(CAMP2P, **_only("attention", num_ffn_ranks=2))
    found = _mismatch(warmed, connector, attention_ranks=2)
    assert found == {"num_ffn_ranks": {"attention": "2", "ffn": "1"}}


def test_two_fields_are_named_in_one_sentence(warmed):
    connector = _connector(ASYNC, **_only("ffn", topk=6, hidden_size=4096))
    assert set(_mismatch(warmed, connector)) == {"topk", "hidden_size"}


@pytest.mark.parametrize("name", [ASYNC, CAMP2P])
def test_equal_roles_pass(warmed, name):
    # In CAMP2P the roles' token counts differ, as they do in every real launch.
    report = warmed.run(World(2, 1, (_connector(name, num_ubatches=2),), log_level="DEBUG"))
    for rank in report.ranks:
        assert rank.initialized == (True,)
        assert "do not match" not in rank.log_text()
        assert "not compared" not in rank.log_text()


def test_with_scope_group_equal_roles_arrive_at_the_same_size(warmed):
    connector = _connector(ASYNC, flag={"scope": "group"})
    report = warmed.run(World(1, 1, (connector,)))
    sizes = {rank.sizes()["afd_async_cam"] for rank in report.ranks}
    assert len(sizes) == 1
    assert "do not match" not in "".join(rank.log_text() for rank in report.ranks)


@pytest.mark.parametrize("name", [ASYNC, CAMP2P])
def test_on_mismatch_warn_goes_on_with_a_warning(warmed, name):
    connector = _connector(
        name, flag={"on_mismatch": "warn"}, **_only("ffn", flag={"on_mismatch": "warn"}, topk=6)
    )
    report = warmed.run(World(1, 1, (connector,)))
    assert all(rank.initialized == (True,) for rank in report.ranks)
    said = [line for rank in report.ranks if _SENTENCE.search(line := rank.log_text("WARNING"))]
    assert said
    assert _named(said[0]) == {"topk": {"attention": "8", "ffn": "6"}}


@pytest.mark.parametrize("name", [ASYNC, CAMP2P])
@pytest.mark.parametrize("without", ["attention", "ffn"])
def test_a_world_with_the_flag_on_one_role_only_comes_up(warmed, name, without):
    connector = _connector(name, **_only(without, flag=None, topk=6))
    report = warmed.run(World(1, 1, (connector,)))
    for rank in report.ranks:
        assert rank.initialized == (True,)
        assert (rank.sizes()[_FIRST_GROUP[name]] == 200) is (rank.role == without)


def test_a_world_with_the_plugin_in_one_role_only_comes_up(warmed):
    env = {"ffn": {"VLLM_PLUGINS": "afd"}}
    report = warmed.run(World(2, 1, (_connector(ASYNC),), env_by_role=env))
    for rank in report.ranks:
        assert rank.initialized == (True,)
        assert rank.plugin_loaded is (rank.role == "attention")


def test_a_second_connector_in_the_same_store_is_not_compared_with_the_first(warmed):
    # A group of our own keeps the store alive, as another connector's would.
    steps = (
        {"do": "create", "connector": 0},
        {"do": "plain_group", "connector": 0, "name": "keeps_the_store"},
        {"do": "init", "connector": 0},
        {"do": "close", "connector": 0},
        {"do": "create", "connector": 1},
        {"do": "init", "connector": 1},
    )
    connectors = (_connector(ASYNC), _connector(ASYNC, hidden_size=4096, topk=6))
    report = warmed.run(World(2, 1, connectors, steps=steps, one_port=True))
    assert all(rank.initialized == (True, True) for rank in report.ranks)


def test_a_closed_connector_is_compared_again_without_stale_values(warmed):
    steps = (
        {"do": "create", "connector": 0},
        {"do": "plain_group", "connector": 0, "name": "keeps_the_store"},
        {"do": "init", "connector": 0},
        {"do": "close", "connector": 0},
        {"do": "init", "connector": 0},
    )
    report = warmed.run(World(1, 1, (_connector(ASYNC),), steps=steps, one_port=True))
    assert all(rank.initialized == (True, True) for rank in report.ranks)
