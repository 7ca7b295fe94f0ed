# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What each operator build believes, and the sentences where that does not fit."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin.builtin_hooks import cam_hccl_role_need
from cam_hccl_plugin.model import (
    ConnectorClaim,
    MiB,
    ModelShape,
    Role,
    SizingInputs,
    Topology,
)
from cam_hccl_plugin.operator_window import (
    BINARY_BUILD,
    BUILDS,
    SOURCE_BUILD,
    OperatorBuild,
    WindowCheck,
    followed_mib,
)


def _check(build: OperatorBuild = SOURCE_BUILD, **values: Any) -> WindowCheck:
    given_values: dict[str, Any] = {
        "role": Role.FFN,
        "group": "afd_async_cam",
        "raw": None,
        "buffer_mib": 408,
        "operator_bytes": 100 * MiB,
    }
    return WindowCheck(build=build, **{**given_values, **values})


def test_the_two_builds_that_believe_a_variable() -> None:
    found = {(b.namespace, b.variable): b.operators for b in BUILDS}
    assert found == {
        ("umdk_cam_op_lib", "HCCL_BUFFSIZE"): (
            "async_dispatch_send",
            "async_dispatch_recv",
            "async_combine_send",
            "async_combine_recv",
        ),
        ("afd_ascend", "LCCL_BUFFER_SIZE"): (
            "afd_async_dispatch_send",
            "afd_async_dispatch_recv",
            "afd_async_combine_send",
            "afd_async_combine_recv",
        ),
    }


@pytest.mark.parametrize(
    ("raw", "believed"),
    [(None, 200), ("1", 1), ("4096", 4096), ("4096.5", 4096), ("40000", 40000)],
)
def test_the_binary_build_believes_hccl_buffsize(raw: str | None, believed: int) -> None:
    assert BINARY_BUILD.believed_mib(raw) == believed


@pytest.mark.parametrize(
    ("raw", "believed"),
    [
        (None, 408),
        ("", 408),
        ("abc", 408),
        ("x2048", 408),
        (str(2**31), 408),
        ("9" * 5000, 408),
        ("0", 0),
        ("1", 1),
        ("2048", 2048),
        ("2048MB", 2048),
        ("32767", 32767),
        ("32768", 32768),
        ("32769", 32768),
        (str(2**31 - 1), 32768),
    ],
)
def test_the_build_from_source_believes_lccl_buffer_size(raw: str | None, believed: int) -> None:
    assert SOURCE_BUILD.believed_mib(raw) == believed


def test_a_negative_value_wraps_to_a_window_without_end() -> None:
    # The number of bytes is unsigned there: the tiling check passes and the window has no end.
    check = _check(raw="-1")
    assert not check.too_small
    assert check.too_large
    assert "LCCL_BUFFER_SIZE=-1" in check.warnings()[0]


def test_zero_is_too_small() -> None:
    check = _check(raw="0")
    assert check.too_small
    assert "tiling failed" in check.warnings()[0]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("role", Role)
def test_too_small_has_variable_numbers_and_remedy(build: OperatorBuild, role: Role) -> None:
    need = 100 * MiB + 1
    (text,) = _check(build, role=role, raw="100", buffer_mib=120, operator_bytes=need).warnings()
    assert f"{build.variable}=100 " in text
    assert "100 MB" in text
    assert f"{need} bytes (101 MB)" in text
    assert "'tiling failed'" in text
    assert f"export {build.variable}=120 on every {role.value} rank" in text


@pytest.mark.parametrize(("buffer", "least"), [(101, 101), (150, 150), (50, 101)])
def test_the_remedy_is_at_least_the_plan_and_at_least_the_need(buffer: int, least: int) -> None:
    check = _check(raw="10", buffer_mib=buffer, operator_bytes=100 * MiB + 1)
    assert check.export_line == f"export LCCL_BUFFER_SIZE={least}"


def test_exactly_the_need_is_enough_and_one_byte_more_is_not() -> None:
    assert _check(raw="100", operator_bytes=100 * MiB).warnings() == []
    assert _check(raw="100", operator_bytes=100 * MiB + 1).too_small


def test_too_large_has_variable_numbers_and_both_remedies() -> None:
    (text,) = _check(raw="409").warnings()
    assert "LCCL_BUFFER_SIZE=409 " in text
    assert "409 MB" in text
    assert "holds 408 MB" in text
    assert "32-byte progress record" in text
    assert "beyond the buffer" in text
    assert "lower LCCL_BUFFER_SIZE to 408" in text
    assert '{"afd_async_cam": 409}' in text
    assert '"follow"' in text


def test_exactly_the_buffer_is_not_too_large() -> None:
    assert _check(raw="408").warnings() == []
    assert _check(BINARY_BUILD, buffer_mib=200).warnings() == []
    assert _check(BINARY_BUILD, buffer_mib=199).too_large


def test_unset_is_called_unset() -> None:
    (text,) = _check(BINARY_BUILD, buffer_mib=100).warnings()
    assert "HCCL_BUFFSIZE=unset" in text


def test_no_warning_speaks_of_gb() -> None:
    texts = [*_check(raw="0").warnings(), *_check(raw="9999").warnings()]
    assert len(texts) == 2
    assert not re.search(r"\d ?G(i)?B", " ".join(texts))


def test_without_a_known_need_only_too_large_can_be_seen() -> None:
    assert _check(raw="0", operator_bytes=None).warnings() == []
    (text,) = _check(raw="409", operator_bytes=None).warnings()
    assert "progress record" in text


def test_a_buffer_below_the_need_is_not_called_cured_by_lowering_the_variable() -> None:
    # 10 MB are held, 100 are needed: no value of the variable is right, the group must grow.
    small, large = _check(raw="50", buffer_mib=10).warnings()
    assert "tiling failed" in small
    assert "lower LCCL_BUFFER_SIZE" not in large
    assert '"afd_async_cam": 100' in large


def test_the_public_note() -> None:
    # hidden 4096, topk 6, DP4 x TP2 + EP8, 65536 tokens: fails at 408, needs about 1.61 GB.
    topology = Topology(attention_ranks=8, ffn_ranks=8, attn_ranks_per_dp=2)
    inputs = SizingInputs(ModelShape(4096, 6, 64), topology, 65536, False)
    claim = ConnectorClaim("cam_async", tokens_shared=True, async_operators=True)
    need = cam_hccl_role_need(claim, Role.ATTENTION, inputs)
    assert need is not None
    assert need.operator_bytes is not None
    sent = 2 * 4096 * 32768 * 6
    assert round(sent / 1e9, 2) == 1.61
    assert need.operator_bytes >= sent
    values = {"role": Role.ATTENTION, "operator_bytes": need.operator_bytes, "buffer_mib": 1}
    assert _check(raw=None, **values).too_small
    (exported,) = re.findall(r"LCCL_BUFFER_SIZE=(\d+)$", _check(raw=None, **values).export_line)
    assert int(exported) * MiB >= sent
    assert not _check(raw=exported, **values).too_small
    assert not _check(raw="2048", **values).too_small


@given(st.integers(1, 40000), st.integers(0, 40000), st.integers(1, 40000 * MiB))
def test_the_exported_value_cures_whatever_warned(buffer: int, raw: int, need: int) -> None:
    buffer = max(buffer, -(-need // MiB))
    check = _check(BINARY_BUILD, raw=str(raw), buffer_mib=buffer, operator_bytes=need)
    cure = check.export_line.rpartition("=")[2]
    cured = _check(BINARY_BUILD, raw=cure, buffer_mib=buffer, operator_bytes=need)
    assert cured.warnings() == []


def test_follow_takes_the_largest_belief_and_never_lowers() -> None:
    environment = {"HCCL_BUFFSIZE": "900", "LCCL_BUFFER_SIZE": "600"}
    assert followed_mib(100, (SOURCE_BUILD,), environment) == 600
    assert followed_mib(100, (BINARY_BUILD,), environment) == 900
    assert followed_mib(100, BUILDS, environment) == 900
    assert followed_mib(1000, BUILDS, environment) == 1000
    assert followed_mib(100, (), environment) == 100
    assert followed_mib(100, (SOURCE_BUILD,), {}) == 408
