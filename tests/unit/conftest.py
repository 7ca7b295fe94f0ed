# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Fixtures of the unit tests: no torch, no vLLM, nothing shared between two tests."""

from __future__ import annotations

import importlib
import logging
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import GIB, Groups, fake_torch, fake_torch_npu
from hypothesis import settings
from start_case import Lines, logged
from torch_double import TorchDouble

from cam_hccl_plugin.bootstrap import Installation
from cam_hccl_plugin.plugin_host import PluginHost, build_host

SEAM_DOUBLE = Path(__file__).resolve().parent.parent / "seam_double"

settings.register_profile("unit", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("unit")


@pytest.fixture(autouse=True)
def _no_ambient_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HCCL_BUFFSIZE", "LCCL_BUFFER_SIZE", "VLLM_PLUGINS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _own_finders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


class Records(logging.Handler):
    """What the plugin logged; attached to its own logger, so that propagation is no matter."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def at(self, level: int) -> list[str]:
        return [r.getMessage() for r in self.records if r.levelno == level]

    @property
    def debugs(self) -> list[str]:
        return self.at(logging.DEBUG)

    @property
    def infos(self) -> list[str]:
        return self.at(logging.INFO)

    @property
    def warnings(self) -> list[str]:
        return self.at(logging.WARNING)

    @property
    def errors(self) -> list[str]:
        return self.at(logging.ERROR)

    @property
    def above_debug(self) -> list[str]:
        return [r.getMessage() for r in self.records if r.levelno > logging.DEBUG]


@pytest.fixture
def records() -> Iterator[Records]:
    """Everything on the logger ``vllm.cam_hccl``, from DEBUG."""
    logger = logging.getLogger("vllm.cam_hccl")
    handler, level = Records(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> TorchDouble:
    """A double of torch and torch-npu that keeps stores, groups and operators."""
    return TorchDouble(monkeypatch)


@pytest.fixture
def log() -> Iterator[Lines]:
    """The plugin's lines by level."""
    with logged() as lines:
        yield lines


@pytest.fixture
def host() -> PluginHost:
    """The built-in rules alone."""
    return build_host(installed=False)


def forget(package: str) -> None:
    for name in [n for n in sys.modules if n == package or n.startswith(package + ".")]:
        del sys.modules[name]


class Stack:
    """A process with the seam double, fakes of torch and torch-npu, and an installation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, generation: str, tmp_path: Path) -> None:
        self.generation = generation
        self.groups = Groups()
        self.torch = fake_torch(self.groups)
        self.installation = Installation()
        self._monkeypatch = monkeypatch
        self._tmp_path = tmp_path
        monkeypatch.setenv("SEAM_DOUBLE_GENERATION", generation)
        monkeypatch.syspath_prepend(str(SEAM_DOUBLE))
        monkeypatch.setitem(sys.modules, "torch", self.torch)
        monkeypatch.setitem(sys.modules, "torch_npu", fake_torch_npu())
        forget("afd_plugin")

    def load_afd(self) -> Any:
        """Import the double's factory module, as a model runner does."""
        made = importlib.import_module("afd_plugin.distributed.afd_process_group")
        self._monkeypatch.setattr(made, "create_group", self.groups.create)
        self._monkeypatch.setattr(made, "destroy_group", self.groups.destroy)
        return importlib.import_module("afd_plugin.connectors.factory")

    def module(self, name: str) -> types.ModuleType:
        self.load_afd()
        return importlib.import_module(f"afd_plugin.{name}")

    def arm(self) -> None:
        self.installation.arm()
        self.load_afd()

    @property
    def factory(self) -> Any:
        return self.load_afd().AFDConnectorFactory

    def create(self, config: Any, rank: int = 0, local_rank: int = 0, **kwargs: Any) -> Any:
        return self.factory.create_connector(rank, local_rank, config, **kwargs)

    def start(self, config: Any, **kwargs: Any) -> Any:
        connector = self.create(config, **kwargs)
        connector.init_afd_connector()
        return connector

    def set_device(self, total_bytes: int = 64 * GIB, error: Exception | None = None) -> None:
        def mem_get_info() -> tuple[int, int]:
            if error is not None:
                raise error
            return 0, total_bytes

        self.torch.npu = types.SimpleNamespace(mem_get_info=mem_get_info)

    def write_connector(self, module: str, class_name: str, source: str) -> types.ModuleType:
        """A module with a connector class of somebody else, registered with the factory."""
        (self._tmp_path / f"{module}.py").write_text(source, encoding="utf-8")
        self._monkeypatch.syspath_prepend(str(self._tmp_path))
        forget(module)
        self.factory.register_connector(class_name, module, class_name)
        return importlib.import_module(module)


@pytest.fixture(params=["a", "b"])
def generation(request: pytest.FixtureRequest) -> str:
    """Both generations of the upstream seam."""
    return str(request.param)


@pytest.fixture
def make_stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], Stack]]:
    """A stack of the given generation; taken down after the test."""
    made: list[Stack] = []

    def make(generation: str) -> Stack:
        made.append(Stack(monkeypatch, generation, tmp_path))
        return made[-1]

    yield make
    for stack in made:
        stack.installation.disarm()
    for package in ("afd_plugin", "my_connectors", "my_base"):
        forget(package)


@pytest.fixture
def stack(make_stack: Callable[[str], Stack], generation: str) -> Stack:
    """An armed stack, once per generation."""
    stack = make_stack(generation)
    stack.arm()
    return stack


@pytest.fixture
def stack_b(make_stack: Callable[[str], Stack]) -> Stack:
    """An armed stack of the newer generation, which passes options of its own."""
    stack = make_stack("b")
    stack.arm()
    return stack
