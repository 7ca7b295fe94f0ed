# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The printed commands in the argument parser of the real vLLM, down to the plan."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launches import ASYNC_FFN, Launch, allowed_launches, needed
from starts import WorkerArguments, start_worker

from cam_hccl_plugin.settings import Settings, parse_flag

pytestmark = [
    pytest.mark.vllm_runtime,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None and not os.environ.get("CI"), reason="needs vLLM"
    ),
]

LAUNCHES = allowed_launches()
SIZES_MB = {
    ("CAMAsyncAFDConnector", "attention", 8192): {"afd_async_cam": 139},
    ("CAMAsyncAFDConnector", "ffn", 8192): {"afd_async_cam": 113},
    ("CAMP2pAFDConnector", "attention", 28): {"afd": 4, "afd1": 4},
    ("CAMP2pAFDConnector", "attention", 14): {"afd": 3, "afd1": 3},
    ("CAMP2pAFDConnector", "ffn", 84): {"afd": 52, "afd1": 52, "afd_moe": 52},
    ("CAMP2pAFDConnector", "ffn", 42): {"afd": 26, "afd1": 26, "afd_moe": 26},
    ("CAMP2pAFDConnector", "ffn", 112): {"afd": 93, "afd1": 93, "afd_moe": 93},
    ("CAMP2pAFDConnector", "ffn", 56): {"afd": 47, "afd1": 47, "afd_moe": 47},
}
"""Buffers of the recipes by connector, role and batched tokens."""


def _parse(commands: list[list[str]]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name("parse_with_vllm.py"))],
        input=json.dumps(commands),
        env={**os.environ, "VLLM_PLUGINS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def parsed() -> dict[str, dict[str, Any]]:
    """What vLLM makes of every allowed command."""
    commands = [list(launch.command().arguments[2:]) for launch in LAUNCHES]
    done = _parse(commands)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    return dict(zip(map(str, LAUNCHES), results, strict=True))


@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
def test_vllm_understands_the_command(launch: Launch, parsed: dict[str, dict[str, Any]]) -> None:
    found, command = parsed[str(launch)], launch.command()
    assert found["model_tag"] == launch.variables["MODEL_PATH"]
    assert found["additional_config"] == command.additional_config
    assert found["max_num_batched_tokens"] == found["max_num_seqs"] or "Async" in launch.script
    assert found["quantization"] == "ascend"
    assert found["kv_transfer_config"] is None
    assert found["enable_expert_parallel"] is True
    if "Async" in launch.script:
        assert (found["enforce_eager"], found["enable_dbo"]) == (True, False)
        assert found["gpu_memory_utilization"] == 0.90
    else:
        assert (found["enable_dbo"], found["ubatch_size"]) == (True, 2)
        assert found["gpu_memory_utilization"] == 0.93
        assert found["cudagraph_mode"] == "FULL_DECODE_ONLY"
        assert found["cudagraph_capture_sizes"] == [found["max_num_batched_tokens"]]


@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
def test_the_parsed_command_is_sized(launch: Launch, parsed: dict[str, dict[str, Any]]) -> None:
    found = parsed[str(launch)]
    afd, tokens = found["additional_config"]["afd"], found["max_num_batched_tokens"]
    window = "follow" if "Async" in launch.script else "scoped"
    assert parse_flag(found["additional_config"], None) == Settings(operator_window=window)
    sizes, _ = start_worker(
        WorkerArguments(
            found["additional_config"],
            tokens,
            found["tensor_parallel_size"],
            found["ubatch_size"],
            found["gpu_memory_utilization"],
        )
    )
    assert sizes == SIZES_MB[afd["connector"], afd["role"], tokens]
    ranks = found["data_parallel_size"] * found["tensor_parallel_size"]
    assert ranks == afd[f"num_{afd['role']}_ranks"]


def test_a_broken_command_is_noticed() -> None:
    arguments = needed(ASYNC_FFN).command().arguments[2:]
    done = _parse([["--no-such-option" if a == "--seed" else a for a in arguments]])
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr
