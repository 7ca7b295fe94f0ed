# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The extension contract: who is asked, in which order, and what a bad answer becomes."""

from __future__ import annotations

from typing import Any

import pluggy
import pytest

from cam_hccl_plugin import hookimpl, hookspecs
from cam_hccl_plugin.errors import PlanError, SettingsError
from cam_hccl_plugin.model import (
    BufferPlan,
    ConnectorClaim,
    ConnectorIdentity,
    GroupRequest,
    MiB,
    ModelShape,
    Role,
    RoleNeed,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.planning import PlanRequest, plan_buffers
from cam_hccl_plugin.plugin_host import PluginHost, build_host
from cam_hccl_plugin.settings import Settings

TOPOLOGY = Topology(2, 2)
INPUTS = SizingInputs(ModelShape(64, 2, 8), TOPOLOGY, 16, False)
STARFISH = ConnectorIdentity("StarfishConnector", ("StarfishConnector",))
KIND = ConnectorClaim("starfish", tokens_shared=True)


class Starfish:
    """An extension that brings its own kind of connector."""

    def __init__(self) -> None:
        self.plans: list[BufferPlan] = []

    @hookimpl
    def cam_hccl_claim_connector(self, connector: ConnectorIdentity) -> ConnectorClaim | None:
        return KIND if connector.class_name == "StarfishConnector" else None

    @hookimpl
    def cam_hccl_describe_groups(
        self, claim: ConnectorClaim, topology: Topology
    ) -> tuple[GroupRequest, ...] | None:
        return (GroupRequest("arms"),) if claim.kind == "starfish" else None

    @hookimpl
    def cam_hccl_role_need(
        self, claim: ConnectorClaim, role: Role, inputs: SizingInputs
    ) -> RoleNeed | None:
        if claim.kind != "starfish":
            return None
        return RoleNeed(inputs.max_num_batched_tokens * MiB, 1 * MiB, 1)

    @hookimpl
    def cam_hccl_plan_ready(self, plan: BufferPlan) -> None:
        self.plans.append(plan)


def host(*extensions: object) -> PluginHost:
    return build_host(*extensions, installed=False)


def test_an_extension_claims_describes_and_needs() -> None:
    starfish = Starfish()
    found = host(starfish)
    claim = found.claim_connector(STARFISH)
    assert claim == KIND
    assert claim is not None
    assert found.describe_groups(claim, TOPOLOGY) == (GroupRequest("arms"),)
    assert found.role_need(claim, Role.FFN, INPUTS) == RoleNeed(16 * MiB, MiB, 1)


def test_without_the_extension_nobody_claims_it() -> None:
    assert host().claim_connector(STARFISH) is None


def test_an_extension_leaves_the_built_in_kinds_alone() -> None:
    found = host(Starfish())
    name = "CAMP2pAFDConnector"
    claim = found.claim_connector(ConnectorIdentity(name, (name,)))
    assert claim == ConnectorClaim("camp2p", ubatches_shared=True)


def test_an_extension_is_asked_before_the_built_in_rules() -> None:
    class Replaces:
        @hookimpl
        def cam_hccl_claim_connector(self, connector: ConnectorIdentity) -> ConnectorClaim:
            return ConnectorClaim("mine")

    name = "CAMAsyncAFDConnector"
    assert host(Replaces()).claim_connector(ConnectorIdentity(name, (name,))) == ConnectorClaim(
        "mine"
    )


def test_every_extension_is_told_of_a_plan() -> None:
    first, second = Starfish(), Starfish()
    found = host(first, second)
    plan = plan_buffers(
        PlanRequest(
            connector="StarfishConnector",
            claim=KIND,
            listed=(GroupRequest("arms"),),
            role=Role.FFN,
            settings=Settings(),
            needs={Role.FFN: found.role_need(KIND, Role.FFN, INPUTS)},
        )
    )
    found.plan_ready(plan)
    assert first.plans == second.plans == [plan]
    assert plan.groups[0].size_mib == 18  # 1.1 x 16


CALLS: dict[str, Any] = {
    "cam_hccl_claim_connector": lambda h: h.claim_connector(STARFISH),
    "cam_hccl_describe_groups": lambda h: h.describe_groups(KIND, TOPOLOGY),
    "cam_hccl_role_need": lambda h: h.role_need(KIND, Role.FFN, INPUTS),
    "cam_hccl_plan_ready": lambda h: h.plan_ready(None),
}
ARGUMENTS = {
    "cam_hccl_claim_connector": "connector",
    "cam_hccl_describe_groups": "claim, topology",
    "cam_hccl_role_need": "claim, role, inputs",
    "cam_hccl_plan_ready": "plan",
}


def one_hook(name: str, body: Any) -> object:
    """An extension with the one hook ``name``, which calls ``body``."""
    namespace: dict[str, Any] = {"body": body}
    exec(f"def {name}(self, {ARGUMENTS[name]}): return body()", namespace)
    extension = type("Broken", (), {name: hookimpl(namespace[name])})()
    extension.__name__ = "broken-extension"  # pluggy's name of an extension without entry point
    return extension


@pytest.mark.parametrize("hook", list(CALLS))
def test_a_hook_that_raises_stops_with_hook_extension_and_cause(hook: str) -> None:
    def body() -> None:
        raise KeyError("topologie")

    with pytest.raises(PlanError) as caught:
        CALLS[hook](host(one_hook(hook, body)))
    for words in (hook, "broken-extension", "KeyError", "topologie", "uninstall"):
        assert words in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_of_ours_out_of_a_hook_is_left_as_it_is() -> None:
    error = SettingsError("as it is")

    def body() -> None:
        raise error

    with pytest.raises(SettingsError) as caught:
        CALLS["cam_hccl_role_need"](host(one_hook("cam_hccl_role_need", body)))
    assert caught.value is error


@pytest.mark.parametrize(
    ("hook", "answer", "words"),
    [
        ("cam_hccl_claim_connector", True, ["bool", "ConnectorClaim"]),
        ("cam_hccl_claim_connector", "camp2p", ["str", "ConnectorClaim"]),
        ("cam_hccl_describe_groups", ["afd"], ["list", "tuple"]),
        ("cam_hccl_describe_groups", ("afd",), ["str", "GroupRequest"]),
        ("cam_hccl_describe_groups", (None,), ["NoneType", "GroupRequest"]),
        ("cam_hccl_role_need", 123, ["int", "RoleNeed"]),
    ],
)
def test_an_answer_of_another_type_is_an_error(hook: str, answer: Any, words: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        CALLS[hook](host(one_hook(hook, lambda: answer)))
    for word in (hook, *words):
        assert word in str(caught.value)


def test_a_claim_without_a_need_is_an_error() -> None:
    with pytest.raises(PlanError) as caught:
        host().role_need(KIND, Role.FFN, INPUTS)
    for words in ("starfish", "ffn", "cam_hccl_role_need"):
        assert words in str(caught.value)


def test_a_misspelt_hook_name_is_an_error() -> None:
    class Misspelt:
        @hookimpl
        def cam_hccl_claim_conector(self, connector: ConnectorIdentity) -> None: ...

    with pytest.raises(PlanError, match="cam_hccl_claim_conector"):
        host(Misspelt())


def test_an_optional_hook_of_a_later_version_is_no_error() -> None:
    class Newer:
        @hookimpl(optionalhook=True)
        def cam_hccl_of_tomorrow(self) -> None: ...

    host(Newer())


def test_a_hook_that_asks_for_an_unknown_argument_is_an_error() -> None:
    class Greedy:
        @hookimpl
        def cam_hccl_plan_ready(self, plan: BufferPlan, colour: str) -> None: ...

    with pytest.raises(PlanError, match="colour"):
        host(Greedy())


def test_hosts_share_nothing() -> None:
    host(Starfish())
    assert host().claim_connector(STARFISH) is None


def test_every_hook_is_prefixed_and_says_what_an_implementer_must_know() -> None:
    manager = pluggy.PluginManager(hookspecs.PROJECT_NAME)
    manager.add_hookspecs(hookspecs)
    names = [name for name in vars(manager.hook) if not name.startswith("_")]
    assert sorted(names) == sorted(CALLS)
    for name in names:
        text = getattr(hookspecs, name).__doc__
        assert "When:" in text
    assert "exception" in str(hookspecs.__doc__)


def test_the_marker_fits_the_project() -> None:
    assert hookimpl.project_name == hookspecs.PROJECT_NAME == "cam_hccl_plugin"


def _need(**changes: Any) -> RoleNeed:
    good: dict[str, Any] = {"published_bytes": 1, "operator_bytes": 1, "npus_per_dp_group": 1}
    return RoleNeed(**{**good, **changes})


WRONG_FIELDS: list[tuple[str, str, Any]] = [
    ("cam_hccl_claim_connector", "kind", ConnectorClaim(kind))  # type: ignore[arg-type]  # wrong
    for kind in ("", None, 5)
]
WRONG_FIELDS += [
    ("cam_hccl_describe_groups", "name", (GroupRequest("afd"), GroupRequest(name)))  # type: ignore[arg-type]  # wrong
    for name in ("", None, 5)
]
WRONG_FIELDS += [
    ("cam_hccl_describe_groups", "roles", (GroupRequest("afd", roles),))  # type: ignore[arg-type]  # wrong
    for roles in (None, frozenset(), {Role.FFN}, frozenset({"other"}), "attention")
]
WRONG_FIELDS += [
    ("cam_hccl_role_need", field, _need(**{field: value}))
    for field in ("published_bytes", "operator_bytes", "npus_per_dp_group")
    for value in (0, -1, 1.5, 2.0, True, "1")
]
WRONG_FIELDS += [("cam_hccl_role_need", "published_bytes", _need(published_bytes=None))]
WRONG_FIELDS += [
    ("cam_hccl_role_need", "warnings", _need(warnings=value)) for value in (None, "a word", (1,))
]


@pytest.mark.parametrize(("hook", "field", "answer"), WRONG_FIELDS)
def test_an_answer_with_a_wrong_field_is_an_error(hook: str, field: str, answer: Any) -> None:
    with pytest.raises(PlanError) as caught:
        CALLS[hook](host(one_hook(hook, lambda: answer)))
    for word in (hook, f"{field}=", "wanted is", "uninstall"):
        assert word in str(caught.value)


def test_an_operator_need_that_is_not_known_is_a_good_answer() -> None:
    answer = _need(operator_bytes=None)
    found = host(one_hook("cam_hccl_role_need", lambda: answer))
    assert CALLS["cam_hccl_role_need"](found) is answer
