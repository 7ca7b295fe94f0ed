# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Told when a module has been imported; nothing of the import itself changes."""

from __future__ import annotations

import concurrent.futures
import copy
import importlib
import importlib.util
import inspect
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import Records, forget

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


class Finds:
    """A finder of one module, in front of all others or at ``place``."""

    def __init__(self, name: str, find: Callable[[], Any], place: int = 0) -> None:
        self._name = name
        self._find = find
        self._finding = False
        self.asked: list[str] = []
        finder: Any = self
        sys.meta_path.insert(place, finder)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name or self._finding:
            return None
        self.asked.append(name)
        self._finding = True
        try:
            return self._find()
        finally:
            self._finding = False


def loaded_by(name: str, make: Callable[[str], ModuleType], value: int) -> Finds:
    """A finder whose loader makes its module itself and gives it a ``VALUE``."""

    class Loader:
        def create_module(self, spec: Any) -> ModuleType:
            return make(spec.name)

        def exec_module(self, module: Any) -> None:
            module.VALUE = value

    loader: Any = Loader()
    return Finds(name, lambda: importlib.util.spec_from_loader(name, loader))


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
    finder = Finds("watched.one", lambda: importlib.util.find_spec("watched.one"))
    importlib.import_module("watched.one")
    assert finder.asked == ["watched.one"]
    assert seen.values == [1]


def test_finders_in_front_are_not_asked_again(write: Any) -> None:
    write("one")
    seen = Seen()
    watch(seen)
    finder = Finds("watched.one", lambda: None)
    importlib.import_module("watched.one")
    assert finder.asked == ["watched.one"]
    assert seen.values == [1]


def test_a_finder_without_find_spec_is_passed_over(write: Any) -> None:
    write("one")
    path = importlib.import_module("watched").__path__
    made = watch(Seen())
    old: Any = object()
    sys.meta_path.insert(sys.meta_path.index(made) + 1, old)  # type: ignore[arg-type]  # as a finder
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
    behind = sys.meta_path.index(made) + 1  # type: ignore[arg-type]  # as a finder
    Finds("watched.one", lambda: importlib.util.find_spec("watched.one"), behind)
    importlib.import_module("watched.one")
    assert seen.values == [1]


def test_a_finder_that_keeps_its_specs_gets_one_announcement(write: Any) -> None:
    write("one")
    kept = importlib.util.find_spec("watched.one")
    Finds("watched.one", lambda: kept)
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
    for copied in (copy.copy(spec), copy.deepcopy(spec.loader.loader)):  # type: ignore[union-attr]  # ours
        assert copied is not None
    assert copy.copy(spec.loader).get_source("watched.one") == SOURCE  # type: ignore[union-attr]  # ours


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

    def __init__(self, write: Any, source: str = "") -> None:
        self.middle, self.go_on = threading.Event(), threading.Event()
        package: Any = importlib.import_module("watched")
        package.middle, package.go_on = self.middle, self.go_on
        wait = "import watched\nwatched.middle.set()\nassert watched.go_on.wait(30)\n"
        write("one", wait + source + SOURCE.replace('"""Words."""\n', ""))
        write("two")
        write("three")

    def __enter__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._import = self._pool.submit(importlib.import_module, "watched.one")
        assert self.middle.wait(30)

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._pool.shutdown()
        self.error = self._import.exception()


def test_a_module_that_another_thread_still_runs_is_announced_when_it_is_complete(
    write: Any,
) -> None:
    seen = Seen()
    with Paused(write):
        watch(seen)
        importlib.import_module("watched.two")
        assert seen.modules == []
    importlib.import_module("watched.three")
    assert seen.modules == [sys.modules["watched.one"]]
    assert seen.values == [1]


def test_arming_again_while_a_watched_import_is_under_way_announces_once(write: Any) -> None:
    seen = Seen()
    made = watch(seen)
    with Paused(write):
        made.arm()
    importlib.import_module("watched.two")
    assert seen.values == [1]


def test_a_module_that_replaced_itself_but_still_runs_is_not_announced_yet(write: Any) -> None:
    replaced = "import sys, types\nsys.modules[__name__] = types.SimpleNamespace(VALUE=5)\n"
    write("one", replaced + "import watched.two\nsys.modules[__name__].VALUE = 6\n")
    write("two")
    seen = Seen()
    watch(seen)
    importlib.import_module("watched.one")
    assert seen.values == [6]


def test_arming_from_within_the_modules_own_code_announces_it_complete(write: Any) -> None:
    package: Any = importlib.import_module("watched")
    seen = Seen()
    package.arm = lambda: watch(seen)
    write("one", "import watched\nwatched.arm()\n" + SOURCE)
    write("two")
    importlib.import_module("watched.one")
    assert seen.modules == []
    importlib.import_module("watched.two")
    assert seen.values == [1]


def test_a_module_that_is_half_run_and_then_fails_is_never_announced(write: Any) -> None:
    seen = Seen()
    paused = Paused(write, "raise ZeroDivisionError\n")
    with paused:
        watch(seen)
    assert isinstance(paused.error, ZeroDivisionError)
    importlib.import_module("watched.two")
    assert seen.modules == []


def test_a_module_that_a_finder_in_front_found_is_announced_with_the_next_import(
    write: Any,
) -> None:
    write("one")
    write("two")
    write("three")
    seen = Seen()
    watch(seen)
    path = importlib.import_module("watched").__path__
    Finds("watched.one", lambda: PathFinder.find_spec("watched.one", path))
    module = importlib.import_module("watched.one")
    assert seen.modules == []
    for name in ("two", "three"):
        importlib.import_module(f"watched.{name}")
        assert seen.modules == [module]


def test_a_module_imported_anew_past_us_is_announced_anew(write: Any) -> None:
    write("one")
    write("two")
    seen = Seen()
    watch(seen)
    first = importlib.import_module("watched.one")
    again = sys.modules["watched.one"] = ModuleType("watched.one")
    importlib.import_module("watched.two")
    assert seen.modules == [first, again]


@pytest.mark.parametrize("past_us", [True, False])
def test_a_lazy_module_stays_lazy_and_is_announced_once_it_ran(write: Any, past_us: bool) -> None:
    for name in ("one", "two", "three"):
        write(name)
    path = importlib.import_module("watched").__path__

    def find() -> Any:
        found = PathFinder.find_spec("watched.one", path)
        spec: Any = found if past_us else importlib.util.find_spec("watched.one")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec

    seen = Seen()
    watch(seen)
    Finds("watched.one", find)
    module = importlib.import_module("watched.one")
    importlib.import_module("watched.two")
    assert seen.modules == []
    assert module.VALUE == 1
    importlib.import_module("watched.three")
    assert seen.modules == [module]
    assert seen.values == [1]


def test_a_disarmed_watch_does_not_look_for_what_came_past(write: Any) -> None:
    write("one")
    seen = Seen()
    made = watch(seen)
    made.disarm()
    importlib.import_module("watched.one")
    assert made.find_spec("watched.two") is None
    assert seen.modules == []


def test_whatever_stands_in_the_place_of_a_module_counts_as_complete(write: Any) -> None:
    class Hostile:
        VALUE = 7

        @property
        def __spec__(self) -> Any:
            raise ZeroDivisionError

    for stands in (object(), Hostile()):
        sys.modules["watched.one"] = stands  # type: ignore[assignment]  # anything may be there
        seen = Seen()
        watch(seen)
        assert seen.modules == [stands]


def test_threads_that_arm_and_import_at_once(write: Any) -> None:
    """Whatever the order, nothing is announced half-run: some threads arm in the middle."""
    write("one", "import time\ntime.sleep(0.05)\n" + SOURCE.splitlines()[-1])
    seen = Seen()
    made = ImportWatch({"watched.one": seen})
    start = threading.Barrier(8)

    def work(place: int) -> None:
        start.wait()
        time.sleep(place * 0.01)
        made.arm()
        importlib.import_module("watched.one")

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, place) for place in range(8)]:
            done.result(timeout=30)
    assert set(seen.values) == {1}
    assert sys.modules["watched.one"] in seen.modules
