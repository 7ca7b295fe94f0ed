# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The rules of CAM Async, CAMP2P and any other CAM connector."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin.model import (
    ConnectorClaim,
    ConnectorIdentity,
    GroupRequest,
    ModelShape,
    Role,
    RoleNeed,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.planning import derive_mib
from cam_hccl_plugin.plugin_host import PluginHost, build_host

ASYNC = ConnectorClaim("cam_async", tokens_shared=True, async_operators=True)
CAMP2P = ConnectorClaim("camp2p", ubatches_shared=True)
GENERIC = ConnectorClaim("cam_generic")
HOST = build_host(installed=False)
HEADROOM = Fraction(11, 10)

V32, GLM = ModelShape(7168, 8, 256), ModelShape(6144, 8, 256)
LITE = ModelShape(2048, 6, 64)


def claim(*names: str, host: PluginHost = HOST) -> ConnectorClaim | None:
    return host.claim_connector(ConnectorIdentity(names[0], names))


def need(
    kind: ConnectorClaim,
    role: Role,
    model: ModelShape = V32,
    tokens: int = 8192,
    quant: bool = False,
    a: int = 16,
    f: int = 16,
    **topology: Any,
) -> RoleNeed:
    inputs = SizingInputs(model, Topology(a, f, **topology), tokens, quant)
    return HOST.role_need(kind, role, inputs)


# Section 3's table: claim, model, tokens, n, A, F, quant, then published MB, FFN operator
# need in MiB to two decimals, and auto MB, Attention before FFN.
TABLE = [
    (ASYNC, V32, 8192, 8, 16, 16, True, (139, 107), "112.79", (139, 113)),
    (ASYNC, V32, 8192, 8, 16, 16, False, (139, 212), "224.29", (139, 225)),
    (ASYNC, V32, 140000, 8, 24, 8, True, (2369, 2722), "2891.13", (2369, 2892)),
    (ASYNC, GLM, 8192, 8, 16, 16, True, (119, 107), "96.79", (119, 107)),
    (ASYNC, LITE, 8192, 2, 6, 2, True, (124, 160), "49.08", (124, 160)),
    (CAMP2P, V32, 28, 1, 48, 16, False, (4, None), None, (4, None)),
    (CAMP2P, V32, 14, 1, 48, 16, False, (2, None), None, (3, None)),
    (CAMP2P, V32, 1, 1, 48, 16, False, (1, 1), "2.03", (3, 3)),
    (CAMP2P, V32, 84, 1, 48, 16, False, (None, 52), "2.03", (None, 52)),
]


@pytest.mark.parametrize(
    ("kind", "model", "tokens", "n", "a", "f", "quant", "published", "ffn_need", "auto"), TABLE
)
def test_the_contracts_table(
    kind: ConnectorClaim,
    model: ModelShape,
    tokens: int,
    n: int,
    a: int,
    f: int,
    quant: bool,
    published: tuple[int | None, int | None],
    ffn_need: str | None,
    auto: tuple[int | None, int | None],
) -> None:
    per_dp = n if kind is ASYNC else None
    for role, published_mb, auto_mb in zip(Role, published, auto, strict=True):
        found = need(
            kind, role, model, tokens, quant, a, f, attn_ranks_per_dp=per_dp, tp_pcp_ranks=n
        )
        if published_mb is not None:
            assert derive_mib(found, "published", HEADROOM) == published_mb
        if auto_mb is not None:
            assert derive_mib(found, "auto", HEADROOM) == auto_mb
        if role is Role.FFN and ffn_need is not None:
            assert found.operator_bytes is not None
            assert f"{found.operator_bytes / 2**20:.2f}" == ffn_need


@pytest.mark.parametrize("case", oracle.CASES, ids=lambda case: str(case["id"]))
def test_the_cases_of_real_launch_commands(case: dict[str, Any]) -> None:
    kind = claim(case["connector"])
    assert kind is not None
    n = case["attention_npus_per_dp_group"]
    model = ModelShape(case["hidden_size"], case["topk"], case["routed_experts"])
    for role in Role:
        found = need(
            kind,
            role,
            model,
            case["max_num_batched_tokens"][role.value],
            bool(case["dynamic_quant"]),
            case["num_attention_ranks"],
            case["num_ffn_ranks"],
            attn_ranks_per_dp=n if kind.kind == "cam_async" else None,
            tp_pcp_ranks=n,
        )
        expected = {key: value[role.value] for key, value in case["expected"].items()}
        assert found.operator_bytes == expected["operator_bytes"]
        assert derive_mib(found, "published", HEADROOM) == expected["published_mb"]
        assert derive_mib(found, "auto", HEADROOM) == expected["auto_mb"]


def test_there_are_cases() -> None:
    assert len(oracle.CASES) == 15


shapes = st.builds(ModelShape, st.integers(1, 9000), st.integers(1, 16), st.integers(1, 512))


@given(shapes, st.integers(1, 200_000), st.integers(1, 64), st.integers(1, 32), st.booleans())
def test_needs_are_the_oracles_for_any_deployment(
    model: ModelShape, tokens: int, a: int, f: int, quant: bool
) -> None:
    h, k, e = model.hidden_size, model.topk, model.routed_experts
    shared: dict[str, Any] = {"attn_ranks_per_dp": 4, "npus_per_dp_group": 3, "tp_pcp_ranks": 2}
    args = (model, tokens, quant, a, f)
    attention = need(ASYNC, Role.ATTENTION, *args, **shared)
    assert attention.published_bytes == oracle.published_attention(h, k, tokens, 3)
    assert attention.operator_bytes == oracle.async_attention(h, k, e, f, tokens, 4)
    ffn = need(ASYNC, Role.FFN, *args, **shared)
    assert ffn.published_bytes == oracle.published_ffn(a, tokens, 3, quant)
    assert ffn.operator_bytes == oracle.async_ffn(h, k, e, a, f, tokens, 4, quant)
    attention = need(CAMP2P, Role.ATTENTION, *args, **shared)
    assert attention.published_bytes == oracle.published_attention(h, k, tokens, 3)
    assert attention.operator_bytes == oracle.camp2p_attention(h, k, a, f, tokens)
    ffn = need(CAMP2P, Role.FFN, *args, **shared)
    assert ffn.published_bytes == oracle.published_ffn(a, tokens, 1, quant)
    assert ffn.operator_bytes == oracle.camp2p_ffn(a, f)


@given(shapes, st.integers(1, 200_000), st.integers(1, 64), st.booleans())
def test_auto_covers_published_and_the_operators(
    model: ModelShape, tokens: int, a: int, quant: bool
) -> None:
    for kind in (ASYNC, CAMP2P):
        for role in Role:
            found = need(kind, role, model, tokens, quant, a, attn_ranks_per_dp=2, tp_pcp_ranks=2)
            auto = derive_mib(found, "auto", HEADROOM)
            assert auto >= oracle.mib(found.published_bytes, "1.1")
            assert auto >= oracle.mib(found.operator_bytes or 0)


class TestClaims:
    def test_the_two_public_connectors(self) -> None:
        assert claim("CAMAsyncAFDConnector", "AFDConnectorBase") == ASYNC
        assert claim("CAMP2pAFDConnector") == CAMP2P

    def test_subclasses_use_their_parents_rules_whatever_they_are_called(self) -> None:
        assert claim("Mine", "CAMAsyncAFDConnector", "AFDConnectorBase") == ASYNC
        assert claim("CAMBetter", "CAMP2pAFDConnector") == CAMP2P

    def test_any_other_name_that_starts_with_cam(self) -> None:
        assert claim("CAMNewConnector") == GENERIC
        assert claim("Mine", "CAMBase") == GENERIC

    @pytest.mark.parametrize("name", ["P2pNcclAFDConnector", "MyCAM", "Camera", "camAsync", "XCAM"])
    def test_nothing_else(self, name: str) -> None:
        assert claim(name, "AFDConnectorBase") is None


class TestGroups:
    def test_async_has_one_group_of_everybody(self) -> None:
        groups = HOST.describe_groups(ASYNC, Topology(16, 16, num_ubatches=4))
        assert groups == (GroupRequest("afd_async_cam"),)
        assert groups[0].spans_roles

    @pytest.mark.parametrize(
        ("ubatches", "names"), [(1, ["afd"]), (2, ["afd", "afd1"]), (3, ["afd", "afd1", "afd2"])]
    )
    def test_camp2p_has_one_per_ubatch_and_one_of_the_ffn_ranks(
        self, ubatches: int, names: list[str]
    ) -> None:
        groups = HOST.describe_groups(CAMP2P, Topology(16, 16, num_ubatches=ubatches))
        assert groups is not None
        assert [g.name for g in groups] == [*names, "afd_moe"]
        assert [g.spans_roles for g in groups] == [True] * ubatches + [False]
        assert groups[-1].roles == {Role.FFN}

    def test_those_of_another_cam_connector_are_not_known(self) -> None:
        assert HOST.describe_groups(GENERIC, Topology(1, 1)) is None


class TestDivisor:
    """The n of the published formulas."""

    @pytest.mark.parametrize("role", list(Role))
    @pytest.mark.parametrize(
        ("topology", "expected"),
        [
            ({"npus_per_dp_group": 4, "attn_ranks_per_dp": 8, "tp_pcp_ranks": 2}, 4),
            ({"attn_ranks_per_dp": 8, "tp_pcp_ranks": 2}, 8),
            ({"tp_pcp_ranks": 2}, 1),
        ],
    )
    def test_async_is_the_flag_then_attn_ranks_per_dp_then_1_on_both_roles(
        self, role: Role, topology: dict[str, int], expected: int
    ) -> None:
        assert need(ASYNC, role, **topology).npus_per_dp_group == expected

    @pytest.mark.parametrize(
        ("topology", "expected"),
        [
            ({"npus_per_dp_group": 4, "tp_pcp_ranks": 8}, 4),
            ({"tp_pcp_ranks": 8}, 8),
            ({"tp_pcp_ranks": 8, "attn_ranks_per_dp": 2}, 8),
        ],
    )
    def test_camp2p_attention_is_the_flag_then_tp_times_pcp(
        self, topology: dict[str, int], expected: int
    ) -> None:
        assert need(CAMP2P, Role.ATTENTION, **topology).npus_per_dp_group == expected

    def test_camp2p_ffn_is_always_1(self) -> None:
        topology = {"npus_per_dp_group": 4, "tp_pcp_ranks": 8, "attn_ranks_per_dp": 2}
        assert need(CAMP2P, Role.FFN, **topology).npus_per_dp_group == 1

    @pytest.mark.parametrize(
        ("role", "topology", "expected"),
        [
            (Role.ATTENTION, {"npus_per_dp_group": 4, "attn_ranks_per_dp": 8}, 4),
            (Role.FFN, {"npus_per_dp_group": 4, "attn_ranks_per_dp": 8}, 4),
            (Role.ATTENTION, {"attn_ranks_per_dp": 8, "tp_pcp_ranks": 2}, 8),
            (Role.FFN, {"attn_ranks_per_dp": 8}, 8),
            (Role.ATTENTION, {"tp_pcp_ranks": 2}, 2),
            (Role.FFN, {"tp_pcp_ranks": 2}, 1),
        ],
    )
    def test_another_cam_connector_is_the_flag_then_attn_ranks_per_dp_then_as_camp2p(
        self, role: Role, topology: dict[str, int], expected: int
    ) -> None:
        assert need(GENERIC, role, **topology).npus_per_dp_group == expected

    @pytest.mark.parametrize("role", list(Role))
    def test_the_operators_divide_by_attn_ranks_per_dp_never_by_the_flag(self, role: Role) -> None:
        with_flag = need(ASYNC, role, npus_per_dp_group=2, attn_ranks_per_dp=8)
        without = need(ASYNC, role, attn_ranks_per_dp=8)
        assert with_flag.operator_bytes == without.operator_bytes
        assert with_flag.published_bytes == 4 * without.published_bytes

    def test_camp2p_operators_divide_by_nothing(self) -> None:
        one = need(CAMP2P, Role.ATTENTION, tp_pcp_ranks=1)
        eight = need(CAMP2P, Role.ATTENTION, tp_pcp_ranks=8)
        assert one.operator_bytes == eight.operator_bytes


def test_another_cam_connectors_operator_need_is_not_known() -> None:
    for role in Role:
        assert need(GENERIC, role).operator_bytes is None


class TestLimits:
    def test_too_many_tokens_warn_on_both_roles(self) -> None:
        for role in Role:
            (warning,) = need(ASYNC, role, LITE, tokens=262145, attn_ranks_per_dp=8).warnings
            assert "262144" in warning
            assert need(ASYNC, role, LITE, tokens=262144, attn_ranks_per_dp=8).warnings == ()

    def test_attention_ranks_that_are_no_multiple_warn(self) -> None:
        for role in Role:
            (warning,) = need(ASYNC, role, a=12, attn_ranks_per_dp=8).warnings
            assert "multiple of attn_ranks_per_dp" in warning

    def test_the_dispatch_length_of_an_ffn_rank_stays_below_4_gib(self) -> None:
        # 16384 bytes a slot: 262143 tokens are 16 KiB below 4 GiB, 262144 are exactly 4 GiB.
        model = ModelShape(8192, 1, 2)
        assert not any(
            "32-bit" in w for w in need(ASYNC, Role.FFN, model, 262143, a=1, f=1).warnings
        )
        assert any("32-bit" in w for w in need(ASYNC, Role.FFN, model, 262144, a=1, f=1).warnings)

    def test_the_send_length_of_an_attention_rank_stays_below_4_gib(self) -> None:
        model = ModelShape(1024, 8, 8)
        role = Role.ATTENTION
        assert not any("32-bit" in w for w in need(ASYNC, role, model, 262143, a=1).warnings)
        assert any("32-bit" in w for w in need(ASYNC, role, model, 262144, a=1).warnings)

    def test_a_window_above_32768_mb_warns(self) -> None:
        warnings = need(ASYNC, Role.FFN, V32, 200_000, a=24, f=8).warnings
        assert any("32768 MB" in w for w in warnings)

    def test_an_ordinary_deployment_does_not_warn(self) -> None:
        for kind in (ASYNC, CAMP2P, GENERIC):
            for role in Role:
                assert need(kind, role, attn_ranks_per_dp=8, tp_pcp_ranks=8).warnings == ()
