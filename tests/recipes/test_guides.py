# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The guides: every number, log line, link and command in them is recomputed or run."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launches import (
    ASYNC_ATTENTION,
    ASYNC_FFN,
    CAMP2P_ATTENTION,
    CAMP2P_FFN,
    RECIPES,
    ROOT,
    Launch,
    needed,
    read_command,
)
from starts import Machine, WorkerArguments, start_worker

import cam_hccl_plugin
from cam_hccl_plugin.cli import main
from cam_hccl_plugin.model import SizeSource
from cam_hccl_plugin.operator_window import BINARY_BUILD, SOURCE_BUILD
from cam_hccl_plugin.settings import parse_settings

GUIDES = sorted(RECIPES.rglob("*.md"))
ASYNC_GUIDE = RECIPES / "npu/CAMAsyncAFDConnector/README.md"
CAMP2P_GUIDE = RECIPES / "npu/CAMP2pAFDConnector/README.md"
CONNECTOR_GUIDES = [ASYNC_GUIDE, CAMP2P_GUIDE]
ROLE_SCRIPTS = {
    ("CAMAsyncAFDConnector", "Attention"): ASYNC_ATTENTION,
    ("CAMAsyncAFDConnector", "FFN"): ASYNC_FFN,
    ("CAMP2pAFDConnector", "Attention"): CAMP2P_ATTENTION,
    ("CAMP2pAFDConnector", "FFN"): CAMP2P_FFN,
}
PRACTICE_MB = {
    ("CAMAsyncAFDConnector", "Attention"): 4096,
    ("CAMAsyncAFDConnector", "FFN"): 4096,
    ("CAMP2pAFDConnector", "Attention"): 512,
    ("CAMP2pAFDConnector", "FFN"): 2048,
}
"""``HCCL_BUFFSIZE`` of the public recipes."""


def _id(path: object) -> str | None:
    return str(path.relative_to(RECIPES)) if isinstance(path, Path) else None


def _rows(guide: Path, mark: str) -> list[list[str]]:
    """The cells of the table below ``<!-- checked: mark -->``."""
    _, found, rest = guide.read_text().partition(f"<!-- checked: {mark} -->\n")
    assert found
    lines = rest.split("\n\n", 1)[0].splitlines()
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines[2:]]


def _tables(text: str) -> Iterator[tuple[str, list[str]]]:
    """The first header cell and the first cells of each table."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        first = [line.split("|")[1].strip() for line in block.splitlines()]
        yield first[0], first[2:]


def _blocks(text: str, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [body.replace(f"\n{indent}", "\n") for indent, body in found]


def _prose(guide: Path) -> str:
    """The text of a guide without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```", "", guide.read_text(), flags=re.MULTILINE | re.DOTALL)


def _plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _plan_arguments(guide: Path) -> list[str]:
    """The arguments of the guide's own ``cam-hccl plan`` command."""
    blocks = [block for block in _blocks(guide.read_text(), "bash") if "cam-hccl plan" in block]
    assert len(blocks) == 1
    words = shlex.split(blocks[0].replace("\\\n", " "))
    assert words[:2] == ["cam-hccl", "plan"]
    return words[2:]


def _with(arguments: list[str], **changes: int) -> list[str]:
    changed = list(arguments)
    for name, value in changes.items():
        changed[changed.index("--" + name.replace("_", "-")) + 1] = str(value)
    return changed


def test_async_memory_table(capsys: pytest.CaptureFixture[str]) -> None:
    plan = _plan(capsys, *_plan_arguments(ASYNC_GUIDE))
    rows = _rows(ASYNC_GUIDE, "memory CAMAsyncAFDConnector")
    assert [row[0] for row in rows] == ["Attention", "FFN"]
    for role, before, derived, buffer, binary, source in rows:
        of_role = plan["roles"][role.lower()]
        launch = needed(ROLE_SCRIPTS["CAMAsyncAFDConnector", role])
        assert of_role["saved_mb"] == int(before) - int(derived)
        assert of_role["device_memory_mb"] == int(derived)
        assert of_role["selected_mb"] == int(buffer)
        assert of_role["memory_guard"]["short"] is False
        assert _device_mb(launch.with_variables(CAM_OPERATOR_WINDOW="scoped")) == int(derived)
        assert _device_mb(launch, Machine(builds=(BINARY_BUILD,))) == int(binary)
        assert _device_mb(launch, Machine(builds=(SOURCE_BUILD,))) == int(source)


def _device_mb(launch: Launch, machine: Machine | None = None) -> int:
    sizes, lines = start_worker(WorkerArguments.of(launch.command()), machine)
    device = 2 * sum(sizes.values())
    assert any(f" device_memory={device}MB " in line for line in lines)
    return device


def test_async_token_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows(ASYNC_GUIDE, "tokens CAMAsyncAFDConnector")
    assert len(rows) >= 3
    for tokens, attention, ffn in rows:
        arguments = _with(_plan_arguments(ASYNC_GUIDE), max_num_batched_tokens=int(tokens))
        roles = _plan(capsys, *arguments)["roles"]
        assert [roles[r]["selected_mb"] for r in roles] == [int(attention), int(ffn)]


def test_camp2p_memory_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows(CAMP2P_GUIDE, "memory CAMP2pAFDConnector")
    assert len(rows) == 8
    for dies, length, role, batch, before, after, buffer in rows:
        ranks = int(dies.split()[0])
        attention_batch = {"16384": 28, "32768": 14}[length]
        arguments = _with(
            _plan_arguments(CAMP2P_GUIDE),
            attention_ranks=ranks,
            max_num_batched_tokens=attention_batch,
            ffn_max_num_batched_tokens=ranks * attention_batch // 16,
            hccl_buffsize=PRACTICE_MB["CAMP2pAFDConnector", role],
        )
        of_role = _plan(capsys, *arguments)["roles"][role.lower()]
        assert of_role["max_num_batched_tokens"] == int(batch)
        assert of_role["device_memory_mb"] == int(after)
        assert of_role["saved_mb"] == int(before) - int(after)
        assert set(of_role["groups"].values()) == {int(buffer)}
        assert of_role["memory_guard"]["short"] is False
        launch = needed(ROLE_SCRIPTS["CAMP2pAFDConnector", role])
        launch = launch.with_variables(ATTENTION_RANKS=str(ranks), INPUT_LENGTH=length)
        assert launch.command().tokens == int(batch)
        assert _device_mb(launch) == int(after)


def test_camp2p_batch_table() -> None:
    rows = _rows(RECIPES / "npu/CAMP2pAFDConnector/deepseek_v3_2/README.md", "batches")
    assert len(rows) == 4
    for ranks, length, attention, ffn, model_length in rows:
        for script, batch in ((CAMP2P_ATTENTION, attention), (CAMP2P_FFN, ffn)):
            launch = needed(script).with_variables(ATTENTION_RANKS=ranks, INPUT_LENGTH=length)
            assert launch.command().tokens == int(batch)
            assert launch.command().options["--max-model-len"] == model_length


def _producible_lines() -> set[str]:
    """What the workers of the recipes log, over builds and windows."""
    lines: set[str] = set()
    for script in (ASYNC_ATTENTION, ASYNC_FFN):
        for window in ("follow", "scoped"):
            arguments = WorkerArguments.of(
                needed(script).with_variables(CAM_OPERATOR_WINDOW=window).command()
            )
            for builds in ((), (BINARY_BUILD,), (SOURCE_BUILD,)):
                lines.update(start_worker(arguments, Machine(builds=builds))[1])
    for script in (CAMP2P_ATTENTION, CAMP2P_FFN):
        for length in ("16384", "32768"):
            command = needed(script).with_variables(INPUT_LENGTH=length).command()
            lines.update(start_worker(WorkerArguments.of(command))[1])
    return {line.split(" ", 1)[1] for line in lines}


@pytest.mark.parametrize("guide", CONNECTOR_GUIDES, ids=_id)
def test_log_lines_are_real(guide: Path) -> None:
    produced = _producible_lines()
    text = guide.read_text()
    shown = re.findall(r"<!-- checked: log -->\n```text\n(.*?)```", text, re.DOTALL)
    assert len(shown) >= 3
    for block in shown:
        assert " ".join(block.split()) in produced
    grepped = re.findall(r"^ *(?:attention|ffn)\.log:(.*)$", text, re.MULTILINE)
    assert len(grepped) == 2
    for start in grepped:
        assert any(line.startswith(f"{start} ") for line in produced)


@pytest.mark.parametrize("guide", CONNECTOR_GUIDES, ids=_id)
def test_the_checklist_finds_nothing_to_warn_about(guide: Path) -> None:
    connector = guide.parent.name
    builds = (BINARY_BUILD,) if "Async" in connector else ()
    for role in ("Attention", "FFN"):
        command = needed(ROLE_SCRIPTS[connector, role]).command()
        _, lines = start_worker(WorkerArguments.of(command), Machine(builds=builds))
        assert [line for line in lines if not line.startswith("INFO ")] == []


def _package_texts() -> str:
    """Every string constant of the package, f-strings with their fields left out."""
    texts = []
    for file in sorted(Path(cam_hccl_plugin.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
                texts.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


@pytest.mark.parametrize("guide", CONNECTOR_GUIDES, ids=_id)
def test_quoted_warnings_and_errors_exist(guide: Path) -> None:
    known = _package_texts()
    quoted = [
        cell.strip("`")
        for header, cells in _tables(guide.read_text())
        if header in ("the line has", "the error has")
        for cell in cells
    ]
    assert len(quoted) >= 12
    for phrase in quoted:
        assert phrase in known, phrase


@pytest.mark.parametrize("guide", CONNECTOR_GUIDES, ids=_id)
def test_origins_are_the_real_ones(guide: Path) -> None:
    found = re.search(r"^Origins: (.*?)\n\n", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    shown = {" ".join(name.split()) for name in re.findall(r"`([^`]+)`", found[1])}
    real = {source.value for source in SizeSource} - {SizeSource.UNKNOWN.value}
    if guide == CAMP2P_GUIDE:
        real.remove(SizeSource.FOLLOWED.value)
    assert shown - {"HCCL_BUFFSIZE"} == real


@pytest.mark.parametrize("guide", CONNECTOR_GUIDES, ids=_id)
def test_flag_snippets_are_accepted(guide: Path) -> None:
    text = " ".join(_prose(guide).split())
    inline = [
        span if span.startswith("{") else "{" + span + "}"
        for span in re.findall(r"`([^`]+)`", text)
        if re.match(r'\{?"(?!attention)\w+": ', span)
    ]
    fenced = [block.split(":", 1)[1] for block in _blocks(guide.read_text(), "json")]
    assert len(inline) >= 4
    for snippet in [*inline, *fenced]:
        parse_settings(json.loads(snippet))


def test_numbers_of_one_size_for_both_roles(capsys: pytest.CaptureFixture[str]) -> None:
    for guide in CONNECTOR_GUIDES:
        roles = _plan(capsys, *_plan_arguments(guide), "--scope", "group")["roles"]
        (size,) = {roles[role]["selected_mb"] for role in roles}
        section = guide.read_text().split("## One size for both roles")[1].split("\n## ")[0]
        assert f"`CAM_BUFFER_MB={size}`" in section


def test_derived_sizes_in_the_window_section(capsys: pytest.CaptureFixture[str]) -> None:
    roles = _plan(capsys, *_plan_arguments(ASYNC_GUIDE))["roles"]
    attention, ffn = (roles[role]["selected_mb"] for role in ("attention", "ffn"))
    text = " ".join(ASYNC_GUIDE.read_text().split())
    assert f"{attention} on Attention, {ffn} on FFN" in text
    assert f"HCCL_BUFFSIZE={ffn} CAM_OPERATOR_WINDOW=scoped" in text
    for build, unset in ((BINARY_BUILD, 200), (SOURCE_BUILD, 408)):
        assert build.believed_mib(None) == unset
        assert re.search(rf"`{build.variable}`[^|]*\| {unset} MB", text)


def test_public_example_of_a_window_too_small() -> None:
    needed_bytes = 2 * 4096 * (65536 // 2) * 6
    assert f"{needed_bytes // 2**20} MB ({needed_bytes} bytes)" in ASYNC_GUIDE.read_text()


def _launch_commands() -> list[tuple[Path, str]]:
    return [
        (guide, block)
        for guide in GUIDES
        for block in _blocks(guide.read_text(), "bash")
        if re.search(r"bash recipes/\S+\.sh", block)
    ]


def test_launch_commands_were_found() -> None:
    assert len(_launch_commands()) >= 8


@pytest.mark.parametrize(("guide", "block"), _launch_commands(), ids=_id)
def test_launch_commands_can_be_pasted(guide: Path, block: str) -> None:
    environment = {"PATH": os.environ["PATH"], "DRY_RUN": "1"}
    done = subprocess.run(
        ["bash", "-c", block], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    command = read_command(done.stdout)
    assert command.additional_config["afd"]["connector"] in str(guide)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("guide", GUIDES, ids=_id)
def test_links_resolve(guide: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", guide.read_text()):
        assert "://" not in target, "only links inside the repository are checked"
        name, _, anchor = target.partition("#")
        path = (guide.parent / name).resolve() if name else guide
        assert path.is_relative_to(ROOT)
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            assert anchor in [_anchor(heading) for heading in headings], target


@pytest.mark.parametrize("guide", GUIDES, ids=_id)
def test_every_guide_says_that_it_is_not_validated(guide: Path) -> None:
    top = " ".join(guide.read_text()[:600].split())
    assert re.search(
        r"\*\*(We have not run (this recipe|any of this) on hardware"
        r"|Not validated on hardware by us)\.\*\*",
        top,
    )


@pytest.mark.parametrize("guide", GUIDES, ids=_id)
def test_text_is_wrapped(guide: Path) -> None:
    long = [
        line for line in _prose(guide).splitlines() if len(line) > 100 and not line.startswith("|")
    ]
    assert long == []


def test_every_recipe_is_in_the_index() -> None:
    index = (RECIPES / "README.md").read_text()
    for guide in GUIDES:
        if guide.parent != RECIPES:
            assert f"({guide.relative_to(RECIPES)})" in index
