# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What is read from VllmConfig, from the connector and from the environment."""

from __future__ import annotations

import enum
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import async_config, camp2p_config, hf_config, vllm_config

from cam_hccl_plugin import vllm_adapter
from cam_hccl_plugin.errors import PlanError, SettingsError
from cam_hccl_plugin.model import ModelShape, Role, SizingInputs, Topology
from cam_hccl_plugin.settings import Settings, parse_settings

TOPOLOGY = Topology(16, 16)


def connector(role: Any = "attention", a: Any = 16, f: Any = 16, **attributes: Any) -> Any:
    """A connector that exposes no model numbers unless they are given."""
    afd_config = SimpleNamespace(role=role, num_attention_ranks=a, num_ffn_ranks=f)
    return SimpleNamespace(afd_config=afd_config, **attributes)


def flag(**values: Any) -> Settings:
    settings = parse_settings(values)
    assert settings is not None
    return settings


def inputs(
    config: Any, settings: Settings | None = None, made: Any = None
) -> tuple[SizingInputs | None, str]:
    return vllm_adapter.read_inputs(made or connector(), config, TOPOLOGY, settings or Settings())


class TestFlag:
    def test_both_places_are_read(self) -> None:
        config = vllm_config()
        assert vllm_adapter.read_flag(config) is None
        config.kv_transfer_config = SimpleNamespace(
            kv_connector_extra_config={"cam_hccl": {"headroom": 3}}
        )
        found = vllm_adapter.read_flag(config)
        assert found is not None
        assert found.headroom == 3
        config.additional_config["cam_hccl"] = {"headroom": 2}
        with pytest.raises(SettingsError):
            vllm_adapter.read_flag(config)

    @pytest.mark.parametrize("additional", [None, {}, "text"])
    def test_a_config_without_anything_means_off(self, additional: Any) -> None:
        assert vllm_adapter.read_flag(SimpleNamespace(additional_config=additional)) is None
        assert vllm_adapter.read_flag(SimpleNamespace()) is None

    def test_reading_does_not_change_additional_config(self) -> None:
        config = vllm_config(flag={"headroom": 2})
        before = repr(config.additional_config)
        vllm_adapter.read_flag(config)
        assert repr(config.additional_config) == before


class TestRole:
    @pytest.mark.parametrize("role", list(Role))
    def test_text_and_enumerations_are_taken(self, role: Role) -> None:
        foreign = enum.Enum("foreign", {"X": role.value})
        for given in (role.value, foreign.X):
            assert vllm_adapter.read_role(connector(given)) is role

    @pytest.mark.parametrize("given", ["prefill", "", None, 1, [], "FFN"])
    def test_a_role_that_is_neither_is_an_error(self, given: Any) -> None:
        with pytest.raises(PlanError) as caught:
            vllm_adapter.read_role(connector(given))
        for words in (repr(given), '"attention"', '"ffn"', "afd_config.role"):
            assert words in str(caught.value)

    def test_a_connector_without_afd_config_has_no_role(self) -> None:
        with pytest.raises(PlanError, match="role is None"):
            vllm_adapter.read_role(SimpleNamespace())


class TestTopology:
    def read(self, made: Any, config: Any, role: Role = Role.ATTENTION, **values: Any) -> Topology:
        return vllm_adapter.read_topology(made, config, role, flag(**values))

    def test_everything_comes_from_where_the_contract_says(self) -> None:
        extra = SimpleNamespace(attn_ranks_per_dp=4)
        made = connector(a=24, f=8, extra_info=extra)
        found = self.read(made, vllm_config(tp=4, pcp=2, ubatches=3), num_npus_per_dp_group=2)
        assert found == Topology(24, 8, 3, 4, 8, 2)

    def test_attn_ranks_per_dp_falls_back_to_the_afd_configuration(self) -> None:
        found = self.read(connector(), vllm_config(extra={"attn_ranks_per_dp": 8}))
        assert found.attn_ranks_per_dp == 8

    def test_an_ffn_process_says_nothing_about_attention_tp(self) -> None:
        assert self.read(connector(), vllm_config(tp=8), Role.FFN).tp_pcp_ranks is None

    @pytest.mark.parametrize(("given", "expected"), [(0, 1), (1, 1), (2, 2), (None, 1)])
    def test_ubatches_are_at_least_1(self, given: Any, expected: int) -> None:
        assert self.read(connector(), vllm_config(ubatches=given)).num_ubatches == expected

    @pytest.mark.parametrize("value", [0, -1, None, 1.5, "16", True])
    @pytest.mark.parametrize("field", ["num_attention_ranks", "num_ffn_ranks"])
    def test_a_rank_count_that_is_not_positive_is_an_error(self, field: str, value: Any) -> None:
        made = connector()
        setattr(made.afd_config, field, value)
        with pytest.raises(PlanError) as caught:
            self.read(made, vllm_config())
        given = "missing" if value is None else repr(value)
        for words in (f"{field} is {given}", "connector.afd_config", f"afd.{field}"):
            assert words in str(caught.value)

    @pytest.mark.parametrize("value", [0, -1, "8", 1.0])
    def test_attn_ranks_per_dp_that_is_not_positive_is_an_error(self, value: Any) -> None:
        with pytest.raises(PlanError, match="attn_ranks_per_dp is"):
            self.read(connector(), vllm_config(extra={"attn_ranks_per_dp": value}))

    @pytest.mark.parametrize("value", [0, "8", None])
    def test_tp_that_is_not_positive_is_an_error_that_the_flag_overrides(self, value: Any) -> None:
        config = vllm_config()
        config.parallel_config.tensor_parallel_size = value
        with pytest.raises(PlanError) as caught:
            self.read(connector(), config)
        for words in ("tensor_parallel_size", "parallel_config", "num_npus_per_dp_group"):
            assert words in str(caught.value)
        assert self.read(connector(), config, num_npus_per_dp_group=4).npus_per_dp_group == 4


class TestModel:
    def test_the_text_config_is_read_first_then_the_wrapper(self) -> None:
        config = vllm_config()
        config.model_config = SimpleNamespace(
            hf_text_config=SimpleNamespace(hidden_size=7168, num_experts_per_tok=8),
            hf_config=SimpleNamespace(hidden_size=1, n_routed_experts=256),
        )
        found, _ = inputs(config)
        assert found is not None
        assert found.model == ModelShape(7168, 8, 256)

    def test_a_nested_text_config_is_found_below_hf_config(self) -> None:
        config = vllm_config()
        wrapper = SimpleNamespace(hidden_size=1, text_config=hf_config())
        config.model_config = SimpleNamespace(hf_text_config=wrapper, hf_config=wrapper)
        found, _ = inputs(config)
        assert found is not None
        assert found.model == ModelShape(7168, 8, 256)

    @pytest.mark.parametrize("topk", ["topk", "num_experts_per_tok"])
    def test_the_connector_fills_in_what_the_config_lacks(self, topk: str) -> None:
        numbers = {"hidden_size": 4096, topk: 6, "num_routed_experts": 64}
        found, _ = inputs(vllm_config(model=SimpleNamespace()), made=connector(**numbers))
        assert found is not None
        assert found.model == ModelShape(4096, 6, 64)

    @pytest.mark.parametrize(
        ("attribute", "value", "stated"),
        [
            ("hidden_size", 4096, 7168),
            ("topk", 6, 8),
            ("num_experts_per_tok", 6, 8),
            ("num_routed_experts", 64, 256),
        ],
    )
    def test_a_disagreement_is_an_error_with_both_values(
        self, attribute: str, value: int, stated: int
    ) -> None:
        with pytest.raises(PlanError) as caught:
            inputs(vllm_config(), made=connector(**{attribute: value}))
        text = str(caught.value)
        for words in ("disagree", str(value), str(stated)):
            assert words in text

    def test_a_disagreement_shows_even_if_the_config_lacks_another_number(self) -> None:
        numbers = {"hidden_size": 4096, "topk": 6, "num_routed_experts": 64}
        config = vllm_config(model=SimpleNamespace(hidden_size=7168))
        with pytest.raises(PlanError, match="disagree"):
            inputs(config, made=connector(**numbers))

    def test_agreement_is_silent(self) -> None:
        found, missing = inputs(vllm_config(), made=connector(hidden_size=7168, topk=8))
        assert found is not None
        assert missing == ""

    @pytest.mark.parametrize("value", [0, -1, "8", None, 1.5])
    @pytest.mark.parametrize("field", ["hidden_size", "num_experts_per_tok", "n_routed_experts"])
    def test_a_bad_number_names_field_place_and_remedy(self, field: str, value: Any) -> None:
        model = hf_config()
        setattr(model, field, value)
        found, missing = inputs(vllm_config(model=model))
        assert found is None
        for words in (field, "hf_text_config", "hf_config", "connector", "cam_hccl."):
            assert words in missing

    def test_an_empty_config_lists_all_three(self) -> None:
        _, missing = inputs(vllm_config(model=SimpleNamespace()))
        assert missing.count("is missing") == 3


class TestTokens:
    @pytest.mark.parametrize("value", [0, -1, None, "8192", 8192.0, True])
    def test_a_bad_number_names_field_place_and_remedy(self, value: Any) -> None:
        found, missing = inputs(vllm_config(tokens=value))
        assert found is None
        for words in ("max_num_batched_tokens", repr(value), "scheduler_config", "cam_hccl."):
            assert words in missing

    def test_it_is_the_schedulers(self) -> None:
        found, _ = inputs(vllm_config(tokens=123))
        assert found is not None
        assert found.max_num_batched_tokens == 123


class TestDynamicQuant:
    def read(self, config: Any, settings: Settings | None = None, **extra_info: Any) -> bool:
        made = connector(extra_info=SimpleNamespace(**extra_info))
        found, _ = inputs(config, settings, made)
        assert found is not None
        return found.dynamic_quant

    def test_the_flag_is_first(self) -> None:
        config = vllm_config(extra={"dynamicQuant": 1})
        assert not self.read(config, flag(dynamic_quant=0), dynamic_quant=1)
        assert self.read(vllm_config(), flag(dynamic_quant=True), dynamic_quant=0)

    def test_then_what_the_connector_parsed(self) -> None:
        assert self.read(vllm_config(), dynamic_quant=1)
        assert not self.read(vllm_config(extra={"dynamicQuant": 1}), dynamic_quant=0)

    def test_then_the_afd_configuration(self) -> None:
        assert self.read(vllm_config(extra={"dynamicQuant": 1}))

    def test_then_none(self) -> None:
        assert not self.read(vllm_config())

    @pytest.mark.parametrize("value", [2, -1, "1", 1.0])
    def test_another_value_is_an_error(self, value: Any) -> None:
        with pytest.raises(PlanError) as caught:
            self.read(vllm_config(extra={"dynamicQuant": value}))
        for words in ("dynamicQuant", repr(value), "connector_extra_config", "cam_hccl.dynamic_q"):
            assert words in str(caught.value)

    def test_the_flag_overrides_another_value(self) -> None:
        assert self.read(vllm_config(extra={"dynamicQuant": 2}), flag(dynamic_quant=1))


class TestBuffsize:
    @pytest.mark.parametrize(
        ("raw", "effective"),
        [(None, 200), ("4096", 4096), (" 4096", 4096), ("1", 1), ("4294967294", 4294967294)],
    )
    def test_what_hccl_reads_as_it_is_written(self, raw: str | None, effective: int) -> None:
        found = vllm_adapter.read_buffsize(raw)
        assert found.effective_mib == effective
        assert found.problem == ""

    @pytest.mark.parametrize("raw", ["abc", "", "0", "-5", " ", "-4294967295", "4294967296", "x1"])
    def test_what_makes_the_first_communicator_fail(self, raw: str) -> None:
        found = vllm_adapter.read_buffsize(raw)
        assert repr(raw) in found.problem
        assert "not a positive integer" in found.problem
        assert "fail on its first communicator" in found.problem

    @pytest.mark.parametrize(
        ("raw", "effective"), [("4096.5", 4096), ("300MB", 300), ("4294967297", 1)]
    )
    def test_what_hccl_reads_as_something_else(self, raw: str, effective: int) -> None:
        found = vllm_adapter.read_buffsize(raw)
        assert found.effective_mib == effective
        assert f"{effective} MB" in found.problem
        assert "fail" not in found.problem

    def test_a_number_of_any_length_is_read(self) -> None:
        assert vllm_adapter.read_buffsize("9" * 5000).problem

    @pytest.mark.parametrize("raw", [None, "4096", "abc"])
    def test_the_environment_is_read_as_it_is(
        self, raw: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if raw is not None:
            monkeypatch.setenv("HCCL_BUFFSIZE", raw)
        assert vllm_adapter.environment_buffer().raw == raw
        assert str(vllm_adapter.environment_buffer()) == (raw or "unset")


class TestRest:
    def test_identity_names_the_class_and_its_bases_in_order(self) -> None:
        class CAMBase: ...

        class Mine(CAMBase): ...

        found = vllm_adapter.read_identity(Mine(), vllm_config(extra={"a": 1}))
        assert found.class_name == "Mine"
        assert found.base_names == ("Mine", "CAMBase")
        assert found.extra_config == {"a": 1}
        with pytest.raises(TypeError):
            found.extra_config["a"] = 2  # type: ignore[index]  # that is the point

    @pytest.mark.parametrize(("value", "expected"), [(512, 512), (None, None), (0, None)])
    def test_the_users_afd_setting_is_known_early(self, value: Any, expected: int | None) -> None:
        made = connector(extra_info=SimpleNamespace(hccl_buffer_size=value))
        assert vllm_adapter.read_caller_mib(made, vllm_config()) == expected

    @pytest.mark.parametrize(
        ("value", "expected"),
        [(0.9, Fraction(9, 10)), (1, Fraction(1)), ("0.9", None), (None, None), (True, None)]
        + [(float(word), None) for word in ("nan", "inf", "-inf")],
    )
    def test_utilization_is_an_exact_decimal(self, value: Any, expected: Fraction | None) -> None:
        assert vllm_adapter.read_utilization(vllm_config(utilization=value)) == expected

    def test_the_afd_section_is_an_object_or_missing(self) -> None:
        assert vllm_adapter.afd_section(async_config()) is not None
        assert vllm_adapter.afd_section(camp2p_config()) is not None
        for additional in (None, {}, {"afd": None}, {"afd": "x"}, "x"):
            config = SimpleNamespace(additional_config=additional)
            assert vllm_adapter.afd_section(config) is None
