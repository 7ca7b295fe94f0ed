# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The shapes of well-known models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cam_hccl_plugin.cli import main
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.model import ModelShape
from cam_hccl_plugin.model_shapes import SHAPES, shape_named, suggestion_for

CASES = Path(__file__).resolve().parents[1] / "data" / "cases.json"
NUMBERS = [
    *("--connector", "CAMAsyncAFDConnector", "--attention-ranks", "16", "--ffn-ranks", "16"),
    *("--max-num-batched-tokens", "8192"),
]


def test_each_has_sane_numbers_and_a_source() -> None:
    for name, known in SHAPES.items():
        assert name == name.lower()
        assert known.shape.hidden_size % 128 == 0
        assert 0 < known.shape.topk < known.shape.routed_experts
        assert len(known.source) > 15


def test_they_agree_with_the_cases_from_real_launches() -> None:
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    compared = 0
    for case in cases:
        known = SHAPES.get(case["model"].lower())
        if known is not None:
            wanted = (case["hidden_size"], case["topk"], case["routed_experts"])
            assert known.shape == ModelShape(*wanted), case["id"]
            compared += 1
    assert compared > 10


@pytest.mark.parametrize("name", ["deepseek-v3.2", "DeepSeek-V3.2", "deepseek_v3_2", "DEEPSEEKV32"])
def test_the_spelling_of_a_name_does_not_matter(name: str) -> None:
    assert shape_named(name) == ModelShape(7168, 8, 256)


def test_no_two_names_are_the_same_in_another_spelling() -> None:
    assert len({n.replace("-", "").replace(".", "") for n in SHAPES}) == len(SHAPES)


def test_an_unknown_name_lists_all_and_suggests() -> None:
    with pytest.raises(PlanError) as caught:
        shape_named("deepsek-v3.2")
    for name in SHAPES:
        assert name in str(caught.value)
    assert "did you mean deepseek-v3.2?" in str(caught.value)
    with pytest.raises(PlanError) as caught:
        shape_named("zzz")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/models/DeepSeek-V3.2-W8A8", "deepseek-v3.2"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("/m/GLM-4.5-Air", "glm-4.5-air"),
        ("/m/llama", ""),
    ],
)
def test_a_path_suggests_the_longest_name(model: str, name: str) -> None:
    assert suggestion_for(model) == name


def test_plan_takes_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *NUMBERS, "--model-shape", "deepseek-v3.2"]) == 0
    by_name = capsys.readouterr().out
    numbers = ["--hidden-size", "7168", "--topk", "8", "--routed-experts", "256"]
    assert main(["plan", *NUMBERS, *numbers]) == 0
    assert by_name == capsys.readouterr().out


def test_a_name_beside_numbers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *NUMBERS, "--model-shape", "glm-5", "--topk", "8"]) == 2
    assert "--model-shape and --topk exclude each other" in capsys.readouterr().err
