# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The help texts, the lazy imports, the bar of the die's memory, and the formats without plugin."""

from __future__ import annotations

import json
import re
import shlex
from fractions import Fraction

import pytest
from processes import HEAVY, run

from cam_hccl_plugin import __version__
from cam_hccl_plugin.cli import COMMANDS, main
from cam_hccl_plugin.cli.memory_bar import bar
from cam_hccl_plugin.memory import check_guard
from cam_hccl_plugin.model import MiB

ASYNC = [
    *("plan", "--connector", "CAMAsyncAFDConnector", "--model-shape", "deepseek-v3.2"),
    *("--attention-ranks", "16", "--ffn-ranks", "16", "--max-num-batched-tokens", "8192"),
    *("--npus-per-dp-group", "8", "--dynamic-quant", "1"),
]
CAMP2P = [
    *("plan", "--connector", "CAMP2pAFDConnector", "--model-shape", "deepseek-v3.2"),
    *("--attention-ranks", "48", "--ffn-ranks", "16", "--max-num-batched-tokens", "28"),
    *("--ffn-max-num-batched-tokens", "84"),
]
OPTIONAL = ("matplotlib", "subprocess", *HEAVY)


def output(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    try:
        status = main(list(words))
    except SystemExit as done:
        status = int(done.code or 0)
    assert status == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


class TestHelp:
    def test_the_command_lists_its_subcommands(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = output(capsys, "--help")
        for name in COMMANDS:
            assert re.search(rf"^ +{name} +\w", text, flags=re.MULTILINE)
        assert "examples:" in text
        assert "exit status" in text

    @pytest.mark.parametrize("name", list(COMMANDS))
    def test_each_has_an_example_and_its_exit_status(
        self, capsys: pytest.CaptureFixture[str], name: str
    ) -> None:
        text = output(capsys, name, "--help")
        assert f"cam-hccl {name}" in text.partition("example")[2]
        assert "exit status: 0" in text
        for line in text.splitlines():
            assert len(line) <= 100

    @pytest.mark.parametrize("name", ["plan", "sweep"])
    def test_each_option_is_explained(self, capsys: pytest.CaptureFixture[str], name: str) -> None:
        text = output(capsys, name, "--help")
        obvious = {"--attention-ranks", "--ffn-ranks"}
        for option in set(re.findall(r"^  (--[a-z-]+)", text, flags=re.MULTILINE)) - obvious:
            assert re.search(rf"^  {option}\b.*(  +\S|\n {{20,}}\S)", text, flags=re.MULTILINE)

    def test_the_first_example_of_plan_runs(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = output(capsys, "plan", "--help").partition("examples:\n")[2]
        first = text.replace("\\\n", " ").strip().splitlines()[0]
        assert "139 MB" in output(capsys, *shlex.split(first)[1:])

    def test_the_first_example_of_sweep_runs(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = output(capsys, "sweep", "--help").partition("examples:\n")[2]
        first = text.replace("\\\n", " ").strip().splitlines()[0]
        assert "largest max_num_batched_tokens that fits" in output(capsys, *shlex.split(first)[1:])

    def test_the_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert output(capsys, "--version") == f"cam-hccl {__version__}\n"


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ASYNC, [*ASYNC, "--json"], ["plan", "--help"], ["sweep", "--help"]],
    ids=lambda words: " ".join(words)[:20],
)
def test_nothing_is_imported_that_does_not_run(words: list[str]) -> None:
    code = f"""
import sys
from cam_hccl_plugin.cli import main
try:
    main({words!r})
except SystemExit:
    pass
ours = [n.rpartition(".")[2] for n in sys.modules if n.startswith("cam_hccl_plugin.cli.")]
found = [name for name in {OPTIONAL!r} if name in sys.modules]
print(*found, *ours, file=sys.stderr)
"""
    done = run("-c", code)
    assert done.returncode == 0
    imported = set(done.stderr.split())
    assert not imported & set(OPTIONAL)
    assert not imported & {"doctor", "doctor_checks", "from_commands", "vllm_parser", "sweep_plot"}
    if words[0] != "sweep":
        assert not imported & {"sweep", "token_limit"}


class TestBar:
    def drawn(self, utilization: str, *buffers: int, total_mib: int = 65536) -> str:
        report = check_guard(total_mib * MiB, Fraction(utilization), Fraction(5, 2), buffers)
        return bar(report)

    @pytest.mark.parametrize(
        ("utilization", "buffers", "counts"),
        [
            ("0.9", (139,), (54, 1, 5, 0)),
            ("0.5", (8192,), (30, 15, 15, 0)),
            ("0.5", (16384,), (30, 30, 0, 0)),
            ("0.9", (16384,), (30, 6, 0, 24)),
            ("1", (1,), (59, 0, 0, 1)),
            ("0.999", (16,), (59, 1, 0, 0)),
        ],
    )
    def test_its_cells(
        self, utilization: str, buffers: tuple[int, ...], counts: tuple[int, ...]
    ) -> None:
        drawn = self.drawn(utilization, *buffers)
        assert tuple(drawn.count(cell) for cell in "#C.!") == counts

    @pytest.mark.parametrize("percent", range(1, 101, 3))
    @pytest.mark.parametrize("buffer", [1, 100, 5000, 32768])
    def test_it_is_always_sixty_cells_of_ascii(self, percent: int, buffer: int) -> None:
        drawn = self.drawn(f"{percent}/100", buffer)
        assert re.fullmatch(r"#*!*C*\.*", drawn)
        assert len(drawn) == 60
        assert "C" in drawn or "!" in drawn

    def test_it_shows_only_with_a_device(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "memory of one" not in output(capsys, *ASYNC)
        text = output(capsys, *ASYNC, "--device-memory-gib", "64")
        assert "memory of one Attention die, 65536 MiB" in text
        assert "C CAM groups: 278 MiB" in text
        assert "6275.6 MiB" in text  # 65536 - 58982.4 - 278
        assert text.isascii()

    def test_a_shortage_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        device = ("--device-memory-gib", "64", "--gpu-memory-utilization", "0.999")
        text = output(capsys, *ASYNC, *device)
        assert "! CAM groups inside vLLM's share, short by 212.5 MiB" in text  # 278 - 65.536


class TestFormats:
    def test_flag_is_json_per_role(self, capsys: pytest.CaptureFixture[str]) -> None:
        lines = output(capsys, *ASYNC, "--format", "flag").splitlines()
        found = [json.loads(line) for line in lines if not line.startswith("#")]
        sizes = [each["afd"]["connector_extra_config"]["hccl_buffer_size"] for each in found]
        assert sizes == [139, 113]

    def test_env_is_shell_and_warns_of_its_reach(self, capsys: pytest.CaptureFixture[str]) -> None:
        text = output(capsys, *ASYNC, "--format", "env")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert lines == ["export HCCL_BUFFSIZE=139", "export HCCL_BUFFSIZE=113"]
        assert "applies to every\n# communicator" in text
        assert "below HCCL's default of 200" in text

    def test_one_size_for_groups_of_different_sizes(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        scope = ("--scope", "group", "--format", "flag")
        assert "hccl_buffer_size" in output(capsys, *CAMP2P, *scope)
        assert "export HCCL_BUFFSIZE=52" in output(capsys, *CAMP2P, "--format", "env")

    def test_json_has_two_names(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert output(capsys, *ASYNC, "--json") == output(capsys, *ASYNC, "--format", "json")

    def test_two_formats_exclude_each_other(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*ASYNC, "--json", "--format", "env"]) == 2
        assert "exclude each other" in capsys.readouterr().err


def test_a_parser_needs_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASYNC, "--parser", "own"]) == 2
    assert "--parser reads commands" in capsys.readouterr().err
