# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""CAM Async worlds: each role's size arrives in the structure that HCCL receives."""

import pytest

from worlds.expected import async_mb
from worlds.model import Connector, World
from worlds.promises import check_left_alone, check_others_untouched, check_sizes, quiet

pytestmark = pytest.mark.torch_npu

_EXTRA = {"attn_ranks_per_dp": 2, "dynamicQuant": 1}
_TOKENS = 8192


def _connector(**changes):
    return Connector(**({"extra": _EXTRA, "tensor_parallel": 2} | changes))


def _expected(attention_ranks, ffn_ranks, quant=True):
    sizes = async_mb(
        attention_ranks=attention_ranks,
        ffn_ranks=ffn_ranks,
        tokens=_TOKENS,
        ranks_per_dp=2,
        quant=quant,
    )
    return {role: {"afd_async_cam": size} for role, size in sizes.items()}


def _both(sizes):
    return {"attention": sizes, "ffn": sizes}


@pytest.mark.parametrize("env", [{}, {"HCCL_BUFFSIZE": "4096"}], ids=["unset", "4096"])
@pytest.mark.parametrize(("attention_ranks", "ffn_ranks"), [(2, 1), (4, 2)])
def test_each_role_gets_its_own_size(warmed, attention_ranks, ffn_ranks, env):
    report = warmed.run(World(attention_ranks, ffn_ranks, (_connector(),), env=env))
    expected = _expected(attention_ranks, ffn_ranks)
    assert expected["attention"] != expected["ffn"]
    check_sizes(report, expected)
    check_others_untouched(report, env.get("HCCL_BUFFSIZE"))
    for rank in report.ranks:
        assert rank.environ_changed == ()
        assert rank.initialized == (True,)
        assert rank.errors == ()


def test_dynamic_quantization_counts(warmed):
    plain = _connector(extra={"attn_ranks_per_dp": 2})
    report = warmed.run(World(4, 2, (plain,)))
    check_sizes(report, _expected(4, 2, quant=False))


@pytest.mark.parametrize("flag", [None, {"enabled": False}], ids=["absent", "disabled"])
@pytest.mark.parametrize("env", [{}, {"HCCL_BUFFSIZE": "4096"}], ids=["unset", "4096"])
def test_without_the_flag_everything_is_as_without_the_plugin(warmed, env, flag):
    report = warmed.run(World(2, 1, (_connector(flag=flag),), env=env))
    assert all(rank.plugin_loaded for rank in report.ranks)
    check_left_alone(report, int(env.get("HCCL_BUFFSIZE", 200)))
    check_others_untouched(report, env.get("HCCL_BUFFSIZE"))
    assert quiet(report)


def test_an_allow_list_without_our_name_leaves_the_plugin_out(warmed):
    report = warmed.run(World(2, 1, (_connector(),), env={"VLLM_PLUGINS": "afd"}))
    assert not any(rank.plugin_loaded for rank in report.ranks)
    check_left_alone(report, 200)


def test_afd_plugin_may_be_imported_before_the_plugins_load(warmed):
    report = warmed.run(World(2, 1, (_connector(),), afd_before_plugins=True))
    check_sizes(report, _expected(2, 1))


def test_the_startup_line_is_logged_once_per_role(warmed):
    report = warmed.run(World(4, 2, (_connector(),)))
    for role in ("attention", "ffn"):
        first, *others = report.of(role)
        size = _expected(4, 2)[role]["afd_async_cam"]
        line = first.log_text("INFO")
        assert "\n" not in line
        for part in (role, "CAMAsyncAFDConnector", "afd_async_cam", str(_TOKENS), "7168"):
            assert part in line
        assert f"{size}MB" in line
        assert f"{2 * size}MB" in line
        assert "HCCL_BUFFSIZE=unset left unchanged" in line
        assert [text for rank in others for level, text in rank.logs if level == "INFO"] == []


def test_the_startup_line_names_the_environment_it_leaves(warmed):
    report = warmed.run(World(2, 1, (_connector(),), env={"HCCL_BUFFSIZE": "4096"}))
    assert "HCCL_BUFFSIZE=4096 left unchanged" in report.of("ffn")[0].log_text("INFO")


def test_every_rank_logs_the_line_for_debugging(warmed):
    report = warmed.run(World(2, 1, (_connector(),), log_level="DEBUG"))
    assert "afd_async_cam" in report.ranks[1].log_text("DEBUG")


def test_scope_group_gives_both_roles_the_larger_size(warmed):
    report = warmed.run(World(2, 1, (_connector(flag={"scope": "group"}),)))
    expected = _expected(2, 1)
    larger = max(expected["attention"]["afd_async_cam"], expected["ffn"]["afd_async_cam"])
    check_sizes(report, _both({"afd_async_cam": larger}))


def test_a_fixed_size_replaces_the_derived_one(warmed):
    report = warmed.run(World(2, 1, (_connector(flag={"buffer_size_mb": 777}),)))
    check_sizes(report, _both({"afd_async_cam": 777}))


def test_a_fixed_size_of_one_role_leaves_the_other_derived(warmed):
    report = warmed.run(World(2, 1, (_connector(flag={"buffer_size_mb": {"ffn": 999}}),)))
    check_sizes(report, _expected(2, 1) | {"ffn": {"afd_async_cam": 999}})


def test_a_size_below_the_operator_need_is_used_and_warned_of(warmed):
    report = warmed.run(World(2, 1, (_connector(flag={"buffer_size_mb": 5}),)))
    check_sizes(report, _both({"afd_async_cam": 5}))
    assert "5" in report.of("ffn")[0].log_text("WARNING")
    assert "afd_async_cam" in report.of("ffn")[0].log_text("WARNING")
