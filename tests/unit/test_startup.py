# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What is checked before a rendezvous, what is logged, and by which rank."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from conftest import Records, Stack
from fakes import GENERIC, GIB, async_config, camp2p_config, vllm_config

from cam_hccl_plugin.errors import CamHcclError, InjectionError, PlanError, SettingsError

MIB = 2**20


def line(records: Records) -> str:
    (found,) = [i for i in records.infos if "groups=" in i]
    return found


class TestStartupLine:
    def test_it_has_everything_on_one_greppable_line(self, stack: Stack, records: Records) -> None:
        stack.start(async_config("ffn"))
        found = line(records)
        assert found.startswith("cam_hccl: ")
        assert "\n" not in found
        for words in (
            "role=ffn",
            "connector=CAMAsyncAFDConnector",
            "groups=afd_async_cam=113MB(derived)",
            "selected=113MB",
            "published_bytes=101187584",
            "operator_bytes=118263840",
            "hidden_size=7168",
            "topk=8",
            "routed_experts=256",
            "max_num_batched_tokens=8192",
            "attention_ranks=16",
            "ffn_ranks=16",
            "num_npus_per_dp_group=8",
            "dynamic_quant=1",
            "device_memory=226MB",
            "HCCL_BUFFSIZE=unset left unchanged",
        ):
            assert words in found

    def test_it_says_that_the_operators_raised_the_size_with_both_numbers(
        self, stack: Stack, records: Records
    ) -> None:
        stack.start(async_config("ffn"))
        assert "operator floor: the published requirement gives 107 MB" in line(records)
        assert "raised to 113 MB" in line(records)

    def test_it_is_silent_about_a_floor_that_raised_nothing(
        self, stack: Stack, records: Records
    ) -> None:
        stack.start(async_config("attention"))
        assert "floor" not in line(records)

    def test_memory_is_twice_the_sum_over_this_roles_groups(
        self, stack: Stack, records: Records
    ) -> None:
        stack.start(camp2p_config("ffn", ubatches=2))
        assert "groups=afd=52MB(derived),afd1=52MB(derived),afd_moe=52MB(derived)" in line(records)
        assert "device_memory=312MB" in line(records)

    @pytest.mark.parametrize("raw", ["4096", "abc", "0"])
    def test_the_environment_is_shown_as_it_is(
        self, stack: Stack, records: Records, monkeypatch: pytest.MonkeyPatch, raw: str
    ) -> None:
        monkeypatch.setenv("HCCL_BUFFSIZE", raw)
        stack.start(async_config())
        assert f"HCCL_BUFFSIZE={raw} left unchanged" in line(records)

    def test_where_each_size_came_from(self, stack: Stack, records: Records) -> None:
        flag = {"buffer_size_mb": 60, "group_buffer_size_mb": {"afd1": 70, "afd_moe": None}}
        stack.start(camp2p_config("ffn", ubatches=2, flag=flag))
        assert "afd=60MB(buffer_size_mb),afd1=70MB(group_buffer_size_mb)" in line(records)
        assert "afd_moe=200MB(group_buffer_size_mb null)" in line(records)
        assert "device_memory=660MB" in line(records)

    def test_it_comes_once_per_start(self, stack: Stack, records: Records) -> None:
        connector = stack.start(async_config())
        connector.init_afd_connector()
        assert len([i for i in records.infos if "groups=" in i]) == 1

    def test_no_unit_is_called_gb(self, stack: Stack, records: Records) -> None:
        stack.set_device(GIB)
        stack.start(async_config(utilization=0.99))
        assert records.warnings
        assert not any("GB" in message for message in records.at(20) + records.warnings)


class TestWhoSpeaks:
    def test_the_first_local_rank_at_info_and_warning(self, stack: Stack, records: Records) -> None:
        stack.start(async_config(flag={"buffer_size_mb": 5}), local_rank=0)
        assert "groups=" in line(records)
        assert any("below the operator need" in w for w in records.warnings)

    def test_the_others_at_debug(self, stack: Stack, records: Records) -> None:
        stack.start(async_config(flag={"buffer_size_mb": 5}), rank=1, local_rank=1)
        assert records.above_debug == []
        assert any("groups=" in d for d in records.debugs)
        assert any("below the operator need" in d for d in records.debugs)

    @pytest.mark.parametrize("local_rank", [0, 1, 7])
    def test_the_memory_guard_on_every_rank_once(
        self, stack: Stack, records: Records, local_rank: int
    ) -> None:
        stack.set_device(GIB)
        connector = stack.start(async_config(), local_rank=local_rank)
        connector.close()
        connector.init_afd_connector()
        assert len([w for w in records.warnings if "memory guard" in w]) == 1

    def test_the_memory_guard_once_even_if_init_creates_more_groups_than_planned(
        self, stack: Stack, records: Records
    ) -> None:
        stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        stack.set_device(GIB)
        stack.start(vllm_config(connector="CAMOtherConnector", flag={}))
        assert len([w for w in records.warnings if "memory guard" in w]) == 1

    @pytest.mark.parametrize("local_rank", [0, 3])
    def test_unreadable_memory_on_every_rank(
        self, stack: Stack, records: Records, local_rank: int
    ) -> None:
        stack.set_device(error=RuntimeError("no device"))
        stack.start(async_config(), local_rank=local_rank)
        (warning,) = records.warnings
        assert "memory guard skipped" in warning
        assert "no device" in warning


class TestMemory:
    """Attention of Async takes 139 MB in one group: 347.5 MiB and 278 MiB are wanted."""

    def test_exactly_enough_is_silent(self, stack: Stack, records: Records) -> None:
        stack.set_device(3475 * MIB)
        stack.start(async_config())
        assert records.warnings == []

    def test_a_byte_less_warns_with_three_numbers_and_the_best_utilization(
        self, stack: Stack, records: Records
    ) -> None:
        stack.set_device(3475 * MIB - 10)
        config = async_config()
        stack.start(config)
        (warning,) = records.warnings
        for words in ("347.5 MiB", "278 MiB", "3475.0 MiB", "0.9,", "0.89 would do"):
            assert words in warning
        assert config.cache_config.gpu_memory_utilization == 0.9

    def test_the_setting_makes_it_an_error_before_any_group(self, stack: Stack) -> None:
        stack.set_device(GIB)
        with pytest.raises(PlanError, match="on_memory_shortage"):
            stack.create(async_config(flag={"on_memory_shortage": "error"}))

    def test_the_ratio_is_a_setting_and_zero_leaves_the_second_half(
        self, stack: Stack, records: Records
    ) -> None:
        stack.set_device(2780 * MIB)
        stack.start(async_config(flag={"memory_guard_ratio": 0}))
        assert records.warnings == []
        stack.set_device(2779 * MIB)
        stack.create(async_config(flag={"memory_guard_ratio": 0}))
        assert len(records.warnings) == 1

    @pytest.mark.parametrize("flag", [{}, {"memory_guard_ratio": 0}])
    def test_groups_that_cannot_fit_are_an_error_before_any_group(
        self, stack: Stack, flag: dict[str, Any]
    ) -> None:
        stack.set_device(278 * MIB)
        stack.create(async_config(flag=flag))
        stack.set_device(278 * MIB - 1)
        with pytest.raises(PlanError, match="278 MiB"):
            stack.create(async_config(flag=flag))
        assert stack.groups.calls == []

    def test_groups_that_cannot_fit_are_an_error_without_a_utilization_too(
        self, stack: Stack
    ) -> None:
        stack.set_device(277 * MIB)
        with pytest.raises(PlanError, match="278 MiB"):
            stack.create(async_config(utilization=None))

    def test_what_the_environment_gives_counts(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HCCL_BUFFSIZE", "4096")
        stack.set_device(8 * GIB)
        flag = {"group_buffer_size_mb": {"afd_moe": None}}
        with pytest.raises(PlanError, match="8296 MiB"):  # 2 x (52 + 4096)
            stack.create(camp2p_config("ffn", flag=flag))

    @pytest.mark.parametrize("error", [NotImplementedError("no"), RuntimeError("no")])
    def test_unreadable_memory_is_a_warning_or_an_error_by_the_setting(
        self, stack: Stack, records: Records, error: Exception
    ) -> None:
        stack.set_device(error=error)
        stack.start(async_config())
        assert any("memory guard skipped" in w for w in records.warnings)
        assert stack.groups.sizes == {"afd_async_cam": 139}
        with pytest.raises(PlanError, match="memory guard skipped"):
            stack.create(async_config(flag={"on_memory_shortage": "error"}))

    def test_memory_is_read_once_and_only_for_a_cam_connector(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads: list[int] = []

        def mem_get_info() -> tuple[int, int]:
            reads.append(1)
            return 0, 64 * GIB

        stack.torch.npu = SimpleNamespace(mem_get_info=mem_get_info)  # type: ignore[attr-defined]  # a module
        stack.start(async_config(flag=None))
        stack.start(vllm_config(connector="P2pNcclAFDConnector", flag={}))
        assert reads == []
        stack.groups.alive.clear()
        stack.start(async_config())
        assert len(reads) == 1


class TestErrorsBeforeAnyGroup:
    @pytest.mark.parametrize(
        ("make", "changes", "words"),
        [
            (async_config, {"flag": {"headroom": 0.5}}, ["cam_hccl.headroom", "0.5"]),
            (async_config, {"tokens": 0}, ["max_num_batched_tokens is 0", "scheduler_config"]),
            (async_config, {"tokens": None}, ["max_num_batched_tokens is None"]),
            (camp2p_config, {"tokens": "28"}, ["max_num_batched_tokens is '28'"]),
            (
                camp2p_config,
                {"flag": {"scope": "group"}},
                ["scope", "buffer_size_mb", "group_buffer_size_mb"],
            ),
            (
                camp2p_config,
                {"flag": {"group_buffer_size_mb": {"afd7": 1}}},
                ["afd7", "afd, afd_moe"],
            ),
            (async_config, {"extra": {"dynamicQuant": 3}}, ["dynamicQuant is 3"]),
            (async_config, {"extra": {"attn_ranks_per_dp": 0}}, ["attn_ranks_per_dp is 0"]),
        ],
    )
    def test_they_are_raised_when_the_connector_is_created(
        self, stack: Stack, make: Any, changes: dict[str, Any], words: list[str]
    ) -> None:
        with pytest.raises(CamHcclError) as caught:
            stack.create(make(**changes))
        for word in words:
            assert word in str(caught.value)
        assert stack.groups.calls == []

    def test_a_torch_npu_that_cannot_take_sizes(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))
        with pytest.raises(InjectionError, match="torch_npu has no usable"):
            stack.create(async_config())
        assert stack.groups.calls == []

    def test_without_any_torch_npu_the_plan_is_made_and_the_group_refused(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch_npu", None)
        connector = stack.create(async_config())
        with pytest.raises(InjectionError, match="torch_npu has no usable"):
            connector.init_afd_connector()
        assert stack.groups.calls == []

    def test_a_torch_npu_that_has_to_take_none_is_not_asked(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))
        stack.start(async_config(flag={"group_buffer_size_mb": {"afd_async_cam": None}}))
        assert stack.groups.sizes == {"afd_async_cam": None}

    def test_a_disagreement_of_connector_and_config(self, stack: Stack) -> None:
        config = async_config()
        config.model_config.hf_text_config = SimpleNamespace(
            hidden_size=4096, num_experts_per_tok=8, n_routed_experts=256
        )
        with pytest.raises(PlanError, match="disagree"):
            stack.create(config)

    def test_the_flag_in_two_places_with_different_content(self, stack: Stack) -> None:
        config = async_config(flag={"headroom": 2})
        config.kv_transfer_config = SimpleNamespace(
            kv_connector_extra_config={"cam_hccl": {"headroom": 3}}
        )
        with pytest.raises(SettingsError, match="different"):
            stack.create(config)

    def test_the_flag_in_the_kv_place_sizes_as_well(self, stack: Stack) -> None:
        config = async_config(flag=None)
        config.kv_transfer_config = SimpleNamespace(
            kv_connector_extra_config={"cam_hccl": {"buffer_size_mb": 321}}
        )
        stack.start(config)
        assert stack.groups.sizes == {"afd_async_cam": 321}


class TestSettingsReachTheGroups:
    @pytest.mark.parametrize(
        ("role", "flag", "size"),
        [
            ("attention", {"headroom": 1}, 127),
            ("attention", {"sizing": "operator"}, 139),
            ("attention", {"num_npus_per_dp_group": 16}, 127),
            ("ffn", {"sizing": "published"}, 107),
            ("ffn", {"sizing": "operator"}, 125),
            ("ffn", {"sizing": "operator", "headroom": 1}, 113),
            ("ffn", {"dynamic_quant": 0}, 225),
            ("ffn", {"buffer_size_mb": {"ffn": 300}}, 300),
            ("attention", {"buffer_size_mb": {"ffn": 300}}, 139),
            ("attention", {"scope": "group"}, 139),
            ("ffn", {"scope": "group"}, 139),
        ],
    )
    def test_in_async(self, stack: Stack, role: str, flag: Any, size: int) -> None:
        stack.start(async_config(role, flag=flag))
        assert stack.groups.sizes == {"afd_async_cam": size}

    @pytest.mark.parametrize(
        ("role", "flag", "sizes"),
        [
            ("ffn", {"num_npus_per_dp_group": 8}, {"afd": 52, "afd_moe": 52}),
            ("ffn", {"scope": "group", "buffer_size_mb": 60}, {"afd": 60, "afd_moe": 60}),
            (
                "ffn",
                {"scope": "group", "buffer_size_mb": {"attention": 70, "ffn": 60}},
                {"afd": 70, "afd_moe": 60},
            ),
            (
                "ffn",
                {"scope": "group", "group_buffer_size_mb": {"afd": 99}},
                {"afd": 99, "afd_moe": 52},
            ),
            ("attention", {"group_buffer_size_mb": {"afd_moe": 300}}, {"afd": 4}),
            ("attention", {"sizing": "published", "num_npus_per_dp_group": 28}, {"afd": 1}),
        ],
    )
    def test_in_camp2p(self, stack: Stack, role: str, flag: Any, sizes: dict[str, int]) -> None:
        stack.start(camp2p_config(role, flag=flag))
        assert stack.groups.sizes == {**sizes, "p2p": None}

    def test_camp2p_attention_divides_by_tp_times_pcp(self, stack: Stack) -> None:
        # 2 * 7168 * 1024 * 9 bytes are exactly 126 MiB; the operators need 118.6.
        stack.start(camp2p_config(tokens=8192, tp=4, pcp=2))
        assert stack.groups.sizes["afd"] == 139


class TestFixedSizesWithoutInputs:
    def test_all_fixed_is_one_info(self, stack: Stack, records: Records) -> None:
        stack.start(async_config(flag={"buffer_size_mb": 300}, tokens=0))
        assert stack.groups.sizes == {"afd_async_cam": 300}
        assert records.warnings == []
        (note,) = [i for i in records.infos if "operator check skipped" in i]
        assert "max_num_batched_tokens is 0" in note
        assert "operator_bytes=unknown" in line(records)

    def test_not_all_fixed_is_an_error(self, stack: Stack) -> None:
        flag = {"group_buffer_size_mb": {"afd": 300}}
        with pytest.raises(PlanError, match="max_num_batched_tokens"):
            stack.create(camp2p_config("ffn", flag=flag, tokens=0))


class TestWarnings:
    @pytest.mark.parametrize("raw", ["abc", "", "0", "-5"])
    def test_a_useless_buffsize_warns_that_hccl_will_fail(
        self, stack: Stack, records: Records, monkeypatch: pytest.MonkeyPatch, raw: str
    ) -> None:
        monkeypatch.setenv("HCCL_BUFFSIZE", raw)
        stack.create(async_config())
        (warning,) = records.warnings
        assert "HCCL will fail on its first communicator" in warning
        assert repr(raw) in warning

    @pytest.mark.parametrize("raw", ["4096", " 4096", "1"])
    def test_a_useful_one_does_not(
        self, stack: Stack, records: Records, monkeypatch: pytest.MonkeyPatch, raw: str
    ) -> None:
        monkeypatch.setenv("HCCL_BUFFSIZE", raw)
        stack.start(async_config())
        assert records.warnings == []

    def test_witnesses_that_disagree_warn_with_their_values(
        self, stack: Stack, records: Records
    ) -> None:
        stack.create(async_config(tp=4, flag={"num_npus_per_dp_group": 2}))
        (warning,) = records.warnings
        for words in ("num_npus_per_dp_group=2", "attn_ranks_per_dp=8", "TP x PCP=4"):
            assert words in warning

    def test_an_operator_limit_warns_when_the_connector_is_created(
        self, stack: Stack, records: Records
    ) -> None:
        stack.create(async_config(tokens=300_000))
        assert any("262144" in w for w in records.warnings)

    def test_an_ordinary_start_warns_of_nothing(self, stack: Stack, records: Records) -> None:
        for role in ("attention", "ffn"):
            for make in (async_config, camp2p_config):
                stack.start(make(role))
                stack.groups.alive.clear()
        assert records.warnings == records.errors == []
