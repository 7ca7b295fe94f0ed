# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The flag on real command lines, through vLLM's parser to the settings; vLLM's own traps."""

from __future__ import annotations

import sys
from typing import Any

import pytest

pytestmark = pytest.mark.vllm_runtime

Report = dict[str, dict[str, Any]]

NO_AFD = "no AFD configuration reached vLLM"


def settings_of(report: Report, name: str) -> dict[str, Any]:
    case = report["cases"][name]
    assert "error" not in case, case["error"]
    settings = case["settings"]
    assert settings is not None, "the plugin is off"
    return dict(settings)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("json", {"headroom": "6/5", "group_sizes_mib": {"a": 1}}),
        ("dotted", {"headroom": "6/5"}),
        (
            "dotted types",
            {
                "headroom": "2",
                "sizing": "published",
                "dynamic_quant": True,
                "role_sizes_mib": {"ffn": 300},
                "group_sizes_mib": {"afd_moe": None},
            },
        ),
        ("dotted object", {"headroom": "11/10", "sizing": "auto"}),
        ("kv transfer", {"headroom": "3/2"}),
        ("kv transfer dotted", {"headroom": "3/2"}),
        ("afd loaded, flag beside a kv connector", {"headroom": "3/2"}),
        ("afd loaded, dotted afd too", {"headroom": "13/10"}),
    ],
)
def test_flag_reaches_the_settings(
    command_lines: Report, name: str, expected: dict[str, Any]
) -> None:
    settings = settings_of(command_lines, name)
    assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize(
    "name", ["no flag", "nothing", "enabled false", "dotted false", "afd loaded, no flag"]
)
def test_absent_or_disabled_flag_is_off_and_silent(command_lines: Report, name: str) -> None:
    case = command_lines["cases"][name]
    assert "error" not in case
    assert case["settings"] is None
    assert [line for line in case["log"] if not line.startswith("DEBUG")] == []


def test_wrong_flag_is_one_error_that_lists_every_problem(command_lines: Report) -> None:
    case = command_lines["cases"]["wrong"]
    assert case["parsed"]
    assert case["error"]["type"] == "SettingsError"
    for key in ("headrom", "sizing", "buffer_size_mb"):
        assert f"additional_config.cam_hccl.{key}" in case["error"]["message"]


def test_different_flags_in_both_places_are_refused(command_lines: Report) -> None:
    error = command_lines["cases"]["both places"]["error"]
    assert error["type"] == "SettingsError"
    assert "given twice with different content" in error["message"]


@pytest.mark.parametrize("name", ["json, then dotted", "dotted, then json", "two json"])
def test_trap_a_dotted_or_second_additional_config_replaces_the_first(
    command_lines: Report, name: str
) -> None:
    case = command_lines["cases"][name]
    assert case["additional_config"] == {"cam_hccl": {"headroom": 1.2}}, "vLLM merges now"
    warnings = [line for line in case["log"] if NO_AFD in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("WARNING")


@pytest.mark.parametrize(
    "name", ["kv transfer without a connector", "kv transfer json, then dotted"]
)
def test_trap_kv_transfer_without_a_connector_parses_but_vllm_refuses_it(
    command_lines: Report, name: str
) -> None:
    case = command_lines["cases"][name]
    assert case["parsed"]
    assert "Connector name is not set in KVTransferConfig" in case["error"]["message"]


def test_afd_without_its_package_is_a_warning(command_lines: Report) -> None:
    log = command_lines["cases"]["afd not loaded"]["log"]
    assert len(log) == 1
    assert log[0].startswith("WARNING")
    assert "afd_plugin is not loaded" in log[0]


@pytest.mark.parametrize("name", ["afd loaded", "afd loaded, flag beside a kv connector"])
def test_launch_with_afd_says_that_the_plugin_is_on(command_lines: Report, name: str) -> None:
    log = command_lines["cases"][name]["log"]
    assert len(log) == 1
    assert log[0].startswith("INFO cam_hccl: on for connector=CAMAsyncAFDConnector role=attention")


def test_inputs_come_from_the_real_vllm_config_and_the_connector(command_lines: Report) -> None:
    read = command_lines["cases"]["afd loaded"]["connector"]
    assert read["missing"] == ""
    assert read["role"] == "attention"
    inputs = read["inputs"]
    assert inputs["model"] == {"hidden_size": 256, "topk": 3, "routed_experts": 8}
    assert inputs["max_num_batched_tokens"] == 256
    assert inputs["dynamic_quant"] is True
    topology = inputs["topology"]
    assert (topology["attention_ranks"], topology["ffn_ranks"]) == (6, 2)
    assert topology["attn_ranks_per_dp"] == 2
    assert topology["tp_pcp_ranks"] == 1
    assert topology["num_ubatches"] == 1


def test_hccl_buffsize_is_left_alone(command_lines: Report) -> None:
    assert command_lines["hccl_buffsize"] == ["abc", "abc"]


def test_the_installed_package_is_what_vllm_loads(command_lines: Report) -> None:
    registration = command_lines["registration"]
    assert registration["file"] == registration["installed_file"]


def test_registration_imports_nothing_heavy(command_lines: Report) -> None:
    added = command_lines["registration"]["added"]
    allowed = {"cam_hccl_plugin", *sys.stdlib_module_names}
    assert [name for name in added if name.partition(".")[0] not in allowed] == []
    assert "cam_hccl_plugin.bootstrap" in added
