# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The three model numbers, in every spelling and however deeply nested."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cam_hccl_plugin.model import ModelShape
from cam_hccl_plugin.model_config import candidates, read_shape

BASE: dict[str, Any] = {"hidden_size": 7168, "num_experts_per_tok": 8, "n_routed_experts": 256}
SHAPE = ModelShape(7168, 8, 256)


def read(*configs: Any) -> ModelShape | None:
    return read_shape(candidates(*configs), "here", "do this")[0]


def problem(*configs: Any) -> str:
    shape, text = read_shape(candidates(*configs), "here", "do this")
    assert shape is None
    return text


def without(key: str, **more: Any) -> dict[str, Any]:
    return {**{k: v for k, v in BASE.items() if k != key}, **more}


as_mapping_and_object = pytest.mark.parametrize(
    "kind", [dict, lambda values: SimpleNamespace(**values)], ids=["mapping", "object"]
)


@as_mapping_and_object
def test_the_usual_spelling(kind: Any) -> None:
    assert read(kind(BASE)) == SHAPE


@as_mapping_and_object
@pytest.mark.parametrize(
    "name",
    ["num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k"],
)
def test_every_spelling_of_topk(kind: Any, name: str) -> None:
    assert read(kind(without("num_experts_per_tok", **{name: 6}))) == ModelShape(7168, 6, 256)


@as_mapping_and_object
@pytest.mark.parametrize(
    "name", ["n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"]
)
def test_every_spelling_of_routed_experts(kind: Any, name: str) -> None:
    assert read(kind(without("n_routed_experts", **{name: 64}))) == ModelShape(7168, 8, 64)


@as_mapping_and_object
def test_a_multimodal_wrapper_nests_the_text_config(kind: Any) -> None:
    wrapper = kind({"hidden_size": 1, "text_config": kind(BASE), "vision_config": kind({})})
    assert read(wrapper) == SHAPE


def test_what_the_text_config_lacks_is_taken_from_the_wrapper() -> None:
    assert read({"n_routed_experts": 256, "text_config": without("n_routed_experts")}) == SHAPE


def test_the_first_config_wins_and_none_is_passed_over() -> None:
    assert read(None, BASE, {**BASE, "hidden_size": 1}) == SHAPE


@pytest.mark.parametrize("key", list(BASE))
@pytest.mark.parametrize("value", [0, -1, 1.5, 7168.0, "7168", True, False, [], [1, 2], {}])
def test_what_is_no_positive_integer_is_named_with_its_value(key: str, value: Any) -> None:
    text = problem(without(key, **{key: value}))
    assert f"{key} is {value!r}" in text
    assert "positive integer" in text
    assert text.startswith("here: ")
    assert text.endswith("do this")


@pytest.mark.parametrize(
    ("key", "looked_for"),
    [
        ("hidden_size", "hidden_size"),
        ("num_experts_per_tok", "num_experts_per_tok, num_experts_per_token, moe_topk"),
        ("n_routed_experts", "n_routed_experts, num_experts, num_local_experts"),
    ],
)
@pytest.mark.parametrize("value", ["absent", None])
def test_what_is_missing_is_named_with_every_spelling(
    key: str, looked_for: str, value: str | None
) -> None:
    config = without(key) if value else without(key, **{key: None})
    assert f"missing (looked for {looked_for}" in problem(config)


def test_everything_that_is_wrong_is_in_one_sentence() -> None:
    text = problem({})
    assert text.count("is missing") == 3


def test_a_dense_model_gets_the_question_whether_it_is_moe() -> None:
    assert "MoE" in problem({"hidden_size": 4096, "intermediate_size": 11008})
    assert "MoE" not in problem(without("n_routed_experts"))


def test_a_number_repeated_per_modality_counts_once() -> None:
    assert read(without("num_experts_per_tok", moe_topk=[6, 6])) == ModelShape(7168, 6, 256)
    assert "[64, 32]" in problem(without("n_routed_experts", moe_num_experts=[64, 32]))


def test_a_config_that_contains_itself_is_read_once() -> None:
    config = SimpleNamespace(**BASE)
    config.text_config = config
    assert read(config) == SHAPE
    assert candidates(config, config) == [config]


@pytest.mark.parametrize("nested", ["text", 3, [], {}])
def test_a_text_config_that_is_no_config_is_passed_over(nested: Any) -> None:
    assert read({**BASE, "text_config": nested}) == SHAPE
