# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The model's numbers in the config.json that transformers writes, through vLLM and the CLI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import environment, run_script

pytestmark = pytest.mark.vllm_runtime

MOE = (
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v4",
    "glm_moe_dsa",
    "qwen3_moe",
    "qwen3_5_moe",
    "kimi_k25",
    "minimax_m2",
)
NEEDS_TORCHVISION = {"qwen3_5_moe"}
"""vLLM cannot inspect the model class without torchvision; its own config reader is used."""

NOT_READ = {
    "deepseek_ocr2": "has no top-k by default",
    "deepseek_ocr2_text": "has no top-k by default",
    "deepseek_v2": "has no top-k by default",
    "dots3_note_vision_encoder": "not a language model, and differs from layer to layer",
    "nllb-moe": "an encoder-decoder with fixed top-2 routing",
    "switch_transformers": "an encoder-decoder with fixed top-1 routing",
    "vitpose_backbone": "not a language model",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The directories and the report of write_model_configs.py."""
    work = tmp_path_factory.mktemp("model_configs")
    run_script("write_model_configs.py", [str(work)], work, timeout_s=300).require_success()
    return work, json.loads((work / "report.json").read_text())


@pytest.mark.parametrize("name", MOE)
def test_adapter_reads_the_numbers_from_vllm(
    written: tuple[Path, dict[str, Any]], name: str
) -> None:
    model = written[1]["models"][name]
    assert model["shape"] == model["given"], model["missing"]
    if name not in NEEDS_TORCHVISION:
        assert model["through"] == "ModelConfig"
        assert model["experts_for_vllm"] == model["given"][2]


@pytest.mark.parametrize("name", MOE)
def test_plan_reads_the_numbers_from_config_json(
    written: tuple[Path, dict[str, Any]], name: str
) -> None:
    work, report = written
    hidden, topk, experts = report["models"][name]["given"]
    from_file = plan(work, "--model", str(work / name))
    numbers = ["--hidden-size", hidden, "--topk", topk, "--routed-experts", experts]
    assert from_file.returncode == 0, from_file.stderr
    assert json.loads(from_file.stdout) == json.loads(plan(work, *map(str, numbers)).stdout)


def test_dense_model_is_one_clear_error(written: tuple[Path, dict[str, Any]]) -> None:
    work, report = written
    refused = plan(work, "--model", str(work / "dense"))
    assert refused.returncode == 2
    for message in (refused.stderr, report["models"]["dense"]["missing"]):
        assert "topk is missing" in message
        assert "routed_experts is missing" in message
        assert "is this a MoE model?" in message
        assert "Traceback" not in message


def test_top_k_that_differs_between_layers_is_one_clear_error(
    written: tuple[Path, dict[str, Any]],
) -> None:
    work, report = written
    refused = plan(work, "--model", str(work / "per_layer_topk"))
    assert refused.returncode == 2
    for message in (refused.stderr, report["models"]["per_layer_topk"]["missing"]):
        assert "topk is missing" in message
        assert "routed_experts is missing" not in message
        assert "Traceback" not in message


def test_every_moe_class_of_transformers_is_read(written: tuple[Path, dict[str, Any]]) -> None:
    scan = written[1]["scan"]
    assert len(scan) > 50
    assert {name for name, read in scan.items() if read["missing"]} == set(NOT_READ) & set(scan)
    assert [name for name, read in scan.items() if not read["same"]] == []


def plan(work: Path, *model: str) -> subprocess.CompletedProcess[str]:
    """``cam-hccl plan --json`` of the installed package."""
    deployment = ["--connector", "CAMAsyncAFDConnector", "--attention-ranks", "16"]
    deployment += ["--ffn-ranks", "16", "--max-num-batched-tokens", "8192"]
    return subprocess.run(
        [sys.executable, "-m", "cam_hccl_plugin", "plan", *model, *deployment, "--json"],
        cwd=work,
        env=environment(work),
        capture_output=True,
        text=True,
        timeout=60,
    )
