# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The quick look for extensions: it may say yes in vain, never no in error."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cam_hccl_plugin.cli.extensions import may_be_installed

ENTRY = "[console_scripts]\na = b:c\n\n[cam_hccl_plugin]\nmine = my.package\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder on ``sys.path``."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "not there")])
    monkeypatch.setattr(sys, "meta_path", [sys.meta_path[-1]])
    return tmp_path


def metadata(place: Path, name: str, text: str | None) -> None:
    folder = place / name
    folder.mkdir()
    if text is not None:
        (folder / "entry_points.txt").write_text(text, encoding="utf-8")


def test_nothing_installed_is_no(place: Path) -> None:
    metadata(place, "other-1.dist-info", "[console_scripts]\na = b:c\n")
    metadata(place, "plain-1.dist-info", None)
    (place / "old.egg-info").write_text("a file", encoding="utf-8")
    assert not may_be_installed()


@pytest.mark.parametrize("name", ["mine-1.dist-info", "mine.egg-info"])
def test_an_entry_point_of_our_group_is_yes(place: Path, name: str) -> None:
    metadata(place, name, ENTRY)
    assert may_be_installed()


@pytest.mark.parametrize("name", ["mine.egg", "mine.egg-link"])
def test_an_old_layout_is_left_to_importlib(place: Path, name: str) -> None:
    metadata(place, name, None)
    assert may_be_installed()


def test_a_zip_file_is_left_to_importlib(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = place / "all.zip"
    zipfile.ZipFile(archive, "w").close()
    monkeypatch.setattr(sys, "path", [str(archive)])
    assert may_be_installed()


def test_a_finder_of_distributions_is_left_to_importlib(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Finder:
        def find_distributions(self, context: object = None) -> list[object]:
            return []

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert may_be_installed()


def test_a_plan_without_extensions_does_without_importlib_metadata() -> None:
    code = (
        "import sys; from cam_hccl_plugin.cli import main; from cam_hccl_plugin.cli.extensions "
        "import may_be_installed; known = may_be_installed(); "
        "main('plan --connector CAMAsyncAFDConnector --hidden-size 7168 --topk 8 "
        "--routed-experts 256 --attention-ranks 16 --ffn-ranks 16 --max-num-batched-tokens 1'"
        ".split()); print(known or 'importlib.metadata' not in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "True"
