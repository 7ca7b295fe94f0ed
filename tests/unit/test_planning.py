# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Which group gets which size, what is an error and what a warning."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.model import (
    BufferPlan,
    ConnectorClaim,
    GroupRequest,
    MiB,
    Role,
    RoleNeed,
    SizeSource,
    Topology,
)
from cam_hccl_plugin.planning import (
    PlanRequest,
    derive_mib,
    npus_disagreement,
    plan_buffers,
    plan_unlisted,
)
from cam_hccl_plugin.settings import Settings, parse_settings

# Derived: Attention 110 MB; FFN 220 MB by its operators, 55 MB published.
ATTENTION = RoleNeed(published_bytes=100 * MiB, operator_bytes=90 * MiB, npus_per_dp_group=8)
FFN = RoleNeed(published_bytes=50 * MiB, operator_bytes=220 * MiB, npus_per_dp_group=8)
NEEDS = {Role.ATTENTION: ATTENTION, Role.FFN: FFN}

MOE = GroupRequest("afd_moe", frozenset({Role.FFN}))
ASYNC = (GroupRequest("afd_async_cam"),)
CAMP2P = (GroupRequest("afd"), GroupRequest("afd1"), MOE)


def request(role: Role = Role.ATTENTION, flag: dict[str, Any] | None = None, **kw: Any) -> Any:
    """A CAMP2P request, in which a rank knows its own role's need only."""
    settings = parse_settings(flag or {})
    assert settings is not None
    base = PlanRequest(
        connector="CAMP2pAFDConnector",
        claim=ConnectorClaim("camp2p"),
        listed=CAMP2P,
        role=role,
        settings=settings,
        needs={role: NEEDS[role]},
    )
    return replace(base, **kw)


def request_async(
    role: Role = Role.ATTENTION, flag: dict[str, Any] | None = None, **kw: Any
) -> Any:
    shared = {
        "connector": "CAMAsyncAFDConnector",
        "claim": ConnectorClaim("cam_async", tokens_shared=True),
        "listed": ASYNC,
        "needs": NEEDS,
    }
    return request(role, flag, **{**shared, **kw})


def sizes(plan: BufferPlan) -> dict[str, int | None]:
    return {group.name: group.size_mib for group in plan.groups}


def effective(plan: BufferPlan) -> dict[str, int]:
    return {group.name: group.effective_mib for group in plan.groups}


def sources(plan: BufferPlan) -> dict[str, str]:
    return {group.name: group.source.value for group in plan.groups}


class TestSizing:
    def test_auto_is_the_larger_of_published_with_headroom_and_bare_operator_need(self) -> None:
        assert derive_mib(ATTENTION, "auto", Fraction(11, 10)) == 110
        assert derive_mib(FFN, "auto", Fraction(11, 10)) == 220

    def test_published_is_published_with_headroom_and_nothing_else(self) -> None:
        assert derive_mib(FFN, "published", Fraction(11, 10)) == 55

    def test_operator_is_the_operator_need_with_headroom(self) -> None:
        assert derive_mib(FFN, "operator", Fraction(11, 10)) == 242
        assert derive_mib(ATTENTION, "operator", Fraction(11, 10)) == 99

    def test_operator_with_headroom_1_is_the_bare_need(self) -> None:
        assert derive_mib(FFN, "operator", Fraction(1)) == 220

    def test_auto_without_a_known_operator_need_is_published(self) -> None:
        assert derive_mib(RoleNeed(50 * MiB, None, 1), "auto", Fraction(11, 10)) == 55

    def test_operator_without_a_known_operator_need_is_an_error(self) -> None:
        with pytest.raises(PlanError, match=r"operator need .* not known"):
            derive_mib(RoleNeed(50 * MiB, None, 1), "operator", Fraction(11, 10))

    @given(st.integers(1, 2**40), st.integers(1, 2**40), st.integers(100, 1000))
    def test_auto_is_never_below_published_nor_the_operator_need(
        self, published: int, operator: int, percent: int
    ) -> None:
        need, headroom = RoleNeed(published, operator, 1), Fraction(percent, 100)
        auto = derive_mib(need, "auto", headroom)
        assert auto >= derive_mib(need, "published", headroom)
        assert auto * MiB >= operator
        assert auto >= derive_mib(need, "operator", Fraction(1))


class TestPrecedence:
    FLAG: dict[str, Any] = {  # noqa: RUF012 - read only
        "buffer_size_mb": 300,
        "group_buffer_size_mb": {"afd1": 400},
        "headroom": 10,
        "scope": "group",
    }

    def test_derived_is_last(self) -> None:
        plan = plan_buffers(request(Role.FFN))
        assert sizes(plan) == {"afd": 220, "afd1": 220, "afd_moe": 220}
        assert set(sources(plan).values()) == {"derived"}

    def test_buffer_size_mb_wins_over_derived(self) -> None:
        plan = plan_buffers(request(Role.FFN, {"buffer_size_mb": 300}))
        assert sizes(plan) == {"afd": 300, "afd1": 300, "afd_moe": 300}
        assert set(sources(plan).values()) == {"buffer_size_mb"}

    def test_group_buffer_size_mb_wins_over_buffer_size_mb(self) -> None:
        plan = plan_buffers(request(Role.FFN, self.FLAG))
        assert sizes(plan) == {"afd": 300, "afd1": 400, "afd_moe": 300}
        assert sources(plan)["afd1"] == "group_buffer_size_mb"

    def test_the_callers_size_wins_over_everything(self) -> None:
        plan = plan_buffers(request(Role.FFN, self.FLAG, caller_mib=500))
        assert effective(plan) == {"afd": 500, "afd1": 500, "afd_moe": 500}
        assert set(sources(plan).values()) == {"caller's options"}

    def test_headroom_never_changes_a_fixed_size(self) -> None:
        plan = plan_buffers(request(flag={"buffer_size_mb": 300, "headroom": 10}))
        assert sizes(plan)["afd"] == 300

    def test_scope_never_changes_the_size_of_a_named_group(self) -> None:
        flag = {"scope": "group", "group_buffer_size_mb": {"afd_async_cam": 250}}
        assert sizes(plan_buffers(request_async(flag=flag))) == {"afd_async_cam": 250}

    def test_a_role_left_out_of_buffer_size_mb_is_derived(self) -> None:
        flag = {"buffer_size_mb": {"attention": 300}}
        assert sizes(plan_buffers(request(Role.ATTENTION, flag)))["afd"] == 300
        ffn = plan_buffers(request(Role.FFN, flag))
        assert sizes(ffn)["afd"] == 220
        assert sources(ffn)["afd"] == "derived"

    def test_buffer_size_mb_takes_the_own_roles_key(self) -> None:
        flag = {"buffer_size_mb": {"attention": 300, "ffn": 400}}
        assert sizes(plan_buffers(request(Role.ATTENTION, flag)))["afd"] == 300
        assert sizes(plan_buffers(request(Role.FFN, flag)))["afd"] == 400


class TestGroups:
    def test_a_plan_lists_the_groups_that_this_role_is_in(self) -> None:
        assert list(sizes(plan_buffers(request(Role.ATTENTION)))) == ["afd", "afd1"]
        assert list(sizes(plan_buffers(request(Role.FFN)))) == ["afd", "afd1", "afd_moe"]

    def test_a_name_covers_itself_only(self) -> None:
        plan = plan_buffers(request(flag={"group_buffer_size_mb": {"afd": 400}}))
        assert sizes(plan) == {"afd": 400, "afd1": 110}

    def test_a_group_of_the_other_role_may_be_named(self) -> None:
        plan = plan_buffers(request(Role.ATTENTION, {"group_buffer_size_mb": {"afd_moe": 300}}))
        assert sizes(plan) == {"afd": 110, "afd1": 110}

    def test_a_name_of_no_group_is_an_error_that_lists_the_names(self) -> None:
        flag = {"group_buffer_size_mb": {"afd2": 1, "AFD": None, "afd": 5}}
        with pytest.raises(PlanError) as caught:
            plan_buffers(request(flag=flag))
        text = str(caught.value)
        assert "AFD, afd2" in text
        assert "afd, afd1, afd_moe" in text
        assert "CAMP2pAFDConnector" in text

    def test_null_leaves_a_group_to_the_environment(self) -> None:
        flag = {"buffer_size_mb": 300, "group_buffer_size_mb": {"afd_moe": None}}
        plan = plan_buffers(request(Role.FFN, flag, environment_mib=4096))
        moe = plan.groups[2]
        assert moe.size_mib is None
        assert moe.effective_mib == 4096
        assert moe.source is SizeSource.LEFT_ALONE
        assert sizes(plan)["afd"] == 300

    def test_null_without_an_environment_is_200_mb(self) -> None:
        plan = plan_buffers(request(flag={"group_buffer_size_mb": {"afd": None}}))
        assert effective(plan)["afd"] == 200

    def test_null_leaves_a_group_to_the_callers_options(self) -> None:
        flag = {"group_buffer_size_mb": {"afd": None}}
        plan = plan_buffers(request(flag=flag, caller_mib=512, environment_mib=4096))
        assert plan.groups[0].size_mib is None
        assert effective(plan)["afd"] == 512

    def test_an_unlisted_group_of_a_known_connector_gets_the_roles_size(self) -> None:
        group = plan_unlisted(plan_buffers(request()), Settings(), "afd_extra")
        assert (group.name, group.size_mib) == ("afd_extra", 110)

    def test_the_selected_size_is_the_largest_and_memory_is_twice_the_sum(self) -> None:
        plan = plan_buffers(request(Role.FFN, {"group_buffer_size_mb": {"afd_moe": 300}}))
        assert plan.selected_mib == 300
        assert plan.device_memory_mib == 2 * (220 + 220 + 300)


class TestScopeGroup:
    def test_async_gives_both_roles_the_larger_derived_size(self) -> None:
        for role in Role:
            plan = plan_buffers(request_async(role, {"scope": "group"}))
            assert sizes(plan) == {"afd_async_cam": 220}

    def test_scope_role_keeps_them_apart(self) -> None:
        assert sizes(plan_buffers(request_async(Role.ATTENTION))) == {"afd_async_cam": 110}
        assert sizes(plan_buffers(request_async(Role.FFN))) == {"afd_async_cam": 220}

    def test_both_role_keys_give_a_spanning_group_the_larger(self) -> None:
        flag = {"scope": "group", "buffer_size_mb": {"attention": 300, "ffn": 400}}
        for role in Role:
            assert sizes(plan_buffers(request_async(role, flag))) == {"afd_async_cam": 400}
        attention = plan_buffers(request(Role.ATTENTION, flag))
        assert sizes(attention) == {"afd": 400, "afd1": 400}

    def test_a_group_of_one_role_keeps_its_roles_size(self) -> None:
        flag = {"scope": "group", "buffer_size_mb": {"attention": 500, "ffn": 400}}
        plan = plan_buffers(request(Role.FFN, flag))
        assert sizes(plan) == {"afd": 500, "afd1": 500, "afd_moe": 400}

    def test_one_role_key_is_not_widened(self) -> None:
        flag = {"scope": "group", "buffer_size_mb": {"attention": 300}}
        plan = plan_buffers(request_async(Role.ATTENTION, flag))
        assert sizes(plan) == {"afd_async_cam": 300}

    @pytest.mark.parametrize("role", list(Role))
    @pytest.mark.parametrize(
        "flag",
        [
            {},
            {"buffer_size_mb": {"attention": 5}},
            {"buffer_size_mb": {"ffn": 5}},
            {"group_buffer_size_mb": {"afd": 300}},
            {"group_buffer_size_mb": {"afd": 300, "afd1": None}},
            {"group_buffer_size_mb": {"afd_moe": 300}},
        ],
    )
    def test_camp2p_cannot_know_the_other_roles_tokens(
        self, role: Role, flag: dict[str, Any]
    ) -> None:
        with pytest.raises(PlanError) as caught:
            plan_buffers(request(role, {"scope": "group", **flag}))
        text = str(caught.value)
        for words in ("scope", "max_num_batched_tokens", "buffer_size_mb", "attention", "ffn"):
            assert words in text
        for words in ("group_buffer_size_mb", "afd, afd1", "cam-hccl plan"):
            assert words in text

    @pytest.mark.parametrize(
        ("flag", "expected"),
        [
            ({"buffer_size_mb": 300}, {"afd": 300, "afd1": 300}),
            ({"buffer_size_mb": {"attention": 5, "ffn": 6}}, {"afd": 6, "afd1": 6}),
            ({"group_buffer_size_mb": {"afd": 300, "afd1": 301}}, {"afd": 300, "afd1": 301}),
        ],
    )
    def test_camp2p_accepts_each_of_three_ways(
        self, flag: dict[str, Any], expected: dict[str, int]
    ) -> None:
        for role in Role:
            found = sizes(plan_buffers(request(role, {"scope": "group", **flag})))
            assert {name: found[name] for name in expected} == expected

    def test_camp2p_keeps_the_ffn_group_derived_if_spanning_groups_are_fixed(self) -> None:
        flag = {"scope": "group", "group_buffer_size_mb": {"afd": 300, "afd1": 300}}
        assert sizes(plan_buffers(request(Role.FFN, flag)))["afd_moe"] == 220

    def test_who_knows_both_roles_may_plan_camp2p(self) -> None:
        for role in Role:
            plan = plan_buffers(request(role, {"scope": "group"}, needs=NEEDS))
            assert sizes(plan)["afd"] == 220

    def test_a_generic_connector_needs_a_fixed_size(self) -> None:
        generic = {"claim": ConnectorClaim("cam_generic"), "listed": None}
        with pytest.raises(PlanError, match="buffer_size_mb"):
            plan_buffers(request(flag={"scope": "group"}, **generic))
        flag = {"scope": "group", "buffer_size_mb": 300}
        plan = plan_buffers(request(flag=flag, **generic))
        assert plan_unlisted(plan, Settings(), "any").size_mib == 300


class TestGeneric:
    NEED = RoleNeed(published_bytes=100 * MiB, operator_bytes=None, npus_per_dp_group=1)

    def plan(self, flag: dict[str, Any] | None = None, **kw: Any) -> BufferPlan:
        fields: dict[str, Any] = {
            "connector": "CAMOtherConnector",
            "claim": ConnectorClaim("cam_generic"),
            "listed": None,
            "needs": {Role.ATTENTION: self.NEED},
            **kw,
        }
        return plan_buffers(request(Role.ATTENTION, flag, **fields))

    def test_every_group_gets_the_roles_published_size(self) -> None:
        plan = self.plan()
        assert not plan.groups_known
        assert plan_unlisted(plan, Settings(), "whatever").size_mib == 110
        assert plan.selected_mib == 110
        assert plan.device_memory_mib == 220

    def test_one_note_says_that_the_operator_need_is_unknown(self) -> None:
        plan = self.plan()
        assert len([n for n in plan.notes if "operator need unknown" in n]) == 1
        assert not plan.warnings

    def test_sizing_operator_is_an_error(self) -> None:
        with pytest.raises(PlanError, match="operator"):
            self.plan({"sizing": "operator"})

    def test_names_are_not_checked_before_init(self) -> None:
        settings = parse_settings({"group_buffer_size_mb": {"mine": 7, "left": None}})
        assert settings is not None
        plan = self.plan({"group_buffer_size_mb": {"mine": 7, "left": None}})
        assert plan_unlisted(plan, settings, "mine").size_mib == 7
        left = plan_unlisted(plan, settings, "left")
        assert left.size_mib is None
        assert left.source is SizeSource.LEFT_ALONE

    def test_a_group_left_alone_counts_what_the_environment_gives(self) -> None:
        settings = parse_settings({"group_buffer_size_mb": {"left": None}})
        assert settings is not None
        plan = self.plan({"group_buffer_size_mb": {"left": None}}, environment_mib=4096)
        assert plan_unlisted(plan, settings, "left").effective_mib == 4096


class TestMissingInputs:
    MISSING: dict[str, Any] = {  # noqa: RUF012 - read only
        "needs": {},
        "missing_inputs": "topk is missing",
    }

    def test_a_size_that_must_be_derived_is_an_error_with_the_reason(self) -> None:
        with pytest.raises(PlanError, match="topk is missing"):
            plan_buffers(request(**self.MISSING))

    @pytest.mark.parametrize(
        "flag", [{"buffer_size_mb": 300}, {"group_buffer_size_mb": {"afd": 1, "afd1": 2}}]
    )
    def test_sizes_that_are_all_fixed_leave_one_note(self, flag: dict[str, Any]) -> None:
        plan = plan_buffers(request(flag=flag, **self.MISSING))
        assert plan.notes == ("operator check skipped: topk is missing",)
        assert plan.warnings == ()
        assert plan.need is None

    def test_one_group_that_is_not_fixed_is_enough_for_an_error(self) -> None:
        flag = {"group_buffer_size_mb": {"afd": 1}}
        with pytest.raises(PlanError, match="topk is missing"):
            plan_buffers(request(flag=flag, **self.MISSING))


class TestWarnings:
    def test_a_derived_plan_does_not_warn(self) -> None:
        for role in Role:
            assert plan_buffers(request(role)).warnings == ()

    @pytest.mark.parametrize(
        ("flag", "caller"),
        [
            ({"buffer_size_mb": 219}, None),
            ({"group_buffer_size_mb": {"afd": 219, "afd1": 300}}, None),
            ({"sizing": "published"}, None),
            ({"group_buffer_size_mb": {"afd": None, "afd1": 300}}, None),
            ({}, 219),
        ],
    )
    def test_a_size_below_the_operator_need_warns_with_both_numbers(
        self, flag: dict[str, Any], caller: int | None
    ) -> None:
        plan = plan_buffers(request(Role.FFN, flag, caller_mib=caller))
        below = [w for w in plan.warnings if "below the operator need" in w]
        assert below
        size = effective(plan)["afd"]
        assert f"group afd gets {size} MB" in below[0]
        assert str(220 * MiB) in below[0]
        assert "220 MB" in below[0]

    def test_exactly_the_operator_need_does_not_warn(self) -> None:
        assert plan_buffers(request(Role.FFN, {"buffer_size_mb": 220})).warnings == ()

    def test_a_callers_size_below_the_derived_one_warns(self) -> None:
        plan = plan_buffers(request(Role.ATTENTION, caller_mib=105))
        assert len(plan.warnings) == 2
        for name, warning in zip(("afd", "afd1"), plan.warnings, strict=True):
            assert f"group {name}" in warning
            assert "105 MB" in warning
            assert "110 MB" in warning

    def test_a_callers_size_of_at_least_the_derived_one_does_not(self) -> None:
        assert plan_buffers(request(Role.ATTENTION, caller_mib=110)).warnings == ()

    def test_operator_limits_of_the_need_are_passed_on(self) -> None:
        need = replace(ATTENTION, warnings=("operator limit: too many tokens",))
        plan = plan_buffers(request(needs={Role.ATTENTION: need}))
        assert plan.warnings == ("operator limit: too many tokens",)

    def test_a_window_above_the_largest_warns(self) -> None:
        plan = plan_buffers(request(flag={"group_buffer_size_mb": {"afd": 32769}}))
        (warning,) = plan.warnings
        assert "32769 MB" in warning
        assert "32768 MB" in warning
        largest = plan_buffers(request(flag={"group_buffer_size_mb": {"afd": 32768}}))
        assert largest.warnings == ()

    def test_more_than_hccl_can_be_told_is_an_error(self) -> None:
        need = RoleNeed((2**32 - 1) * MiB, None, 1)
        with pytest.raises(PlanError, match="4294967294"):
            plan_buffers(request(flag={"headroom": 1}, needs={Role.ATTENTION: need}))


class TestFloorNote:
    def test_a_raised_size_says_so_with_both_numbers(self) -> None:
        note = plan_buffers(request(Role.FFN)).floor_note
        assert "55 MB" in note
        assert "220 MB" in note
        assert str(220 * MiB) in note

    def test_a_size_that_published_already_gives_is_silent(self) -> None:
        assert plan_buffers(request(Role.ATTENTION)).floor_note == ""

    @pytest.mark.parametrize(
        "flag", [{"sizing": "published"}, {"sizing": "operator"}, {"buffer_size_mb": 300}]
    )
    def test_a_size_that_no_floor_raised_is_silent(self, flag: dict[str, Any]) -> None:
        assert plan_buffers(request(Role.FFN, flag)).floor_note == ""


class TestRanksPerGroup:
    def test_three_equal_witnesses_agree(self) -> None:
        topology = Topology(16, 16, attn_ranks_per_dp=8, tp_pcp_ranks=8, npus_per_dp_group=8)
        assert npus_disagreement(Role.ATTENTION, topology) is None

    def test_what_is_unknown_disagrees_with_nothing(self) -> None:
        assert npus_disagreement(Role.ATTENTION, Topology(16, 16, tp_pcp_ranks=8)) is None

    @pytest.mark.parametrize(
        "values",
        [
            {"attn_ranks_per_dp": 4, "tp_pcp_ranks": 8},
            {"attn_ranks_per_dp": 4, "npus_per_dp_group": 8},
            {"tp_pcp_ranks": 4, "npus_per_dp_group": 8},
        ],
    )
    def test_any_two_that_differ_are_named_with_their_values(self, values: dict[str, int]) -> None:
        text = npus_disagreement(Role.ATTENTION, Topology(16, 16, **values))
        assert text is not None
        assert "4" in text
        assert "8" in text

    def test_tp_of_an_ffn_process_is_no_witness(self) -> None:
        topology = Topology(16, 16, attn_ranks_per_dp=8, tp_pcp_ranks=1, npus_per_dp_group=8)
        assert npus_disagreement(Role.FFN, topology) is None
