# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Told when a module has been imported; nothing of the import itself changes."""

from __future__ import annotations

import concurrent.futures
import copy
import importlib
import importlib.util
import inspect
import pickle
import sys
import threading
import zipfile
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from conftest import Records, forget
from finders import Finds, behind, on_disk

from cam_hccl_plugin.import_watch import ImportWatch

SOURCE = '''"""Words."""
VALUE = 1
'''


class Seen:
    """A callback that keeps what it saw of a module when it was called."""

    def __init__(self) -> None:
        self.modules: list[ModuleType] = []
        self.values: list[Any] = []

    def __call__(self, module: ModuleType) -> None:
        self.modules.append(module)
        self.values.append(getattr(module, "VALUE", None))


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write modules of the package ``watched``; they are forgotten after the test."""
    package = tmp_path / "watched"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    forget("watched")

    def write(name: str, source: str = SOURCE) -> None:
        (package / f"{name}.py").write_text(source, encoding="utf-8")
        importlib.invalidate_caches()

    return write


def loaded_by(name: str, make: Callable[[str], ModuleType], value: int) -> Finds:
    """A finder whose loader makes its module itself and gives it a ``VALUE``."""

    class Loader:
        def create_module(self, spec: Any) -> ModuleType:
            return make(spec.name)

        def exec_module(self, module: Any) -> None:
            module.VALUE = value

    loader: Any = Loader()
    return Finds(name, lambda path: importlib.util.spec_from_loader(name, loader))


def watch(seen: Callable[[ModuleType], None], name: str = "watched.one") -> ImportWatch:
    made = ImportWatch({name: seen})
    made.arm()
    return made


def test_a_module_is_announced_once_its_code_ran(write: Any) -> None:
    write("one")
    seen = Seen()
    watch(seen)
    assert seen.modules == []
    module = importlib.import_module("watched.one")
    assert seen.modules == [module]
    assert seen.values == [1]
    importlib.import_module("watched.one")
    assert len(seen.modules) == 1


def test_what_was_imported_before_is_announced_at_once(write: Any) -> None:
    write("one")
    module = importlib.import_module("watched.one")
    seen = Seen()
    watch(seen)
    assert seen.modules == [module]


def test_other_modules_are_left_alone(write: Any) -> None:
    write("one")
    write("two")
    seen = Seen()
    made = watch(seen)
    assert made.find_spec("watched.two", None) is None
    importlib.import_module("watched.two")
    assert seen.modules == []


def test_a_module_that_replaces_itself_is_announced_as_what_is_imported(write: Any) -> None:
    write("one", "import sys, types\nsys.modules[__name__] = types.SimpleNamespace(VALUE=5)\n")
    seen = Seen()
    watch(seen)
    module = importlib.import_module("watched.one")
    assert seen.modules == [module]
    assert seen.values == [5]


def test_the_module_looks_as_without_us(write: Any) -> None:
    write("one", SOURCE + "LOADERS = __loader__, __spec__.loader\n")
    watch(Seen())
    module: Any = importlib.import_module("watched.one")
    assert [type(loader) for loader in module.LOADERS] == [SourceFileLoader] * 2
    assert type(module.__spec__.loader) is SourceFileLoader
    assert module.__loader__ is module.__spec__.loader
    assert inspect.getsource(module).startswith('"""Words."""')
    assert module.__spec__.cached == module.__cached__


def test_a_spec_that_is_only_looked_at_answers_as_the_true_one(write: Any) -> None:
    write("one")
    seen = Seen()
    watch(seen)
    spec = importlib.util.find_spec("watched.one")
    assert spec is not None
    loader: Any = spec.loader
    assert loader.get_source("watched.one") == SOURCE
    assert loader.is_package("watched.one") is False
    with pytest.raises(AttributeError):
        loader.nothing_of_the_kind  # noqa: B018 - the access is the test
    assert seen.modules == []


def test_a_reload_is_announced_again(write: Any) -> None:
    write("one")
    seen = Seen()
    watch(seen)
    module = importlib.import_module("watched.one")
    write("one", SOURCE.replace("1", "22"))
    assert importlib.reload(module) is module
    assert seen.modules == [module, module]
    assert seen.values == [1, 22]
    assert type(module.__loader__) is SourceFileLoader


def test_an_import_that_fails_is_not_announced_and_one_that_works_later_is(write: Any) -> None:
    write("one", "raise ImportError('not today')")
    seen = Seen()
    watch(seen)
    with pytest.raises(ImportError, match="not today"):
        importlib.import_module("watched.one")
    assert seen.modules == []
    write("one")
    importlib.import_module("watched.one")
    assert seen.values == [1]


def test_a_module_that_does_not_exist_is_as_missing_as_without_us(write: Any) -> None:
    watch(Seen(), "watched.nowhere")
    with pytest.raises(ModuleNotFoundError, match=r"watched\.nowhere"):
        importlib.import_module("watched.nowhere")
    assert importlib.util.find_spec("watched.nowhere") is None


def test_a_module_that_is_marked_as_missing_stays_missing(write: Any) -> None:
    write("one")
    sys.modules["watched.one"] = None  # type: ignore[assignment]  # what marks a module as missing
    seen = Seen()
    watch(seen)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("watched.one")
    assert seen.modules == []


def test_two_watches_of_one_module_are_both_told(write: Any) -> None:
    write("one")
    first, second = Seen(), Seen()
    watch(first)
    watch(second)
    module = importlib.import_module("watched.one")
    assert first.modules == second.modules == [module]
    assert type(module.__loader__) is SourceFileLoader


def test_a_finder_in_front_that_asks_all_finders_is_no_circle(write: Any) -> None:
    write("one")
    seen = Seen()
    watch(seen)
    finder = Finds("watched.one", lambda path: importlib.util.find_spec("watched.one"))
    importlib.import_module("watched.one")
    assert finder.asked == ["watched.one"]
    assert seen.values == [1]


def test_finders_in_front_are_not_asked_again(write: Any) -> None:
    write("one")
    seen = Seen()
    watch(seen)
    finder = Finds("watched.one", lambda path: None)
    importlib.import_module("watched.one")
    assert finder.asked == ["watched.one"]
    assert seen.values == [1]


def test_a_finder_without_find_spec_is_passed_over(write: Any) -> None:
    write("one")
    path = importlib.import_module("watched").__path__
    made = watch(Seen())
    old: Any = object()
    sys.meta_path.insert(behind(made), old)
    assert made.find_spec("watched.one", path) is not None


def test_a_module_from_a_zip_file_is_announced(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as archive:
        archive.writestr("zipped_one.py", SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path / "zipped.zip"))
    seen = Seen()
    watch(seen, "zipped_one")
    importlib.import_module("zipped_one")
    assert seen.values == [1]


def test_a_namespace_package_which_has_no_code_is_imported_as_without_us(
    write: Any, tmp_path: Path
) -> None:
    (tmp_path / "only_a_folder").mkdir()
    seen = Seen()
    watch(seen, "only_a_folder")
    module = importlib.import_module("only_a_folder")
    assert list(module.__path__) == [str(tmp_path / "only_a_folder")]
    assert module.__file__ is None
    assert seen.modules == []


def test_a_loader_with_a_module_of_its_own_gets_to_make_it(write: Any) -> None:
    class Own(ModuleType):
        pass

    loaded_by("made_up", Own, 3)
    seen = Seen()
    watch(seen, "made_up")
    module = importlib.import_module("made_up")
    assert type(module) is Own
    assert seen.values == [3]


def test_arming_again_is_arming_once_and_disarming_leaves_nothing(write: Any) -> None:
    write("one")
    before = list(sys.meta_path)
    seen = Seen()
    made = watch(seen)
    made.arm()
    assert [f for f in sys.meta_path if f is made] == [made]
    made.disarm()
    made.disarm()
    assert sys.meta_path == before
    importlib.import_module("watched.one")
    assert seen.modules == []


def test_a_watch_that_was_never_armed_finds_and_announces_nothing() -> None:
    class Loader:
        def exec_module(self, module: ModuleType) -> None:
            ran.append(module)

    ran: list[ModuleType] = []
    seen = Seen()
    made = ImportWatch({"json": seen})
    assert made.find_spec("json") is None
    made.run("json", Loader(), sys)
    assert ran == [sys]
    assert seen.modules == []


def test_a_watch_behind_anothers_proxy_still_watches(write: Any) -> None:
    write("one")
    seen = Seen()
    made = watch(seen)

    class Proxy:
        def find_spec(self, *args: Any) -> Any:
            return made.find_spec(*args)

    proxy: Any = Proxy()
    sys.meta_path[sys.meta_path.index(made)] = proxy  # type: ignore[arg-type]  # as a finder
    importlib.import_module("watched.one")
    assert seen.values == [1]


def test_a_watch_that_stands_twice_on_the_path_announces_once(write: Any) -> None:
    write("one")
    seen = Seen()
    made: Any = watch(seen)
    sys.meta_path.insert(0, made)
    importlib.import_module("watched.one")
    assert seen.values == [1]
    made.disarm()
    assert made not in sys.meta_path


def test_a_finder_behind_that_asks_all_finders_gets_one_announcement(write: Any) -> None:
    write("one")
    seen = Seen()
    made = watch(seen)
    Finds("watched.one", lambda path: importlib.util.find_spec("watched.one"), behind(made))
    importlib.import_module("watched.one")
    assert seen.values == [1]


def test_a_finder_that_keeps_its_specs_gets_one_announcement(write: Any) -> None:
    write("one")
    kept = importlib.util.find_spec("watched.one")
    Finds("watched.one", lambda path: kept)
    seen = Seen()
    watch(seen)
    for _ in range(3):
        assert importlib.util.find_spec("watched.one") is kept
    importlib.import_module("watched.one")
    assert seen.values == [1]
    assert kept is not None
    assert type(kept.loader) is SourceFileLoader


@pytest.mark.parametrize("moment", ["before its code runs", "while its code runs"])
def test_disarming_counts_for_an_import_that_is_under_way(write: Any, moment: str) -> None:
    write("one", SOURCE + "import watched; watched.disarm()\n")
    seen = Seen()
    made = watch(seen)
    package: Any = importlib.import_module("watched")
    package.disarm = made.disarm if moment == "while its code runs" else lambda: None
    spec = importlib.util.find_spec("watched.one")
    assert spec is not None
    assert spec.loader is not None
    if moment == "before its code runs":
        made.disarm()
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.VALUE == 1
    assert seen.modules == []


def test_a_callback_that_fails_ends_no_import_and_keeps_nobody_else_from_hearing(
    write: Any, records: Records
) -> None:
    write("one")
    write("two")
    seen = Seen()

    def fail(module: ModuleType) -> None:
        raise ZeroDivisionError("ours")

    made = ImportWatch({"watched.one": fail, "watched.two": seen})
    made.arm()
    importlib.import_module("watched.one")
    importlib.import_module("watched.two")
    assert seen.values == [1]
    made.arm()
    assert seen.values == [1, 1]
    assert len(records.errors) == 2
    assert "watched.one could not be hooked" in records.errors[0]


def test_the_spec_of_a_watched_module_can_be_copied(write: Any) -> None:
    write("one")
    watch(Seen())
    spec = importlib.util.find_spec("watched.one")
    for copied in (copy.copy(spec), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert copied is not None
        assert copied.name == "watched.one"
    for loader in (copy.copy(spec.loader), copy.deepcopy(spec.loader)):  # type: ignore[union-attr]
        assert type(loader) is SourceFileLoader
        assert loader.get_source("watched.one") == SOURCE


def test_a_module_that_refuses_a_loader_is_imported_as_without_us(write: Any) -> None:
    class Closed(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "__loader__":
                raise AttributeError(name)
            super().__setattr__(name, value)

    loaded_by("made_up", Closed, 4)
    seen = Seen()
    watch(seen, "made_up")
    importlib.import_module("made_up")
    assert seen.values == [4]


class Paused:
    """The import of ``watched.one`` in another thread, held in the middle of its code."""

    def __init__(self, write: Any, last_line: str = "VALUE = 1") -> None:
        package: Any = importlib.import_module("watched")
        self._middle = package.middle = threading.Event()
        self._go_on = package.go_on = threading.Event()
        wait = "watched.middle.set()\nassert watched.go_on.wait(30)\n"
        write("one", f"import watched\n{wait}{last_line}\n")

    def __enter__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._import = self._pool.submit(importlib.import_module, "watched.one")
        assert self._middle.wait(30)

    def __exit__(self, *_: object) -> None:
        self._go_on.set()
        self._pool.shutdown()

    def error(self) -> BaseException | None:
        return self._import.exception()


def test_a_module_that_another_thread_still_runs_is_announced_when_armed_again(
    write: Any,
) -> None:
    seen = Seen()
    paused = Paused(write)
    with paused:
        made = watch(seen)
        assert seen.modules == []
    assert paused.error() is None
    made.arm()
    assert seen.modules == [sys.modules["watched.one"]]
    assert seen.values == [1]


def test_arming_again_while_a_watched_import_is_under_way_announces_once(write: Any) -> None:
    seen = Seen()
    made = watch(seen)
    paused = Paused(write)
    with paused:
        made.arm()
    assert paused.error() is None
    assert seen.values == [1]


def test_a_module_that_half_ran_and_then_failed_is_not_announced(write: Any) -> None:
    seen = Seen()
    paused = Paused(write, "raise ZeroDivisionError")
    with paused:
        made = watch(seen)
    assert isinstance(paused.error(), ZeroDivisionError)
    made.arm()
    assert seen.modules == []


@pytest.mark.parametrize("armed_before", [True, False])
def test_arming_from_within_the_modules_own_code_announces_nothing_half_run(
    write: Any, armed_before: bool
) -> None:
    package: Any = importlib.import_module("watched")
    seen = Seen()
    made = ImportWatch({"watched.one": seen})
    package.arm = made.arm
    if armed_before:
        made.arm()
    write("one", "import watched\nwatched.arm()\n" + SOURCE)
    importlib.import_module("watched.one")
    assert seen.values == ([1] if armed_before else [])


def test_a_module_that_replaced_itself_but_still_runs_is_not_announced_yet(write: Any) -> None:
    package: Any = importlib.import_module("watched")
    seen = Seen()
    package.arm = watch(seen).arm
    replaced = "import sys, types, watched\nsys.modules[__name__] = types.SimpleNamespace()\n"
    write("one", replaced + "watched.arm()\nsys.modules[__name__].VALUE = 6\n")
    importlib.import_module("watched.one")
    assert seen.values == [6]


def test_nothing_is_announced_where_finders_are_asked(write: Any) -> None:
    """They are called under the global import lock; a callback that imports could deadlock."""
    write("one")
    write("two")
    seen = Seen()
    watch(seen)
    Finds("watched.one", on_disk("watched.one"))
    importlib.import_module("watched.one")
    importlib.import_module("watched.two")
    assert seen.modules == []


def test_a_lazy_loader_around_ours_announces_the_module_once_it_ran(write: Any) -> None:
    write("one", SOURCE + "import watched.two\nLATE = 1\n")
    write("two")

    def find(path: Any) -> Any:
        spec: Any = importlib.util.find_spec("watched.one")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec

    seen = Seen()
    made = watch(seen)
    Finds("watched.one", find)
    module = importlib.import_module("watched.one")
    made.arm()
    assert "watched.two" not in sys.modules
    assert seen.modules == []
    assert module.LATE == 1
    assert seen.modules == [module]
    assert seen.values == [1]


def test_a_lazy_loader_behind_us_stays_lazy(write: Any) -> None:
    write("one", SOURCE + "import watched.two\n")
    write("two")

    def find(path: Any) -> Any:
        spec = on_disk("watched.one")(path)
        spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec

    seen = Seen()
    made = watch(seen)
    Finds("watched.one", find, behind(made))
    module = importlib.import_module("watched.one")
    assert "watched.two" not in sys.modules
    assert seen.modules == []
    assert module.VALUE == 1
    made.arm()
    assert seen.modules == [module]


def test_a_module_of_a_class_that_is_only_called_lazy_counts_as_complete(write: Any) -> None:
    class _LazyModule(ModuleType):
        VALUE = 2

    loaded_by("made_up", _LazyModule, 3)
    seen = Seen()
    made = watch(seen, "made_up")
    importlib.import_module("made_up")
    made.arm()
    assert seen.values == [3, 3]


class Hostile:
    """Stands in the place of a module and answers no question about itself."""

    VALUE = 7

    @property
    def __spec__(self) -> Any:
        raise ZeroDivisionError


class HostileSpec:
    """Its spec answers no question."""

    class Spec:
        def __getattr__(self, name: str) -> Any:
            raise ZeroDivisionError

    __spec__ = Spec()


@pytest.mark.parametrize(
    "make",
    [
        object,
        Hostile,
        HostileSpec,
        mock.MagicMock,
        lambda: mock.MagicMock(__spec__=mock.MagicMock()),
    ],
    ids=["bare", "hostile", "hostile spec", "mock", "mock with a spec"],
)
def test_whatever_stands_in_the_place_of_a_module_counts_as_complete(
    write: Any, make: Callable[[], Any]
) -> None:
    stands = sys.modules["watched.one"] = make()
    seen: list[Any] = []
    watch(seen.append)
    assert len(seen) == 1
    assert seen[0] is stands


def test_a_search_in_another_thread_is_a_search_of_its_own(write: Any) -> None:
    write("one")
    path = importlib.import_module("watched").__path__
    made = watch(Seen())
    searching, go_on = threading.Event(), threading.Event()

    class Slow:
        def find_spec(self, *args: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                searching.set()
                assert go_on.wait(30)

    slow: Any = Slow()
    sys.meta_path.insert(behind(made), slow)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        other = pool.submit(made.find_spec, "watched.one", path)
        assert searching.wait(30)
        here = made.find_spec("watched.one", path)
        go_on.set()
        assert here is not None
        assert other.result(30) is not None


def test_an_alias_is_announced_under_the_name_it_was_searched_by(
    write: Any, records: Records
) -> None:
    write("one")
    path = importlib.import_module("watched").__path__
    seen = Seen()
    made = watch(seen, "alias")
    Finds("alias", lambda _: on_disk("watched.one")(path), behind(made))
    importlib.import_module("alias")
    assert seen.values == [1]
    assert records.errors == []


def test_a_loader_whose_module_keeps_another_loader_is_left_its_own(write: Any) -> None:
    mine: Any = object()

    def make(name: str) -> ModuleType:
        made = ModuleType(name)
        made.__loader__ = mine
        return made

    loaded_by("made_up", make, 3)
    seen = Seen()
    watch(seen, "made_up")
    assert importlib.import_module("made_up").__loader__ is mine
    assert seen.values == [3]


def test_disarming_takes_no_finder_from_an_import_that_goes_through_the_list() -> None:
    made = watch(Seen())
    under_way = iter(sys.meta_path)
    rest = list(sys.meta_path)[1:]
    assert next(under_way) is made
    made.disarm()
    assert list(under_way) == rest
