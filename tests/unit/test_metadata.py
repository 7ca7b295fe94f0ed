# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What the distribution says about itself, once."""

from __future__ import annotations

import configparser
from importlib import metadata

import pytest
from source import ROOT, modules

import cam_hccl_plugin

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def listed(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_setup_cfg_and_pyproject_do_not_repeat_each_other(setup: configparser.ConfigParser) -> None:
    assert "[project" not in PYPROJECT
    assert "[tool.setuptools" not in PYPROJECT
    assert "build-system" in PYPROJECT
    for section in setup.sections():
        assert section == "metadata" or section.startswith("options")


def test_packages_are_listed_and_complete(setup: configparser.ConfigParser) -> None:
    found = {
        ".".join(file.parent.relative_to(ROOT).parts)
        for file in modules().values()
        if file.name == "__init__.py"
    }
    assert set(listed(setup["options"]["packages"])) == found


def test_the_entry_points(setup: configparser.ConfigParser) -> None:
    points = setup["options.entry_points"]
    assert listed(points["vllm.general_plugins"]) == ["cam_hccl = cam_hccl_plugin:register"]
    assert listed(points["console_scripts"]) == ["cam-hccl = cam_hccl_plugin.cli:main"]


def test_the_stack_is_the_users_and_never_required(setup: configparser.ConfigParser) -> None:
    required = " ".join(listed(setup["options"]["install_requires"]))
    for heavy in ("vllm", "torch", "ascend", "pydantic"):
        assert heavy not in required


def test_the_version_is_written_once(setup: configparser.ConfigParser) -> None:
    assert setup["metadata"]["version"] == "attr: cam_hccl_plugin.__version__"
    assert cam_hccl_plugin.__version__ not in PYPROJECT


def test_the_installed_distribution_is_this_one() -> None:
    """The suite runs on an installation, editable or not."""
    found = metadata.distribution("cam-hccl-plugin")
    assert found.version == cam_hccl_plugin.__version__
    points = {(p.group, p.name): p.load() for p in found.entry_points}
    assert points["vllm.general_plugins", "cam_hccl"] is cam_hccl_plugin.register


def test_the_package_offers_its_marker_and_nothing_by_accident() -> None:
    assert cam_hccl_plugin.__all__ == ["__version__", "hookimpl", "register"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cam_hccl_plugin.nothing  # noqa: B018 - the access is the test


def test_it_is_typed() -> None:
    assert (ROOT / "cam_hccl_plugin" / "py.typed").is_file()
