# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A wrapper is of its original's kind, shows its signature, and comes off again."""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from cam_hccl_plugin.patches.wrapping import Wrapped, is_wrapped, restore, wrap


def upstream() -> type:
    """A class with one attribute of each kind, fresh for each test."""

    class Plain:
        tag = "plain"

        def method(self, a: int, *, b: int = 2) -> Any:
            """Upstream's words."""
            return self, a, b

        @classmethod
        def class_method(cls, a: int, *, b: int = 2) -> Any:
            """Upstream's words."""
            return cls, a, b

        @staticmethod
        def static_method(a: int, *, b: int = 2) -> Any:
            """Upstream's words."""
            return None, a, b

    return Plain


KINDS = {"method": types.FunctionType, "class_method": classmethod, "static_method": staticmethod}
each_kind = pytest.mark.parametrize("name", list(KINDS))


class Calls:
    """An ``around`` that keeps its arguments and passes through."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []

    def __call__(
        self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.seen.append((args, kwargs))
        return call(*args, **kwargs)


@each_kind
def test_through_an_instance_arguments_and_result_are_the_same_objects(name: str) -> None:
    owner = upstream()
    plain, given = owner(), object()
    expected = getattr(plain, name)(given, b=plain)
    calls = Calls()
    wrap(owner, name, calls)
    result = getattr(plain, name)(given, b=plain)
    assert all(a is b for a, b in zip(result, expected, strict=True))
    assert calls.seen == [((given,), {"b": plain})]


@pytest.mark.parametrize("name", ["class_method", "static_method"])
def test_through_the_class_and_through_a_subclass(name: str) -> None:
    owner = upstream()
    child = type("Child", (owner,), {})
    expected = [getattr(c, name)(1) for c in (owner, child)]
    calls = Calls()
    wrap(owner, name, calls)
    assert [getattr(c, name)(1) for c in (owner, child)] == expected
    assert calls.seen == [((1,), {})] * 2


def test_a_method_called_through_its_class() -> None:
    owner = upstream()
    wrap(owner, "method", Calls())
    plain = owner()
    assert owner.method(plain, 1) == (plain, 1, 2)  # type: ignore[attr-defined]  # made above


def test_keywords_named_like_ours_reach_the_original() -> None:
    class Plain:
        def method(this, /, **kwargs: Any) -> Any:
            return kwargs

        @classmethod
        def class_method(klass, /, **kwargs: Any) -> Any:
            return kwargs

    given = {"self": 1, "cls": 2, "original": 3, "around": 4, "args": 5, "kwargs": 6}
    for name in ("method", "class_method"):
        wrap(Plain, name, Calls())
        assert getattr(Plain(), name)(**given) == given


@each_kind
def test_the_wrapper_is_of_the_same_kind_and_looks_like_the_original(name: str) -> None:
    owner = upstream()
    before = inspect.signature(getattr(owner, name))
    wrap(owner, name, Calls())
    assert type(vars(owner)[name]) is KINDS[name]
    wrapped = getattr(owner, name)
    assert inspect.signature(wrapped) == before
    assert (wrapped.__name__, wrapped.__doc__) == (name, "Upstream's words.")
    assert wrapped.__qualname__.endswith(f"Plain.{name}")
    assert wrapped.__module__ == __name__


@each_kind
def test_restoring_brings_the_identical_object_back(name: str) -> None:
    owner = upstream()
    original = vars(owner)[name]
    made = wrap(owner, name, Calls())
    assert vars(owner)[name] is made.wrapper
    assert made == Wrapped(owner, name, original, made.wrapper)
    assert restore([made]) == []
    assert vars(owner)[name] is original


@each_kind
def test_a_wrapper_on_top_of_ours_stays_and_is_remembered(name: str) -> None:
    owner = upstream()
    original = vars(owner)[name]
    made = wrap(owner, name, Calls())
    on_top = functools.wraps(getattr(owner, name))(lambda *args: None)
    setattr(owner, name, on_top)
    assert restore([made]) == [made]
    assert vars(owner)[name] is on_top
    setattr(owner, name, made.wrapper)  # its owner took it off again
    assert restore([made]) == []
    assert vars(owner)[name] is original


@each_kind
def test_ours_is_seen_at_any_depth_that_shows_what_it_wraps(name: str) -> None:
    owner, calls = upstream(), Calls()
    assert not is_wrapped(vars(owner)[name], calls)
    wrap(owner, name, calls)
    assert is_wrapped(vars(owner)[name], calls)
    twice = functools.wraps(getattr(owner, name))(lambda *args: None)
    assert is_wrapped(functools.wraps(twice)(lambda *args: None), calls)
    assert not is_wrapped(lambda *args: getattr(owner, name)(*args), calls)


@each_kind
def test_a_wrapper_of_another_installation_is_not_ours(name: str) -> None:
    owner, first, second = upstream(), Calls(), Calls()
    wrap(owner, name, first)
    assert not is_wrapped(vars(owner)[name], second)
    wrap(owner, name, second)
    assert is_wrapped(vars(owner)[name], first)
    assert is_wrapped(vars(owner)[name], second)


class Patch:
    """A patch as ours are: the callback is a method, a new object at each look."""

    def around(self, call: Any, args: Any, kwargs: Any) -> Any:
        return call(*args, **kwargs)


def test_a_method_of_the_same_patch_is_recognised() -> None:
    owner, patch = upstream(), Patch()
    wrap(owner, "method", patch.around)
    assert is_wrapped(vars(owner)["method"], patch.around)
    assert not is_wrapped(vars(owner)["method"], Patch().around)


def endless() -> Any:
    function: Any = lambda: None  # noqa: E731 - takes attributes
    function.__wrapped__ = function
    return function


@pytest.mark.parametrize(
    "other",
    [None, 3, "text", object(), print, functools.partial(print), mock.Mock(), mock.call, endless()],
    ids=["none", "int", "str", "object", "print", "partial", "mock", "mock.call", "endless"],
)
def test_what_is_not_ours_is_not_ours(other: Any) -> None:
    assert not is_wrapped(other, Calls())


class Foreign:
    """Another plugin's wrapper: a descriptor that hides behind what it wraps."""

    def __init__(self, inner: Any, seen: list[Any]) -> None:
        self.__wrapped__ = inner
        self._seen = seen

    @property  # type: ignore[misc]  # proxies of wrapping libraries do the same
    def __class__(self) -> type:
        return type(self.__wrapped__)

    @property
    def __func__(self) -> Any:
        return self.__wrapped__.__func__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        bound = self.__wrapped__.__get__(instance, owner)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._seen.append(instance if instance is not None else owner)
            return bound(*args, **kwargs)

        return call


class Unnamed:
    """A descriptor that says nothing of what it wraps, and leaves the binding to it."""

    def __init__(self, inner: Any, seen: list[Any]) -> None:
        self._inner = inner
        self._seen = seen

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        self._seen.append(instance if instance is not None else owner)
        return self._inner.__get__(instance, owner)


@pytest.mark.parametrize("kind", [Foreign, Unnamed])
@pytest.mark.parametrize("name", list(KINDS))
def test_a_foreign_wrapper_below_ours_still_runs_with_its_own_binding(
    kind: Callable[[Any, list[Any]], Any], name: str
) -> None:
    owner = upstream()
    plain = owner()
    expected = getattr(plain, name)(1)
    seen: list[Any] = []
    original = kind(vars(owner)[name], seen)
    setattr(owner, name, original)
    calls = Calls()
    made = wrap(owner, name, calls)
    assert getattr(plain, name)(1) == expected
    if name != "method":
        assert getattr(owner, name)(1) == ((owner if name == "class_method" else None), 1, 2)
        assert seen == [plain, owner]
    assert calls.seen[0] == ((1,), {})
    assert is_wrapped(vars(owner)[name], calls)
    assert restore([made]) == []
    assert vars(owner)[name] is original


def test_a_partial_method_over_a_class_method_below_ours() -> None:
    owner: Any = upstream()
    owner.class_method = functools.partialmethod(vars(owner)["class_method"], b=5)
    wrap(owner, "class_method", Calls())
    assert owner.class_method(1) == (owner, 1, 5)
    assert owner().class_method(a=1) == (owner, 1, 5)
    assert vars(owner)["class_method"].keywords == {"b": 5}


@each_kind
def test_an_autospec_double_below_ours_answers_as_itself(name: str) -> None:
    owner: Any = upstream()
    with mock.patch.object(owner, name, autospec=True, return_value="double"):
        calls = Calls()
        made = wrap(owner, name, calls)
        assert getattr(owner(), name)(1) == "double"
        assert len(calls.seen) == 1
        assert made.restore()


def test_a_copy_of_an_unknown_descriptors_wrapper_is_no_endless_search() -> None:
    owner: Any = upstream()
    owner.method = Unnamed(vars(owner)["method"], [])
    wrap(owner, "method", Calls())
    copied = copy.copy(vars(owner)["method"])
    plain = owner()
    assert copied.__get__(plain, owner)(1) == (plain, 1, 2)
    with pytest.raises(AttributeError):
        copied.nothing_of_the_kind  # noqa: B018 - the access is the test


def test_a_callable_that_does_not_bind_is_called_without_the_instance() -> None:
    owner: Any = type("Owner", (), {"make": dict})
    wrap(owner, "make", Calls())
    assert owner().make(b=2) == owner.make(b=2) == {"b": 2}


class TestModule:
    def test_a_function_of_a_module(self) -> None:
        module: Any = types.ModuleType("upstream")
        module.create = original = upstream().static_method  # type: ignore[attr-defined]  # made there
        calls = Calls()
        made = wrap(module, "create", calls)
        given = object()
        assert module.create(given, b=3) == (None, given, 3)
        assert calls.seen == [((given,), {"b": 3})]
        assert type(module.create) is types.FunctionType
        assert inspect.signature(module.create) == inspect.signature(original)
        assert restore([made]) == []
        assert module.create is original

    def test_a_callable_object_in_a_module(self) -> None:
        module: Any = types.ModuleType("upstream")
        module.create = functools.partial(dict, a=1)
        wrap(module, "create", Calls())
        assert module.create(b=2) == {"a": 1, "b": 2}

    def test_exceptions_pass_through(self) -> None:
        module: Any = types.ModuleType("upstream")
        error = ValueError("upstream's own")

        def create() -> None:
            raise error

        module.create = create
        wrap(module, "create", Calls())
        with pytest.raises(ValueError, match="upstream's own") as caught:
            module.create()
        assert caught.value is error
