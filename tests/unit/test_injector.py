# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Sizes reach the HCCL groups of a CAM connector, and nothing else.

Every promise runs against both generations of the seam double. An ``injects`` test has
``leaves_alone`` twins, in which the arguments of upstream's function are the very objects
that the connector passed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from conftest import Records, Stack
from fakes import GENERIC, Options, async_config, camp2p_config, vllm_config

from cam_hccl_plugin.errors import InjectionError, PlanError, SeamError

SUBCLASS = """
from afd_plugin.connectors.npu.{module} import {base}
class {name}({base}):
    pass
"""


def spy(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> list[dict[str, Any]]:
    """Record what a connector module hands to its binding, before the plugin sees it."""
    calls: list[dict[str, Any]] = []
    inner = module.init_afd_process_group

    def init_afd_process_group(
        *, backend: Any, rank: Any, group_name: Any, pg_options: Any = None, **rest: Any
    ) -> Any:
        given = {"backend": backend, "rank": rank, "group_name": group_name, **rest}
        calls.append({**given, "pg_options": pg_options})
        return inner(**given, pg_options=pg_options)

    monkeypatch.setattr(module, "init_afd_process_group", init_afd_process_group)
    return calls


def direct(stack: Stack, module: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Call a connector module's binding by hand: what was given, and what arrived."""
    given = {
        "backend": "hccl",
        "init_method": "tcp://127.0.0.1:1",
        "world_size": 2,
        "rank": 0,
        "group_name": f"by_hand_{len(stack.groups.calls)}",
        "timeout": timedelta(seconds=7),
        "pg_options": Options(),
        **changes,
    }
    if stack.generation == "b":
        given["on_rendezvous"] = lambda store: None
    stack.module(module).init_afd_process_group(**given)
    return given, stack.groups.calls[-1]


def assert_identical(given: dict[str, Any], arrived: dict[str, Any]) -> None:
    assert list(arrived) == list(given)
    for key, value in given.items():
        assert arrived[key] is value


EXPECTED = [
    (async_config, "attention", {}, {"afd_async_cam": 139}),
    (async_config, "ffn", {}, {"afd_async_cam": 113}),
    (camp2p_config, "attention", {}, {"afd": 4, "p2p": None}),
    (camp2p_config, "ffn", {}, {"afd": 52, "afd_moe": 52, "p2p": None}),
    (camp2p_config, "attention", {"ubatches": 2}, {"afd": 4, "afd1": 4, "p2p": None}),
    (
        camp2p_config,
        "ffn",
        {"ubatches": 2},
        {"afd": 52, "afd1": 52, "afd_moe": 52, "p2p": None},
    ),
]
every_connector_and_role = pytest.mark.parametrize(("make", "role", "changes", "sizes"), EXPECTED)


@every_connector_and_role
def test_a_start_injects_the_roles_size(
    stack: Stack,
    make: Callable[..., Any],
    role: str,
    changes: dict[str, Any],
    sizes: dict[str, int | None],
) -> None:
    connector = stack.start(make(role, **changes))
    assert stack.groups.sizes == sizes
    assert connector.is_initialized


@every_connector_and_role
@pytest.mark.parametrize("flag", [None, {"enabled": False}])
def test_a_start_without_the_flag_leaves_everything_alone(
    stack: Stack,
    make: Callable[..., Any],
    role: str,
    changes: dict[str, Any],
    sizes: dict[str, int | None],
    flag: Any,
) -> None:
    connector = stack.start(make(role, **changes, flag=flag))
    assert stack.groups.sizes == dict.fromkeys(sizes)
    assert "init_afd_connector" not in vars(connector)


def test_what_else_the_connector_passes_arrives_untouched(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = stack.create(camp2p_config("ffn"))
    calls = spy(monkeypatch, stack.module("connectors.npu.camp2p"))
    connector.init_afd_connector()
    assert len(calls) == 3
    for given, arrived in zip(calls, stack.groups.calls, strict=True):
        assert given["pg_options"] is None
        for key in set(given) - {"pg_options"}:
            assert arrived[key] is given[key]


@pytest.mark.parametrize("module", ["connectors.npu.async_cam", "connectors.npu.camp2p"])
def test_a_call_outside_of_an_init_is_left_alone(stack: Stack, module: str) -> None:
    make = async_config if module.endswith("async_cam") else camp2p_config
    stack.create(make())
    assert_identical(*direct(stack, module))
    stack.start(make())
    assert_identical(*direct(stack, module))


def test_a_gloo_group_inside_of_an_init_is_left_alone(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = stack.create(camp2p_config())
    calls = spy(monkeypatch, stack.module("connectors.npu.camp2p"))
    connector.init_afd_connector()
    assert calls[-1]["backend"] == "gloo"
    arrived = stack.groups.calls[-1]
    for key, value in calls[-1].items():
        assert arrived[key] is value


def test_a_p2p_nccl_connector_is_left_alone(stack: Stack, records: Records) -> None:
    connector = stack.start(vllm_config(connector="P2pNcclAFDConnector", flag={}))
    assert stack.groups.sizes == {"afd": None, "p2p": None}
    assert "init_afd_connector" not in vars(connector)
    p2p = stack.module("connectors.gpu.p2p")
    made = stack.module("distributed.afd_process_group")
    assert p2p.init_afd_process_group is made.init_afd_process_group
    assert any("not CAM-type" in line for line in records.infos)


def test_a_groups_own_options_are_fresh(stack: Stack) -> None:
    stack.start(camp2p_config("ffn", ubatches=2))
    given = [call["pg_options"] for call in stack.groups.calls if call["backend"] == "hccl"]
    assert len({id(options) for options in given}) == 3


class TestCallersOptions:
    def test_an_explicit_size_is_left_alone(
        self, stack_b: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flag = {"buffer_size_mb": 300, "group_buffer_size_mb": {"afd_async_cam": 400}}
        connector = stack_b.create(async_config(flag=flag, extra={"hccl_buffer_size": 512}))
        calls = spy(monkeypatch, stack_b.module("connectors.npu.async_cam"))
        connector.init_afd_connector()
        assert stack_b.groups.sizes == {"afd_async_cam": 512}
        assert stack_b.groups.calls[0]["pg_options"] is calls[0]["pg_options"]

    @pytest.mark.parametrize("flag", [{}, {"buffer_size_mb": 300}])
    def test_every_group_of_camp2p_keeps_an_explicit_size(self, stack_b: Stack, flag: Any) -> None:
        stack_b.start(camp2p_config("ffn", flag=flag, extra={"hccl_buffer_size": 512}))
        assert stack_b.groups.sizes == {"afd": 512, "afd_moe": 512, "p2p": None}

    def test_a_smaller_explicit_size_warns(self, stack_b: Stack, records: Records) -> None:
        stack_b.start(async_config(extra={"hccl_buffer_size": 130}))
        (smaller,) = [w for w in records.warnings if "smaller than the derived" in w]
        assert "130 MB" in smaller
        assert "139 MB" in smaller

    def test_other_options_are_merged_into_a_fresh_object(self, stack: Stack) -> None:
        module = stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        caller = Options()
        caller.hccl_config = {"hccl_op_expansion_mode": 3}
        caller.is_high_priority_stream = True
        before = (dict(vars(caller)), dict(caller.hccl_config))
        module.CAMOtherConnector.pg_options = {"one": caller}
        stack.start(vllm_config(connector="CAMOtherConnector", flag={}))
        given = stack.groups.calls[0]["pg_options"]
        assert given is not caller
        assert given.hccl_config == {"hccl_op_expansion_mode": 3, "hccl_buffer_size": 139}
        assert given.is_high_priority_stream is True
        assert (vars(caller), caller.hccl_config) == before

    def test_a_size_that_the_connector_keeps_to_itself_is_not_called_the_callers(
        self, stack_b: Stack, records: Records
    ) -> None:
        stack_b.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        extra = {"hccl_buffer_size": 512}
        stack_b.start(vllm_config(connector="CAMOtherConnector", flag={}, extra=extra))
        assert stack_b.groups.sizes["one"] == 139
        (line,) = [i for i in records.infos if "groups=" in i]
        assert "one=139MB(derived)" in line

    @pytest.mark.parametrize("flag", [{}, {"buffer_size_mb": 5}])
    @pytest.mark.parametrize("options", [{"hccl_buffer_size": 5}, 5, object()])
    def test_options_of_another_type_stop_the_start(
        self, stack: Stack, flag: Any, options: Any
    ) -> None:
        module = stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        module.CAMOtherConnector.pg_options = {"one": options}
        with pytest.raises(InjectionError, match=type(options).__qualname__):
            stack.start(vllm_config(connector="CAMOtherConnector", flag=flag))
        assert stack.groups.calls == []

    def test_options_of_another_type_stop_the_start_of_a_group_left_alone_too(
        self, stack: Stack
    ) -> None:
        module = stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        module.CAMOtherConnector.pg_options = {"one": {}}
        flag = {"group_buffer_size_mb": {"one": None}}
        with pytest.raises(InjectionError, match="dict"):
            stack.start(vllm_config(connector="CAMOtherConnector", flag=flag))

    def test_options_of_another_type_for_gloo_are_left_alone(self, stack: Stack) -> None:
        module = stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        options = object()
        module.CAMOtherConnector.pg_options = {"talk": options}
        stack.start(vllm_config(connector="CAMOtherConnector", flag={}))
        assert stack.groups.calls[-1]["pg_options"] is options


class TestGroupsLeftAlone:
    FLAG: dict[str, Any] = {"group_buffer_size_mb": {"afd_moe": None}}  # noqa: RUF012 - read only

    def test_null_leaves_a_group_alone_and_sizes_the_others(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connector = stack.create(camp2p_config("ffn", flag=self.FLAG))
        calls = spy(monkeypatch, stack.module("connectors.npu.camp2p"))
        connector.init_afd_connector()
        assert stack.groups.sizes == {"afd": 52, "afd_moe": None, "p2p": None}
        for key, value in calls[1].items():
            assert stack.groups.calls[1][key] is value

    def test_a_group_left_alone_counts_as_gone_through(self, stack: Stack) -> None:
        flag = {"group_buffer_size_mb": {"afd_async_cam": None}}
        stack.start(async_config(flag=flag))
        assert stack.groups.sizes == {"afd_async_cam": None}

    @pytest.mark.parametrize(("raw", "effective"), [(None, 200), ("4096", 4096)])
    def test_the_line_counts_what_the_environment_gives(
        self,
        stack: Stack,
        records: Records,
        monkeypatch: pytest.MonkeyPatch,
        raw: str | None,
        effective: int,
    ) -> None:
        if raw:
            monkeypatch.setenv("HCCL_BUFFSIZE", raw)
        stack.start(camp2p_config("ffn", flag=self.FLAG))
        (line,) = [i for i in records.infos if "groups=" in i]
        assert f"afd_moe={effective}MB" in line
        assert f"device_memory={2 * (52 + effective)}MB" in line

    def test_the_line_counts_what_the_callers_own_options_give(
        self, stack: Stack, records: Records
    ) -> None:
        module = stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        caller = Options()
        caller.hccl_config = {"hccl_buffer_size": 512}
        module.CAMOtherConnector.pg_options = {"one": caller}
        flag = {"group_buffer_size_mb": {"one": None}}
        stack.start(vllm_config(connector="CAMOtherConnector", flag=flag))
        assert stack.groups.calls[0]["pg_options"] is caller
        (line,) = [i for i in records.infos if "groups=" in i]
        assert "one=512MB" in line


class TestOtherConnectors:
    @pytest.mark.parametrize(
        ("module", "base", "make", "sizes"),
        [
            ("async_cam", "CAMAsyncAFDConnector", async_config, {"afd_async_cam": 139}),
            ("camp2p", "CAMP2pAFDConnector", camp2p_config, {"afd": 4, "p2p": None}),
        ],
    )
    def test_a_subclass_of_a_known_connector_injects_its_parents_sizes(
        self, stack: Stack, module: str, base: str, make: Any, sizes: dict[str, int | None]
    ) -> None:
        source = SUBCLASS.format(module=module, base=base, name="MyConnector")
        stack.write_connector("my_connectors", "MyConnector", source)
        stack.start(make(connector="MyConnector"))
        assert stack.groups.sizes == sizes

    @pytest.mark.parametrize(("role", "size"), [("attention", 139), ("ffn", 1690)])
    def test_another_cam_class_injects_the_published_size_into_every_hccl_group(
        self, stack: Stack, records: Records, role: str, size: int
    ) -> None:
        # FFN: 16 * 12288 * 8192 tokens, undivided, is 1536 MiB; 1.1 of it 1689.6.
        stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        stack.start(vllm_config(connector="CAMOtherConnector", role=role, flag={}))
        assert stack.groups.sizes == {"one": size, "two": size, "talk": None}
        assert len([i for i in records.infos if "operator need unknown" in i]) == 1

    def test_another_cam_class_with_sizing_operator_stops_the_start(self, stack: Stack) -> None:
        stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        with pytest.raises(PlanError, match="operator"):
            stack.create(vllm_config(connector="CAMOtherConnector", flag={"sizing": "operator"}))

    def test_another_cam_class_takes_sizes_by_group_name(self, stack: Stack) -> None:
        stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        flag = {"group_buffer_size_mb": {"two": 7}}
        stack.start(vllm_config(connector="CAMOtherConnector", flag=flag))
        assert stack.groups.sizes == {"one": 139, "two": 7, "talk": None}

    def test_a_group_name_that_it_did_not_create_is_an_error_after_init(self, stack: Stack) -> None:
        stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        flag = {"group_buffer_size_mb": {"three": 7, "two": 8}}
        connector = stack.create(vllm_config(connector="CAMOtherConnector", flag=flag))
        with pytest.raises(PlanError) as caught:
            connector.init_afd_connector()
        for words in ("three", "one, two", "CAMOtherConnector"):
            assert words in str(caught.value)

    def test_an_alias_of_the_function_injects_as_well(self, stack: Stack) -> None:
        source = GENERIC.replace(
            "import init_afd_process_group", "import init_afd_process_group as make_group"
        ).replace("= init_afd_process_group(", "= make_group(")
        stack.write_connector("my_connectors", "CAMOtherConnector", source)
        stack.start(vllm_config(connector="CAMOtherConnector", flag={}))
        assert stack.groups.sizes["one"] == 139

    def test_a_state_that_is_a_method_injects_as_well(self, stack: Stack) -> None:
        source = GENERIC + "\n    def is_initialized(self):\n        return self._initialized\n"
        stack.write_connector("my_connectors", "CAMOtherConnector", source)
        connector = stack.start(vllm_config(connector="CAMOtherConnector", flag={}))
        assert stack.groups.sizes == {"one": 139, "two": 139, "talk": None}
        with pytest.raises(RuntimeError, match="exists already"):
            connector.init_afd_connector()  # initialised: upstream's own affair, as without us

    def test_a_connector_that_keeps_no_configuration_injects_as_well(self, stack: Stack) -> None:
        source = GENERIC + (
            "\n    def __init__(self, *args):\n"
            "        super().__init__(*args)\n"
            "        self.vllm_config = None\n"
        )
        stack.write_connector("my_connectors", "CAMOtherConnector", source)
        stack.start(vllm_config(connector="CAMOtherConnector", flag={}))
        assert stack.groups.sizes == {"one": 139, "two": 139, "talk": None}

    def test_a_nested_connector_injects_its_own_sizes(self, stack: Stack) -> None:
        stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        outer = stack.create(vllm_config(connector="CAMOtherConnector", flag={}))
        inner = stack.create(camp2p_config("ffn"))
        nested: list[int] = []

        def nest(kwargs: dict[str, Any]) -> None:
            if kwargs["group_name"] == "two" and not nested:
                nested.append(1)
                inner.init_afd_connector()

        stack.groups.before_create = nest
        outer.init_afd_connector()
        assert stack.groups.sizes == {
            "one": 139,
            "two": 139,
            "afd": 52,
            "afd_moe": 52,
            "p2p": None,
            "talk": None,
        }

    def test_a_p2p_connector_that_starts_inside_of_a_cam_connectors_init_is_left_alone(
        self, stack: Stack
    ) -> None:
        module = stack.write_connector("my_connectors", "CAMOtherConnector", GENERIC)
        outer = stack.create(vllm_config(connector="CAMOtherConnector", flag={}))
        inner = stack.create(vllm_config(connector="P2pNcclAFDConnector", flag={}))
        module.CAMOtherConnector.wanted = [("one", "hccl")]

        def nest(kwargs: dict[str, Any]) -> None:
            if kwargs["group_name"] == "one":
                inner.init_afd_connector()

        stack.groups.before_create = nest
        outer.init_afd_connector()
        assert stack.groups.sizes == {"one": 139, "afd": None, "p2p": None}


class TestReadBack:
    @pytest.mark.parametrize("held", [{}, {"hccl_buffer_size": 138}, {"hccl_buffer_size": "139"}])
    def test_another_size_than_planned_is_an_error_and_closes_the_group(
        self, stack: Stack, held: dict[str, Any]
    ) -> None:
        stack.groups.tamper = lambda options: setattr(options, "hccl_config", held)
        connector = stack.create(async_config())
        with pytest.raises(InjectionError) as caught:
            connector.init_afd_connector()
        for words in ("afd_async_cam", "139 MB", repr(held.get("hccl_buffer_size"))):
            assert words in str(caught.value)
        assert stack.groups.destroyed == ["afd_async_cam"]
        assert stack.groups.alive == []
        assert not connector.is_initialized

    def test_an_explicit_size_is_read_back_too(self, stack_b: Stack) -> None:
        stack_b.groups.tamper = lambda options: setattr(options, "hccl_config", {})
        with pytest.raises(InjectionError, match="512 MB"):
            stack_b.start(async_config(extra={"hccl_buffer_size": 512}))
        assert stack_b.groups.destroyed == ["afd_async_cam"]

    def test_a_group_that_cannot_be_asked_is_an_error_and_closed(self, stack: Stack) -> None:
        def tamper(options: Options) -> None:
            del options.hccl_config

        stack.groups.tamper = tamper
        with pytest.raises(InjectionError, match="cannot read back"):
            stack.start(async_config())
        assert stack.groups.destroyed == ["afd_async_cam"]


class TestSeam:
    def test_no_hccl_group_through_the_hook_stops_the_start(self, stack: Stack) -> None:
        source = GENERIC.replace('("one", "hccl"), ("two", "npu:hccl"), ', "")
        stack.write_connector("my_connectors", "CAMOtherConnector", source)
        connector = stack.create(vllm_config(connector="CAMOtherConnector", flag={}))
        with pytest.raises(SeamError) as caught:
            connector.init_afd_connector()
        for words in ("CAMOtherConnector", "0.0.0+double", "init_afd_process_group"):
            assert words in str(caught.value)

    def test_a_connector_that_goes_another_way_stops_the_start(self, stack: Stack) -> None:
        source = SUBCLASS.format(
            module="async_cam", base="CAMAsyncAFDConnector", name="MyConnector"
        )
        source += """
    def init_afd_connector(self):
        from afd_plugin.distributed import afd_process_group
        afd_process_group.create_group(backend="hccl", group_name="afd_async_cam", rank=0)
"""
        stack.write_connector("my_connectors", "MyConnector", source)
        connector = stack.create(async_config(connector="MyConnector"))
        with pytest.raises(SeamError, match="no HCCL group went through"):
            connector.init_afd_connector()

    def test_a_module_without_the_function_stops_the_start_before_any_group(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = stack.module("connectors.npu.async_cam")
        monkeypatch.delattr(module, "init_afd_process_group")
        with pytest.raises(SeamError) as caught:
            stack.create(async_config())
        for words in ("init_afd_process_group", "connectors.npu.async_cam", "0.0.0+double"):
            assert words in str(caught.value)
        stack.create(async_config(flag=None))

    @pytest.mark.parametrize("missing", ["backend", "rank", "group_name", "pg_options"])
    def test_a_function_that_lacks_a_parameter_stops_the_start_before_any_group(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch, missing: str
    ) -> None:
        names = [n for n in ("backend", "rank", "group_name", "pg_options") if n != missing]
        namespace: dict[str, Any] = {}
        exec(f"def init_afd_process_group(*, {', '.join(names)}): ...", namespace)
        module = stack.module("connectors.npu.async_cam")
        moved = namespace["init_afd_process_group"]
        monkeypatch.setattr(module, "init_afd_process_group", moved)
        with pytest.raises(SeamError) as caught:
            stack.create(async_config())
        for words in (missing, ", ".join(names), "0.0.0+double", "enabled"):
            assert words in str(caught.value)
        assert module.init_afd_process_group is moved

    def test_a_function_that_takes_more_is_as_good(
        self, stack: Stack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = stack.module("connectors.npu.async_cam")
        seen: dict[str, Any] = {}

        def init_afd_process_group(
            *,
            backend: str,
            rank: int,
            group_name: str,
            pg_options: Any = None,
            colour: int = 3,
            **rest: Any,
        ) -> Any:
            seen.update(rest, colour=colour)
            return stack.groups.create(
                backend=backend, rank=rank, group_name=group_name, pg_options=pg_options
            )

        monkeypatch.setattr(module, "init_afd_process_group", init_afd_process_group)
        stack.start(async_config())
        assert stack.groups.sizes == {"afd_async_cam": 139}
        assert seen["colour"] == 3
        assert seen["world_size"] == 32

    @pytest.mark.parametrize("missing", ["backend", "rank", "group_name"])
    def test_a_call_without_a_keyword_that_is_relied_on_stops_the_start(
        self, stack: Stack, missing: str
    ) -> None:
        source = GENERIC
        for old in ("backend=backend, ", "rank=self.role_rank, ", "group_name=name, "):
            if old.startswith(missing):
                assert old in source
                source = source.replace(old, "")
        module = stack.write_connector("my_connectors", "CAMOtherConnector", source)
        inner = module.init_afd_process_group

        def init_afd_process_group(
            *,
            backend: Any = None,
            rank: Any = None,
            group_name: Any = None,
            pg_options: Any = None,
            **rest: Any,
        ) -> Any:
            return inner

        module.init_afd_process_group = init_afd_process_group  # type: ignore[attr-defined]  # module
        with pytest.raises(SeamError, match=missing):
            stack.start(vllm_config(connector="CAMOtherConnector", flag={}))

    def test_a_connector_without_the_init_method_stops_the_start(self, stack: Stack) -> None:
        source = GENERIC.replace("def init_afd_connector", "def init_everything")
        source += "    init_afd_connector = None\n"
        stack.write_connector("my_connectors", "CAMOtherConnector", source)
        with pytest.raises(SeamError, match="init_afd_connector"):
            stack.create(vllm_config(connector="CAMOtherConnector", flag={}))

    def test_a_connector_that_initialises_in_its_constructor_stops_the_start(
        self, stack: Stack
    ) -> None:
        source = GENERIC + (
            "\n    def __init__(self, *args):\n"
            "        super().__init__(*args)\n"
            "        self.init_afd_connector()\n"
        )
        stack.write_connector("my_connectors", "CAMOtherConnector", source)
        with pytest.raises(SeamError, match="constructor"):
            stack.create(vllm_config(connector="CAMOtherConnector", flag={}))
        stack.groups.alive.clear()
        stack.create(vllm_config(connector="CAMOtherConnector"))

    @pytest.mark.parametrize("error", ["AttributeError", "TypeError"])
    def test_a_connector_whose_init_cannot_be_replaced_stops_the_start(
        self, stack: Stack, error: str
    ) -> None:
        source = GENERIC + (
            "\n    def __setattr__(self, name, value):\n"
            "        if name == 'init_afd_connector':\n"
            f"            raise {error}('frozen')\n"
            "        super().__setattr__(name, value)\n"
        )
        stack.write_connector("my_connectors", "CAMOtherConnector", source)
        with pytest.raises(SeamError, match=f"init_afd_connector, found {error}: frozen"):
            stack.create(vllm_config(connector="CAMOtherConnector", flag={}))

    @pytest.mark.parametrize("own_is_good", [True, False])
    def test_a_refused_connector_leaves_no_binding_patched(
        self, stack: Stack, own_is_good: bool
    ) -> None:
        good = "from afd_plugin.distributed import init_afd_process_group\n"
        bad = "def init_afd_process_group(*, backend, rank, group_name): ...\n"
        base_source = GENERIC + ("" if not own_is_good else bad)
        (stack._tmp_path / "my_base.py").write_text(base_source, encoding="utf-8")
        source = "from my_base import CAMOtherConnector\n" + (good if own_is_good else bad)
        source += "class CAMMine(CAMOtherConnector):\n    pass\n"
        module = stack.write_connector("my_connectors", "CAMMine", source)
        base = __import__("my_base")
        before = (module.init_afd_process_group, base.init_afd_process_group)
        with pytest.raises(SeamError, match="pg_options"):
            stack.create(vllm_config(connector="CAMMine", flag={}))
        assert module.init_afd_process_group is before[0]
        assert base.init_afd_process_group is before[1]


class TestInitTwice:
    @every_connector_and_role
    def test_a_second_init_while_initialised_is_upstreams_no_op(
        self, stack: Stack, make: Any, role: str, changes: Any, sizes: Any
    ) -> None:
        connector = stack.start(make(role, **changes))
        count = len(stack.groups.calls)
        connector.init_afd_connector()
        assert len(stack.groups.calls) == count

    @every_connector_and_role
    def test_close_and_init_again_injects_again(
        self, stack: Stack, make: Any, role: str, changes: Any, sizes: Any
    ) -> None:
        connector = stack.start(make(role, **changes))
        connector.close()
        assert stack.groups.alive == []
        stack.groups.calls.clear()
        connector.init_afd_connector()
        assert stack.groups.sizes == sizes

    def test_the_result_of_init_is_passed_through(self, stack: Stack) -> None:
        source = SUBCLASS.format(
            module="async_cam", base="CAMAsyncAFDConnector", name="MyConnector"
        )
        source += "    def init_afd_connector(self):\n        super().init_afd_connector()\n"
        source += "        return self.world_rank, 'ready'\n"
        stack.write_connector("my_connectors", "MyConnector", source)
        connector = stack.create(async_config(connector="MyConnector"))
        assert connector.init_afd_connector() == (0, "ready")


class TestFailingInit:
    class Unreachable(ConnectionError):
        """An exception of upstream's own type."""

    def start(self, stack: Stack, records: Records, at: str = "afd1") -> BaseException:
        error = self.Unreachable("rendezvous failed")

        def fail(kwargs: dict[str, Any]) -> None:
            if kwargs["group_name"] == at:
                raise error

        stack.groups.before_create = fail
        connector = stack.create(camp2p_config("ffn", ubatches=2))
        with pytest.raises(self.Unreachable) as caught:
            connector.init_afd_connector()
        assert caught.value is error
        return error

    def test_the_exception_is_the_same_and_carries_our_context(
        self, stack: Stack, records: Records
    ) -> None:
        error = self.start(stack, records)
        assert str(error) == "rendezvous failed"
        (line,) = records.errors
        for words in ("afd=52MB", "afd1=52MB", "afd_moe=52MB", "before the failure: afd;"):
            assert words in line
        for words in ("CAMP2pAFDConnector", "role ffn", "312 MB", "HCCL_BUFFSIZE=unset"):
            assert words in line
        if hasattr(error, "__notes__"):
            assert "afd1=52MB" in error.__notes__[0]
        else:
            assert not hasattr(error, "add_note")

    def test_after_a_failure_nothing_is_injected_any_more(
        self, stack: Stack, records: Records
    ) -> None:
        self.start(stack, records)
        stack.groups.before_create = lambda kwargs: None
        assert_identical(*direct(stack, "connectors.npu.camp2p"))

    def test_an_interrupt_passes_through_and_deactivates(self, stack: Stack) -> None:
        def interrupt(kwargs: dict[str, Any]) -> None:
            raise KeyboardInterrupt

        stack.groups.before_create = interrupt
        connector = stack.create(async_config())
        with pytest.raises(KeyboardInterrupt):
            connector.init_afd_connector()
        stack.groups.before_create = lambda kwargs: None
        assert_identical(*direct(stack, "connectors.npu.async_cam"))

    def test_an_init_that_failed_may_be_repeated(self, stack: Stack) -> None:
        attempts: list[str] = []

        def fail_once(kwargs: dict[str, Any]) -> None:
            attempts.append(kwargs["group_name"])
            if len(attempts) == 1:
                raise TimeoutError

        stack.groups.before_create = fail_once
        connector = stack.create(async_config())
        with contextlib.suppress(TimeoutError):
            connector.init_afd_connector()
        connector.init_afd_connector()
        assert stack.groups.sizes == {"afd_async_cam": 139}
