# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What the README shows is what the package does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cam_hccl_plugin import settings
from cam_hccl_plugin.cli import main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _bash_block(containing: str) -> str:
    blocks = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    return next(block for block in blocks if containing in block)


def test_the_worked_example_is_the_real_output(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = _bash_block("cam-hccl plan").replace("\\\n", " ").partition("cam-hccl ")[2]
    shown = re.search(r"<!-- plan-output -->\n```text\n(.*?)```", README, flags=re.DOTALL)
    assert shown is not None
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == shown.group(1)


def test_the_flag_table_lists_every_key_with_its_default_type() -> None:
    table = README.partition("### The flag")[2].partition("What wins")[0]
    keys = re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)
    assert sorted(keys) == sorted([*settings._KEYS, "enabled"])


def test_ci_runs_exactly_the_readmes_test_command() -> None:
    command = _bash_block("tests/run_all").strip()
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert command == "bash tests/run_all"
    assert ci[-1] == command


def test_local_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
