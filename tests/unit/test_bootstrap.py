# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Arming, installing, and taking everything out again."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from conftest import SEAM_DOUBLE, Records, Stack, forget
from fakes import async_config, camp2p_config
from finders import Finds, on_disk
from processes import HEAVY, run, write_tripwires

from cam_hccl_plugin import bootstrap
from cam_hccl_plugin.bootstrap import Installation
from cam_hccl_plugin.errors import SeamError

FACTORY = "afd_plugin.connectors.factory"


def binding(stack: Stack) -> Any:
    return vars(stack.factory)["create_connector"]


def wraps_once(wrapper: Any, original: Any) -> bool:
    """Whether ``wrapper`` is one layer around the class method ``original``."""
    return wrapper is not original and wrapper.__func__.__wrapped__ is original.__func__


class TestOrder:
    def test_afd_may_be_imported_after_arming(
        self, make_stack: Callable[[str], Stack], generation: str
    ) -> None:
        stack = make_stack(generation)
        stack.installation.arm()
        assert FACTORY not in sys.modules
        stack.start(async_config())
        assert stack.groups.sizes == {"afd_async_cam": 139}

    def test_afd_may_be_imported_before_arming(
        self, make_stack: Callable[[str], Stack], generation: str
    ) -> None:
        stack = make_stack(generation)
        stack.load_afd()
        stack.module("connectors.npu.async_cam")
        stack.installation.arm()
        stack.start(async_config())
        assert stack.groups.sizes == {"afd_async_cam": 139}

    def test_arming_twice_is_arming_once(
        self, make_stack: Callable[[str], Stack], generation: str, records: Records
    ) -> None:
        stack = make_stack(generation)
        original = binding(stack)
        for _ in range(3):
            stack.installation.arm()
        assert wraps_once(binding(stack), original)
        stack.start(async_config())
        assert len([i for i in records.infos if "groups=" in i]) == 1

    def test_arming_again_below_a_foreign_wrapper_is_arming_once(
        self, stack: Stack, records: Records
    ) -> None:
        ours = binding(stack)

        def foreign(cls: Any, *args: Any, **kwargs: Any) -> Any:  # says nothing of what it wraps
            return ours.__get__(None, cls)(*args, **kwargs)

        stack.factory.create_connector = classmethod(foreign)
        stack.installation.arm()
        stack.start(async_config())
        assert stack.groups.sizes == {"afd_async_cam": 139}
        assert len([i for i in records.infos if "groups=" in i]) == 1


class TestUninstall:
    def test_the_identical_objects_are_back(
        self, make_stack: Callable[[str], Stack], generation: str
    ) -> None:
        stack = make_stack(generation)
        factory = binding(stack)
        modules = [stack.module(f"connectors.npu.{m}") for m in ("async_cam", "camp2p")]
        functions = [m.init_afd_process_group for m in modules]
        stack.installation.arm()
        stack.start(async_config())
        stack.start(camp2p_config())
        assert binding(stack) is not factory
        assert all(
            m.init_afd_process_group is not f for m, f in zip(modules, functions, strict=True)
        )
        stack.installation.disarm()
        assert binding(stack) is factory
        assert isinstance(binding(stack), classmethod)
        assert all(m.init_afd_process_group is f for m, f in zip(modules, functions, strict=True))

    def test_while_installed_the_method_still_is_a_classmethod(self, stack: Stack) -> None:
        connector = stack.factory.create_connector(0, 0, async_config())
        assert type(connector).__name__ == "CAMAsyncAFDConnector"
        through_keywords = stack.factory.create_connector(
            rank=0, local_rank=0, vllm_config=async_config(), afd_config=None
        )
        assert "init_afd_connector" in vars(through_keywords)
        assert stack.factory.create_connector.__name__ == "create_connector"

    def test_afterwards_nothing_is_injected(self, stack: Stack, records: Records) -> None:
        waiting = stack.create(camp2p_config())
        stack.installation.disarm()
        waiting.init_afd_connector()
        stack.start(async_config())
        assert stack.groups.sizes == {"afd": None, "p2p": None, "afd_async_cam": None}

    def test_afterwards_the_flag_is_not_even_read(self, stack: Stack) -> None:
        stack.installation.disarm()
        stack.create(async_config(flag={"nonsense": 1}))

    def test_twice_is_once(self, stack: Stack) -> None:
        stack.installation.disarm()
        before = binding(stack)
        stack.installation.disarm()
        assert binding(stack) is before

    def test_a_foreign_wrapper_on_the_factory_stays_and_ours_goes_quiet(self, stack: Stack) -> None:
        ours = binding(stack)
        seen: list[str] = []

        @functools.wraps(ours.__func__)
        def foreign(cls: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append("foreign")
            return ours.__get__(None, cls)(*args, **kwargs)

        wrapper = classmethod(foreign)
        stack.factory.create_connector = wrapper
        stack.installation.disarm()
        assert binding(stack) is wrapper
        stack.start(async_config())
        assert seen == ["foreign"]
        assert stack.groups.sizes == {"afd_async_cam": None}

    def test_a_foreign_wrapper_on_the_group_creation_stays_and_ours_goes_quiet(
        self, stack: Stack
    ) -> None:
        module = stack.module("connectors.npu.async_cam")
        stack.create(async_config())
        ours = module.init_afd_process_group
        seen: list[str] = []

        def foreign(**kwargs: Any) -> Any:
            seen.append(kwargs["group_name"])
            return ours(**kwargs)

        module.init_afd_process_group = foreign  # type: ignore[attr-defined]  # a module
        stack.installation.disarm()
        assert module.init_afd_process_group is foreign
        stack.start(async_config())
        assert seen == ["afd_async_cam"]
        assert stack.groups.sizes == {"afd_async_cam": None}

    def test_a_foreign_wrapper_on_the_group_creation_is_injected_through(
        self, stack: Stack
    ) -> None:
        module = stack.module("connectors.npu.async_cam")
        connector = stack.create(async_config())
        ours = module.init_afd_process_group

        def foreign(*, backend: Any, rank: Any, group_name: Any, pg_options: Any = None, **kw: Any):  # type: ignore[no-untyped-def]  # brevity
            return ours(
                backend=backend, rank=rank, group_name=group_name, pg_options=pg_options, **kw
            )

        module.init_afd_process_group = foreign  # type: ignore[attr-defined]  # a module
        second = stack.create(async_config())
        connector.init_afd_connector()
        connector.close()
        stack.groups.calls.clear()
        second.init_afd_connector()
        assert stack.groups.sizes == {"afd_async_cam": 139}

    def test_arming_again_injects_again(self, stack: Stack) -> None:
        stack.start(async_config()).close()
        stack.installation.disarm()
        original = binding(stack)
        stack.installation.arm()
        assert wraps_once(binding(stack), original)
        stack.groups.calls.clear()
        stack.start(async_config())
        assert stack.groups.sizes == {"afd_async_cam": 139}

    def test_a_disarmed_installation_ignores_imports_to_come(
        self, make_stack: Callable[[str], Stack], generation: str
    ) -> None:
        stack = make_stack(generation)
        stack.installation.arm()
        stack.installation.disarm()
        assert isinstance(binding(stack), classmethod)


class TestMovedFactory:
    @pytest.fixture(params=["no class", "no method", "not a class"])
    def module(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> types.ModuleType:
        made = types.ModuleType(FACTORY)
        if request.param == "no method":
            made.AFDConnectorFactory = type("AFDConnectorFactory", (), {})  # type: ignore[attr-defined]  # a module
        if request.param == "not a class":
            made.AFDConnectorFactory = lambda: None  # type: ignore[attr-defined]  # a module
        package = types.ModuleType("afd_plugin")
        package.__version__ = "9.9"  # type: ignore[attr-defined]  # a module
        forget("afd_plugin")
        for name in ("afd_plugin", "afd_plugin.connectors"):
            monkeypatch.setitem(sys.modules, name, package)
        monkeypatch.setitem(sys.modules, FACTORY, made)
        return made

    def test_without_the_flag_nobody_hears_of_it(
        self, module: types.ModuleType, records: Records
    ) -> None:
        Installation().arm()
        assert records.above_debug == []

    def test_it_is_kept_for_the_check_of_the_launch(self, module: types.ModuleType) -> None:
        installation = Installation()
        installation.arm()
        problem = installation.seam_problem()
        assert isinstance(problem, SeamError)
        for words in ("AFDConnectorFactory.create_connector", FACTORY, "afd-plugin 9.9"):
            assert words in str(problem)


def test_a_factory_that_cannot_be_imported_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, FACTORY, None)
    problem = Installation().seam_problem()
    assert isinstance(problem, SeamError)
    assert FACTORY in str(problem)


def test_a_factory_that_could_not_be_patched_is_a_problem_and_ends_no_import(
    make_stack: Callable[[str], Stack], monkeypatch: pytest.MonkeyPatch, records: Records
) -> None:
    stack = make_stack("a")
    monkeypatch.setitem(sys.modules, "cam_hccl_plugin.patches.connector_factory", None)
    stack.installation.arm()
    assert isinstance(binding(stack), classmethod)
    assert "could not be hooked" in records.errors[0]
    problem = stack.installation.seam_problem()
    assert isinstance(problem, SeamError)
    assert "did not notice that import" in str(problem)


def test_a_factory_that_another_finder_imported_past_us_is_a_problem(
    make_stack: Callable[[str], Stack], records: Records
) -> None:
    stack = make_stack("a")
    stack.installation.arm()
    Finds(FACTORY, on_disk(FACTORY))
    problem = stack.installation.seam_problem()
    assert isinstance(problem, SeamError)
    assert "answers before ours" in str(problem)
    stack.installation.arm()  # registering again notices it
    assert stack.installation.seam_problem() is None


def test_a_problem_of_a_half_imported_factory_ends_when_it_is_whole(
    make_stack: Callable[[str], Stack], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = make_stack("a")
    whole = stack.load_afd()
    monkeypatch.setitem(sys.modules, FACTORY, types.ModuleType(FACTORY))
    stack.installation.arm()
    assert isinstance(stack.installation.seam_problem(), SeamError)
    monkeypatch.setitem(sys.modules, FACTORY, whole)
    stack.installation.arm()
    assert stack.installation.seam_problem() is None


def test_a_factory_that_was_put_in_the_patched_ones_place_is_a_problem(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = stack.load_afd()
    monkeypatch.setattr(module, "AFDConnectorFactory", type("AFDConnectorFactory", (), {}))
    assert isinstance(stack.installation.seam_problem(), SeamError)


def test_a_foreign_wrapper_that_hides_ours_is_no_problem(stack: Stack) -> None:
    ours = binding(stack)
    stack.factory.create_connector = classmethod(lambda cls, *args: ours.__get__(None, cls)(*args))
    assert stack.installation.seam_problem() is None


@pytest.mark.parametrize("stub", [types.SimpleNamespace(), mock.MagicMock()], ids=["plain", "mock"])
def test_a_stub_in_the_factorys_place_is_nothing_without_the_flag(
    monkeypatch: pytest.MonkeyPatch, records: Records, stub: Any
) -> None:
    monkeypatch.setitem(sys.modules, FACTORY, stub)
    Installation().arm()
    assert records.above_debug == []


class TestTwoInstallations:
    def test_together_they_size_once_and_each_leaves_alone(
        self, make_stack: Callable[[str], Stack], records: Records
    ) -> None:
        stack = make_stack("a")
        original = binding(stack)
        other = Installation()
        for installation in (stack.installation, other):
            installation.arm()
        stack.start(async_config()).close()
        assert stack.groups.sizes == {"afd_async_cam": 139}
        assert len([i for i in records.infos if "groups=" in i]) == 1
        stack.installation.disarm()
        stack.groups.calls.clear()
        stack.start(async_config()).close()
        assert stack.groups.sizes == {"afd_async_cam": 139}
        other.disarm()
        stack.installation.disarm()
        assert binding(stack) is original


def test_a_good_factory_is_no_problem(stack: Stack) -> None:
    assert stack.installation.seam_problem() is None


class TestModuleFunctions:
    def test_they_serve_one_installation_of_the_process(
        self, make_stack: Callable[[str], Stack], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stack = make_stack("a")
        monkeypatch.setattr(bootstrap, "PROCESS", stack.installation)
        original = binding(stack)
        bootstrap.arm()
        bootstrap.arm()
        assert wraps_once(binding(stack), original)
        bootstrap.uninstall()
        assert binding(stack) is original


REGISTER = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="LOG %(name)s %(message)s")
import cam_hccl_plugin
for _ in range(3):
    cam_hccl_plugin.register()
print("heavy:", [name for name in {heavy!r} if name in sys.modules])
"""


class TestRegister:
    def test_it_imports_nothing_heavy_and_says_nothing(self, tmp_path: Any) -> None:
        done = run("-c", REGISTER.format(heavy=HEAVY), path=(write_tripwires(tmp_path),))
        assert done.stdout == "heavy: []\n"
        assert done.stderr == ""
        assert done.returncode == 0

    def test_it_does_not_need_pluggy(self, tmp_path: Any) -> None:
        code = "import sys; sys.modules['pluggy'] = None\n" + REGISTER.format(heavy=HEAVY)
        done = run("-c", code, path=(write_tripwires(tmp_path),))
        assert (done.returncode, done.stdout, done.stderr) == (0, "heavy: []\n", "")

    def test_it_never_raises_and_says_what_to_do(self, tmp_path: Any) -> None:
        broken = "import sys; sys.modules['cam_hccl_plugin.import_watch'] = None\n"
        code = broken + REGISTER.format(heavy=HEAVY)
        done = run("-c", code, path=(write_tripwires(tmp_path),))
        assert done.returncode == 0
        assert done.stdout == "heavy: []\n"
        assert "LOG vllm.cam_hccl" in done.stderr
        assert "reinstall cam-hccl-plugin" in done.stderr

    def test_it_needs_nothing_but_the_standard_library(self) -> None:
        code = """
import sys
import afd_plugin.connectors.factory, types
sys.modules["vllm.engine.arg_utils"] = module = types.ModuleType("vllm.engine.arg_utils")
module.EngineArgs = type("EngineArgs", (), {"create_engine_config": lambda self: None})
before = set(sys.modules)
import cam_hccl_plugin
cam_hccl_plugin.register()
added = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(added - set(sys.stdlib_module_names)))
"""
        done = run("-c", code, path=(SEAM_DOUBLE,), env={"SEAM_DOUBLE_GENERATION": "a"})
        assert (done.stdout, done.stderr) == ("['cam_hccl_plugin']\n", "")

    @pytest.mark.parametrize("first", ["register", "afd"])
    @pytest.mark.parametrize("generation", ["a", "b"])
    def test_it_works_in_either_order_with_afd(self, first: str, generation: str) -> None:
        steps = ["cam_hccl_plugin.register()", "import afd_plugin.connectors.factory"]
        code = "import cam_hccl_plugin\n" + "\n".join(steps if first == "register" else steps[::-1])
        code += """
from afd_plugin.connectors.factory import AFDConnectorFactory
before = vars(AFDConnectorFactory)["create_connector"]
print(type(before).__name__, before.__func__.__code__.co_filename.endswith("wrapping.py"))
cam_hccl_plugin.register()
print(vars(AFDConnectorFactory)["create_connector"] is before)
import sys
print([name for name in ("torch", "torch_npu", "vllm") if name in sys.modules])
"""
        env = {"SEAM_DOUBLE_GENERATION": generation}
        done = run("-c", code, path=(SEAM_DOUBLE,), env=env)
        assert done.stdout.splitlines() == ["classmethod True", "True", "[]"]
        assert done.stderr == ""

    def test_the_package_imports_nothing_that_can_fail(self, tmp_path: Any) -> None:
        code = """
import sys
sys.modules["pluggy"] = None
import cam_hccl_plugin
print([n for n in sys.modules if n.startswith("cam_hccl_plugin")])
"""
        done = run("-c", code, path=(write_tripwires(tmp_path),))
        assert done.stdout == "['cam_hccl_plugin']\n"
