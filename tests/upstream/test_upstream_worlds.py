# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The promises of the double, kept with the real afd-plugin in either generation.

Only the check that CAM operators are installed is neutralised.
"""

import pytest

from worlds.client import WorldFailed
from worlds.expected import async_mb, camp2p_mb
from worlds.model import CAMP2P, Connector, World
from worlds.promises import (
    check_left_alone,
    check_others_untouched,
    check_sizes,
    hccl_groups,
    quiet,
)

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("default")]

# Tensor parallelism stays 1: upstream asks vLLM's parallel state for the rank within it.
_ASYNC = {"attn_ranks_per_dp": 2, "dynamicQuant": 1}
_TOKENS = (512, 1024)


def _world(source, connectors, attention_ranks=2, ffn_ranks=1, **more):
    return World(
        attention_ranks, ffn_ranks, connectors, upstream=str(source), timeout_seconds=180, **more
    )


def _async_expected(attention_ranks, ffn_ranks):
    sizes = async_mb(
        attention_ranks=attention_ranks,
        ffn_ranks=ffn_ranks,
        tokens=8192,
        ranks_per_dp=2,
        quant=True,
    )
    return {role: {"afd_async_cam": size} for role, size in sizes.items()}


def _camp2p_expected(attention_ranks, ffn_ranks, ubatches):
    sizes = camp2p_mb(
        attention_ranks=attention_ranks,
        ffn_ranks=ffn_ranks,
        attention_tokens=_TOKENS[0],
        ffn_tokens=_TOKENS[1],
    )
    names = ["afd", "afd1"][:ubatches]
    return {
        "attention": dict.fromkeys(names, sizes["attention"]),
        "ffn": dict.fromkeys([*names, "afd_moe"], sizes["ffn"]),
    }


@pytest.fixture(scope="session")
def takes_buffer_size(upstream_source):
    """Whether this checkout is of the newer generation."""
    module = upstream_source / "afd_plugin" / "connectors" / "npu" / "async_cam.py"
    return '"hccl_buffer_size"' in module.read_text()


@pytest.mark.parametrize("env", [{}, {"HCCL_BUFFSIZE": "4096"}], ids=["unset", "4096"])
@pytest.mark.parametrize(("attention_ranks", "ffn_ranks"), [(2, 1), (4, 2)])
def test_async(warmed, upstream_source, attention_ranks, ffn_ranks, env):
    world = _world(upstream_source, (Connector(extra=_ASYNC),), attention_ranks, ffn_ranks, env=env)
    report = warmed.run(world)
    check_sizes(report, _async_expected(attention_ranks, ffn_ranks))
    check_others_untouched(report, env.get("HCCL_BUFFSIZE"))


@pytest.mark.parametrize("num_ubatches", [0, 2])
@pytest.mark.parametrize(("attention_ranks", "ffn_ranks"), [(2, 1), (4, 2)])
def test_camp2p(warmed, upstream_source, attention_ranks, ffn_ranks, num_ubatches):
    connector = Connector(name=CAMP2P, tokens=_TOKENS, num_ubatches=num_ubatches)
    report = warmed.run(_world(upstream_source, (connector,), attention_ranks, ffn_ranks))
    check_sizes(report, _camp2p_expected(attention_ranks, ffn_ranks, max(1, num_ubatches)))
    check_others_untouched(report, None)


@pytest.mark.parametrize("env", [{}, {"HCCL_BUFFSIZE": "4096"}], ids=["unset", "4096"])
@pytest.mark.parametrize("name", ["CAMAsyncAFDConnector", CAMP2P])
def test_without_the_flag_all_is_left_alone(warmed, upstream_source, name, env):
    connector = Connector(name=name, flag=None)
    report = warmed.run(_world(upstream_source, (connector,), env=env))
    check_left_alone(report, int(env.get("HCCL_BUFFSIZE", 200)))
    assert quiet(report)


def test_sizes_per_group_and_null(warmed, upstream_source):
    flag = {"group_buffer_size_mb": {"afd_moe": 300, "afd": None}}
    connector = Connector(name=CAMP2P, tokens=_TOKENS, flag=flag, num_ubatches=2)
    report = warmed.run(_world(upstream_source, (connector,)))
    derived = _camp2p_expected(2, 1, 2)
    for rank in report.ranks:
        own = {"afd": 200, "afd1": derived[rank.role]["afd1"]}
        assert rank.sizes() == own | ({"afd_moe": 300} if rank.role == "ffn" else {})


def test_a_closed_connector_can_be_initialised_again(warmed, upstream_source):
    steps = [{"do": "create", "connector": 0}]
    steps += [{"do": do, "connector": 0} for do in ("init", "close")] * 2
    world = _world(upstream_source, (Connector(extra=_ASYNC),), steps=tuple(steps))
    for rank in warmed.run(world).ranks:
        (size,) = _async_expected(2, 1)[rank.role].values()
        assert [group.struct_mb for group in hccl_groups(rank)] == [size, size]


def test_a_failing_communicator_gives_the_original_error_with_our_context(warmed, upstream_source):
    steps = (
        {"do": "create", "connector": 0},
        {"do": "init", "connector": 0, "expect_error": True},
    )
    env = {"CAM_HCCL_SHIM_FAIL_COMM": "afd_async_cam"}
    world = _world(upstream_source, (Connector(extra=_ASYNC),), env=env, steps=steps)
    for rank in warmed.run(world).ranks:
        assert rank.errors[0]["type"] == "RuntimeError"
        assert "afd_async_cam" in "\n".join(rank.errors[0]["notes"])


@pytest.mark.parametrize("name", ["CAMAsyncAFDConnector", CAMP2P])
def test_the_callers_size_wins_or_is_refused(warmed, upstream_source, takes_buffer_size, name):
    tokens = _TOKENS if name == CAMP2P else (8192, 8192)  # the roles of Async must agree
    connector = Connector(name=name, tokens=tokens, extra={"hccl_buffer_size": 333})
    world = _world(upstream_source, (connector,))
    if not takes_buffer_size:
        with pytest.raises(WorldFailed, match="hccl_buffer_size"):
            warmed.run(world)
        return
    for rank in warmed.run(world).ranks:
        assert set(rank.sizes().values()) == {333}


def test_other_settings_of_the_caller_survive(warmed, upstream_source, takes_buffer_size):
    if not takes_buffer_size:
        pytest.skip("this afd-plugin passes no options")
    caller = {"hccl_op_expansion_mode": 3}
    connector = Connector(extra=_ASYNC)
    report = warmed.run(_world(upstream_source, (connector,), caller_hccl_config=caller))
    check_sizes(report, _async_expected(2, 1))
    for rank in report.ranks:
        assert [group.struct_op_expansion_mode for group in hccl_groups(rank)] == [3]
        assert rank.caller_options_after == (caller,)
