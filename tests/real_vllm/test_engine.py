# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A tiny model generates on the real vLLM with the plugin installed: four starts in all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line_cases import WRONG_FLAG
from launching import HERE, Finished, run_script

pytestmark = pytest.mark.vllm_runtime

FLAG = '{"cam_hccl": {}}'
OTHER_PLUGINS_ONLY = "some_other_plugin"


@dataclass(frozen=True)
class Start:
    """One run of generate.py: how it ended, its tokens, and where the plugin was armed."""

    finished: Finished
    answers: Any
    armed: list[dict[str, Any]]


def start(model: Path, work: Path, additional: str, **extra: str) -> Start:
    probe, answers = work / "probe.jsonl", work / "answers.json"
    finished = run_script(
        "generate.py",
        [str(model), additional, str(answers)],
        work,
        timeout_s=600,
        PYTHONPATH=str(HERE / "probe"),
        CAM_HCCL_PROBE=str(probe),
        **extra,
    )
    armed = [json.loads(line) for line in probe.read_text().splitlines()] if probe.exists() else []
    return Start(finished, json.loads(answers.read_text()) if answers.exists() else None, armed)


@pytest.fixture(scope="module")
def with_flag(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Plugin on, flag given, no AFD anywhere, default logging."""
    work = tmp_path_factory.mktemp("with_flag")
    return start(tiny_model, work, FLAG, HCCL_BUFFSIZE="4096")


@pytest.fixture(scope="module")
def not_allowed(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """The same with an allow-list that does not name the plugin."""
    work = tmp_path_factory.mktemp("not_allowed")
    return start(tiny_model, work, FLAG, VLLM_PLUGINS=OTHER_PLUGINS_ONLY)


@pytest.fixture(scope="module")
def without_flag(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Plugin on, no flag."""
    return start(tiny_model, tmp_path_factory.mktemp("without_flag"), "{}")


@pytest.fixture(scope="module")
def wrong_flag(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Plugin on, three mistakes in the flag."""
    return start(tiny_model, tmp_path_factory.mktemp("wrong_flag"), WRONG_FLAG)


@pytest.mark.parametrize("process", ["MainProcess", "EngineCore", "Worker"])
def test_entry_point_is_loaded_by_vllm_in_every_process(with_flag: Start, process: str) -> None:
    with_flag.finished.require_success()
    here = [line for line in with_flag.armed if process in line["process"]]
    assert here, [line["process"] for line in with_flag.armed]
    for line in here:
        assert line["callers"][-3:] == ["load_general_plugins", "register", "_report"]
        assert line["hccl_buffsize"] == "4096"


def test_the_launching_process_looks_at_the_configuration(with_flag: Start) -> None:
    own = [line for line in with_flag.armed if line["pid"] == with_flag.finished.pid]
    assert [line["patched"] for line in own] == [True]


def test_tokens_are_those_of_a_vllm_without_the_plugin(
    with_flag: Start, without_flag: Start, not_allowed: Start
) -> None:
    for run in (with_flag, without_flag, not_allowed):
        run.finished.require_success()
    assert len(not_allowed.answers) == 2
    assert with_flag.answers == not_allowed.answers
    assert without_flag.answers == not_allowed.answers


def test_flag_without_afd_is_one_visible_warning_over_all_processes(with_flag: Start) -> None:
    assert len(with_flag.finished.ours) == 1, with_flag.finished.ours
    line = with_flag.finished.ours[0]
    assert "WARNING" in line
    assert "no AFD configuration reached vLLM" in line


def test_without_the_flag_the_log_has_nothing_of_ours(without_flag: Start) -> None:
    without_flag.finished.require_success()
    assert without_flag.armed, "the plugin was not even loaded"
    lines = without_flag.finished.output.splitlines()
    assert [line for line in lines if "cam_hccl" in line] == []


def test_vllm_plugins_without_our_name_means_off(not_allowed: Start) -> None:
    not_allowed.finished.require_success()
    assert not_allowed.armed == []
    assert not_allowed.finished.ours == []


def test_wrong_flag_stops_the_start_in_the_main_process(wrong_flag: Start) -> None:
    assert wrong_flag.finished.status not in (0, None)
    assert wrong_flag.answers is None
    assert {line["process"] for line in wrong_flag.armed} == {"MainProcess"}
    assert "EngineCore pid=" not in wrong_flag.finished.output
    last = wrong_flag.finished.output.strip().splitlines()[-1]
    assert "3 problems in the cam_hccl flag" in last
    for key in ("headrom", "sizing", "buffer_size_mb"):
        assert f"additional_config.cam_hccl.{key}" in last
