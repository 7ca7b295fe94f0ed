# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl plan``: operator windows, export lines and the communicators of each role."""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import Any

import pytest

from cam_hccl_plugin.cli import main

#: The public note: hidden 4096, topk 6, DP4 x TP2 + EP8, 65536 tokens.
_NOTE = shlex.split(
    "plan --connector CAMAsyncAFDConnector --hidden-size 4096 --topk 6 --routed-experts 64 "
    "--attention-ranks 8 --ffn-ranks 8 --max-num-batched-tokens 65536 --npus-per-dp-group 2"
)
_CAMP2P = shlex.split(
    "plan --connector CAMP2pAFDConnector --hidden-size 7168 --topk 8 --routed-experts 256 "
    "--attention-ranks 48 --ffn-ranks 16 --max-num-batched-tokens 28 "
    "--ffn-max-num-batched-tokens 84 --num-ubatches 2"
)
#: ceil(1.1 x 2 x 4096 x 32768 x 7 bytes) and ceil(1.1 x 8 x 12288 x 32768 bytes), in MiB.
_PLAN = {"attention": 1972, "ffn": 3380}
_BUILDS = ("umdk_cam_op_lib", "afd_ascend")


def _text(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def _windows(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[Any, dict[str, Any]]:
    """The checks by (role, variable)."""
    roles = json.loads(_text(capsys, *arguments, "--json"))["roles"]
    return {
        (role, check["variable"]): check
        for role, plan in roles.items()
        for check in plan["operator_windows"]
    }


def test_the_public_note_fails_at_408(capsys: pytest.CaptureFixture[str]) -> None:
    found = _windows(capsys, *_NOTE)
    assert len(found) == 4
    check = found["attention", "LCCL_BUFFER_SIZE"]
    assert (check["value"], check["believed_mb"], check["verdict"]) == (None, 408, "too small")
    assert "tiling failed" in check["warnings"][0]
    wanted = int(check["export"].removeprefix("export LCCL_BUFFER_SIZE="))
    assert wanted == _PLAN["attention"]
    assert wanted * 2**20 >= 1.61e9


def test_an_unset_hccl_buffsize_is_believed_to_be_200(capsys: pytest.CaptureFixture[str]) -> None:
    for role in _PLAN:
        check = _windows(capsys, *_NOTE)[role, "HCCL_BUFFSIZE"]
        assert (check["value"], check["believed_mb"], check["verdict"]) == (None, 200, "too small")
        assert check["export"] == f"export HCCL_BUFFSIZE={_PLAN[role]}"


def test_the_text_has_export_lines_of_both_builds_and_roles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = _text(capsys, *_NOTE).splitlines()
    exports = [line for line in lines if line.startswith("export ")]
    assert exports == [
        f"export {variable}={mb}"
        for mb in _PLAN.values()
        for variable in ("HCCL_BUFFSIZE", "LCCL_BUFFER_SIZE")
    ]
    for line in exports:
        before = lines[lines.index(line) - 1]
        assert before.startswith("# ")
        assert any(build in before for build in _BUILDS)
        role = "Attention" if line.endswith("1972") else "FFN"
        assert f"{role} ranks" in before
    assert any(re.search(r"LCCL_BUFFER_SIZE=unset\s+408 MB\s+too small", line) for line in lines)


def test_the_environment_is_read_and_left_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_BUFFSIZE", "1972")
    monkeypatch.setenv("LCCL_BUFFER_SIZE", "2500")
    before = dict(os.environ)
    found = _windows(capsys, *_NOTE)
    assert found["attention", "HCCL_BUFFSIZE"]["verdict"] == "ok"
    assert found["attention", "LCCL_BUFFER_SIZE"]["verdict"] == "too large"
    # 2051.50 MiB are needed, 2500 believed, 3380 held.
    assert found["ffn", "LCCL_BUFFER_SIZE"]["verdict"] == "ok"
    assert found["ffn", "HCCL_BUFFSIZE"]["verdict"] == "too small"
    assert dict(os.environ) == before


def test_the_flags_win_over_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_BUFFSIZE", "1")
    monkeypatch.setenv("LCCL_BUFFER_SIZE", "1")
    flags = ("--hccl-buffsize", "3000", "--lccl-buffer-size", "40000")
    found = _windows(capsys, *_NOTE, *flags)
    for role in _PLAN:
        assert found[role, "HCCL_BUFFSIZE"]["believed_mb"] == 3000
        assert found[role, "LCCL_BUFFER_SIZE"]["believed_mb"] == 32768
        assert found[role, "LCCL_BUFFER_SIZE"]["value"] == "40000"
    assert os.environ["HCCL_BUFFSIZE"] == os.environ["LCCL_BUFFER_SIZE"] == "1"


def test_one_flag_leaves_the_other_variable_to_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_BUFFSIZE", "300")
    found = _windows(capsys, *_NOTE, "--lccl-buffer-size", "2000")
    assert found["ffn", "HCCL_BUFFSIZE"]["believed_mb"] == 300
    assert found["ffn", "LCCL_BUFFER_SIZE"]["believed_mb"] == 2000


@pytest.mark.parametrize("raw", ["abc", ""])
def test_a_text_that_is_no_number_counts_as_unset(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, raw: str
) -> None:
    monkeypatch.setenv("LCCL_BUFFER_SIZE", raw)
    check = _windows(capsys, *_NOTE)["ffn", "LCCL_BUFFER_SIZE"]
    assert (check["value"], check["believed_mb"]) == (raw, 408)


def test_windows_that_fit_need_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = _text(capsys, *_NOTE, "--scope", "group", "--hccl-buffsize", "3380")
    assert re.search(r"HCCL_BUFFSIZE=3380\s+3380 MB\s+ok", text)
    assert "export HCCL_BUFFSIZE" not in text
    assert text.count("export LCCL_BUFFER_SIZE=3380") == 2


@pytest.mark.parametrize("flag", ["--hccl-buffsize", "--lccl-buffer-size"])
@pytest.mark.parametrize("value", ["0", "-1", "abc", "1.5", str(2**32 - 1)])
def test_a_flag_takes_positive_integers_only(
    capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*_NOTE, f"{flag}={value}"])
    assert ended.value.code == 2
    assert flag in capsys.readouterr().err


def test_camp2p_believes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--hccl-buffsize", "1", "--lccl-buffer-size", "1")
    assert _windows(capsys, *_CAMP2P, *flags) == {}
    text = _text(capsys, *_CAMP2P, *flags)
    assert "export" not in text
    assert "LCCL_BUFFER_SIZE" not in text


def test_the_communicators_of_each_role_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = _text(capsys, *_CAMP2P)
    attention = text.partition("of an Attention rank\n")[2].partition("\n\n")[0].splitlines()
    ffn = text.partition("of an FFN rank\n")[2].partition("\n\n")[0].splitlines()
    rows = [[re.split(r"\s{2,}", line) for line in table[1:]] for table in (attention, ffn)]
    assert rows[0] == [
        ["afd", "64", "4", "derived", "8"],
        ["afd1", "64", "4", "derived", "8"],
        ["sum", "16"],
    ]
    assert rows[1] == [
        ["afd", "64", "52", "derived", "104"],
        ["afd1", "64", "52", "derived", "104"],
        ["afd_moe", "16", "52", "derived", "104"],
        ["sum", "312"],
    ]
