# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl sweep``: the planner at many values, and the largest tokens that fit."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cam_hccl_plugin.cli import main

SHAPE = ["--model-shape", "deepseek-v3.2"]
ASYNC = ["--connector", "CAMAsyncAFDConnector", *SHAPE, "--npus-per-dp-group", "8"]
RANKS = ["--attention-ranks", "16", "--ffn-ranks", "16"]
CAMP2P = [
    *("--connector", "CAMP2pAFDConnector", *SHAPE, "--num-ubatches", "2"),
    *("--attention-ranks", "48", "--ffn-ranks", "16"),
]
QUANT = ["--dynamic-quant", "1"]
DIE = ["--device-memory-gib", "64"]


class Sweep:
    """Runs the command."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *words: str, command: str = "sweep") -> str:
        assert main([command, *words]) == 0
        found = self._capsys.readouterr()
        assert found.err == ""
        return found.out

    def json(self, *words: str, command: str = "sweep") -> Any:
        return json.loads(self.text(*words, "--json", command=command))

    def refused(self, *words: str) -> str:
        try:
            status = main(["sweep", *words])
        except SystemExit as done:
            status = int(done.code or 0)
        found = self._capsys.readouterr()
        assert (status, found.out) == (2, "")
        assert "Traceback" not in found.err
        return found.err


@pytest.fixture
def sweep(capsys: pytest.CaptureFixture[str]) -> Sweep:
    return Sweep(capsys)


class TestPoints:
    @pytest.mark.parametrize(
        ("over", "option", "values"),
        [
            ("tokens", "--max-num-batched-tokens", [1, 8192, 140000]),
            ("attention-ranks", "--attention-ranks", [8, 24]),
            ("ffn-ranks", "--ffn-ranks", [3, 16]),
        ],
    )
    def test_each_is_what_plan_says(
        self, sweep: Sweep, over: str, option: str, values: list[int]
    ) -> None:
        rest = {"--attention-ranks": "16", "--ffn-ranks": "16", "--max-num-batched-tokens": "8192"}
        del rest[option]
        words = [*ASYNC, *QUANT, *(word for pair in rest.items() for word in pair)]
        listed = ",".join(map(str, values))
        found = sweep.json("--over", over, "--values", listed, *words)
        assert [point["value"] for point in found["points"]] == values
        for point in found["points"]:
            plan = sweep.json(*words, option, str(point["value"]), command="plan")
            for role, each in plan["roles"].items():
                for key in ("selected_mb", "published_mb", "device_memory_mb"):
                    assert point["roles"][role][key] == each[key]
                assert point["roles"][role]["operator_mb"] == -(-each["operator_bytes"] // 2**20)

    def test_camp2p_scales_the_ffn_batch(self, sweep: Sweep) -> None:
        found = sweep.json("--over", "tokens", "--values", "28,29", *CAMP2P)
        ffn = [point["roles"]["ffn"]["max_num_batched_tokens"] for point in found["points"]]
        assert ffn == [84, 87]
        fixed = ("--ffn-max-num-batched-tokens", "84")
        found = sweep.json("--over", "tokens", "--values", "28,29", *CAMP2P, *fixed)
        ffn = [point["roles"]["ffn"]["max_num_batched_tokens"] for point in found["points"]]
        assert ffn == [84, 84]

    def test_from_to_step(self, sweep: Sweep) -> None:
        ends = ("--from", "10", "--to", "35", "--step", "10")
        found = sweep.json("--over", "tokens", *ends, *ASYNC, *RANKS)
        assert [point["value"] for point in found["points"]] == [10, 20, 30]

    def test_the_table_is_aligned(self, sweep: Sweep) -> None:
        text = sweep.text("--over", "tokens", "--values", "8192,140000", *ASYNC, *RANKS, *DIE)
        rows = [line for line in text.splitlines() if line.count("|") == 2]
        assert len(rows) == 4
        assert len({tuple(i for i, c in enumerate(row) if c == "|") for row in rows}) == 1
        assert "memory" in rows[1]

    def test_warnings_are_told_once(self, sweep: Sweep) -> None:
        words = ("--max-num-batched-tokens", "8192", "--ffn-ranks", "16")
        text = sweep.text("--over", "attention-ranks", "--values", "8,12,20", *ASYNC, *words)
        assert text.count("must be a multiple") == 2  # once per role
        assert "warning at 12: Attention" in text

    def test_csv(self, sweep: Sweep) -> None:
        text = sweep.text("--over", "tokens", "--values", "8192,9", *ASYNC, *RANKS, *QUANT, "--csv")
        first, second = csv.DictReader(io.StringIO(text))
        assert first["tokens"] == "9"
        assert second["attention_selected_mb"] == "139"
        assert second["ffn_selected_mb"] == "113"
        assert second["ffn_operator_mb"] == "113"


class TestLimit:
    @pytest.mark.parametrize(
        "words",
        [
            [*ASYNC, *RANKS, *QUANT],
            [*ASYNC, *RANKS],
            [*ASYNC, *RANKS, "--sizing", "published", "--memory-guard-ratio", "0"],
            [*ASYNC, *RANKS, "--gpu-memory-utilization", "0.97"],
            [*CAMP2P, "--gpu-memory-utilization", "0.93"],
            [*CAMP2P, "--sizing", "operator"],
        ],
        ids=lambda words: " ".join(words[-3:]),
    )
    def test_it_fits_and_one_more_does_not(self, sweep: Sweep, words: list[str]) -> None:
        found = sweep.json("--over", "tokens", "--values", "1", *words, *DIE)
        limit = found["largest_max_num_batched_tokens"]["tokens"]
        roles = {s["role"] for s in found["largest_max_num_batched_tokens"]["stopped_by"]}
        around = f"{limit - 1},{limit},{limit + 1}"
        points = sweep.json("--over", "tokens", "--values", around, *words, *DIE)["points"]
        short = [[r for r, e in p["roles"].items() if e["memory"] == "short"] for p in points]
        assert short[:2] == [[], []]
        assert set(short[2]) == roles

    def test_the_known_one(self, sweep: Sweep) -> None:
        """2.5 x MB <= 6553.6 gives 2621 MB; 1.1 x 2 x 7168 x 9 x t <= 2621 MiB gives t = 19364."""
        text = sweep.text("--over", "tokens", "--values", "1", *ASYNC, *RANKS, *QUANT, *DIE)
        assert 19364 * 8 == 154912
        assert "largest max_num_batched_tokens that fits: 154912; one more breaks" in text
        assert "Attention: memory guard: 6553.6 MiB of 65536 MiB" in text

    def test_an_operator_limit_can_stop_it(self, sweep: Sweep) -> None:
        large = ("--device-memory-gib", "100000", "--gpu-memory-utilization", "0.1")
        found = sweep.json("--over", "tokens", "--values", "1", *ASYNC, *RANKS, *large)
        limit = found["largest_max_num_batched_tokens"]
        assert limit["tokens"] == 262144
        assert all("operator limit" in each["reason"] for each in limit["stopped_by"])

    def test_nothing_fits(self, sweep: Sweep) -> None:
        small = ("--device-memory-gib", "0.001")
        text = sweep.text("--over", "tokens", "--values", "1", *ASYNC, *RANKS, *small)
        assert "not even max_num_batched_tokens 1 fits" in text

    def test_without_a_device_there_is_none(self, sweep: Sweep) -> None:
        found = sweep.json("--over", "tokens", "--values", "1", *ASYNC, *RANKS)
        assert found["largest_max_num_batched_tokens"] is None


class TestPlot:
    WORDS = ("--over", "tokens", "--from", "1", "--to", "200001", "--step", "20000")

    @pytest.mark.parametrize("ending", [".png", ".svg"])
    def test_a_file_is_written(self, sweep: Sweep, tmp_path: Path, ending: str) -> None:
        files = [tmp_path / f"{name}{ending}" for name in "ab"]
        for file in files:
            sweep.text(*self.WORDS, *ASYNC, *RANKS, *QUANT, *DIE, "--plot", str(file))
        first, second = (file.read_bytes() for file in files)
        assert first == second
        assert first.startswith({".png": b"\x89PNG", ".svg": b"<?xml"}[ending])
        if ending == ".svg":
            for words in (b"operator need", b"published need x headroom", b"MB = MiB", b"FFN rank"):
                assert words in first
            assert b"largest that fits: 154,912" in first

    def test_without_matplotlib(
        self, sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        message = sweep.refused(*self.WORDS, *ASYNC, *RANKS, "--plot", str(tmp_path / "a.png"))
        assert "pip install 'cam-hccl-plugin[plot]'" in message

    def test_another_ending(self, sweep: Sweep) -> None:
        message = sweep.refused(*self.WORDS, *ASYNC, *RANKS, "--plot", "a.pdf")
        assert "must end in .png or .svg" in message

    def test_an_unwritable_place(self, sweep: Sweep, tmp_path: Path) -> None:
        file = tmp_path / "missing" / "a.png"
        assert "cannot be written" in sweep.refused(
            *self.WORDS, *ASYNC, *RANKS, "--plot", str(file)
        )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--over", "tokens", *ASYNC, *RANKS], "give --values"),
        (["--over", "tokens", "--values", "0", *ASYNC, *RANKS], "positive integers"),
        (["--over", "tokens", "--values", "1", "--from", "1", *ASYNC, *RANKS], "exclude"),
        (
            ["--over", "tokens", "--from", "2", "--to", "1", "--step", "1", *ASYNC, *RANKS],
            "is above",
        ),
        (
            ["--over", "tokens", "--from", "1", "--to", "99999999", "--step", "1", *ASYNC, *RANKS],
            "more than 10000 values",
        ),
        (["--over", "tokens", "--values", "1", *ASYNC], "--attention-ranks, --ffn-ranks"),
        (
            ["--over", "ffn-ranks", "--values", "1", *ASYNC, *RANKS],
            "--ffn-ranks is what --over ffn-ranks varies",
        ),
        (
            ["--over", "tokens", "--values", "1", *RANKS, "--connector", "CAMAsyncAFDConnector"],
            "--model-shape",
        ),
        (["--over", "tokens", "--values", "1", *ASYNC, *RANKS, "--csv", "--json"], "exclude"),
        (["--over", "tokens", "--values", "1", *ASYNC, *RANKS, "--", "vllm"], "reads no commands"),
        (
            ["--over", "tokens", "--values", "99999999999999", *ASYNC, *RANKS],
            "at tokens 99999999999999",
        ),
    ],
)
def test_bad_input_is_one_message(sweep: Sweep, words: list[str], named: str) -> None:
    assert named in sweep.refused(*words)
