# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``HCCL_BUFFSIZE`` and ``LCCL_BUFFER_SIZE`` as their readers understand them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin.environment import leading_integer, read_buffsize


def test_unset_is_200_and_no_problem() -> None:
    found = read_buffsize(None)
    assert (found.raw, found.effective_mib, found.problem) == (None, 200, "")
    assert str(found) == "unset"


@given(st.integers(1, 2**32 - 1))
def test_a_positive_integer_is_itself(value: int) -> None:
    found = read_buffsize(str(value))
    assert (found.effective_mib, found.problem) == (value, "")
    assert str(found) == str(value)


@pytest.mark.parametrize("raw", ["", "abc", "0", "-5", "-1", "x4096", str(2**32), " "])
def test_what_hccl_refuses_is_a_problem_that_names_variable_and_value(raw: str) -> None:
    found = read_buffsize(raw)
    assert "HCCL_BUFFSIZE" in found.problem
    assert repr(raw) in found.problem
    assert "not a positive integer" in found.problem
    assert "first communicator" in found.problem


@pytest.mark.parametrize(
    ("raw", "effective"),
    [("4096.5", 4096), ("4096MB", 4096), (str(2**32 + 7), 7), ("+300", 300), ("0300", 300)],
)
def test_what_hccl_reads_otherwise_than_written_is_said(raw: str, effective: int) -> None:
    found = read_buffsize(raw)
    assert found.effective_mib == effective
    assert f"{effective} MB" in found.problem
    assert repr(raw) in found.problem


@pytest.mark.parametrize("raw", [" 4096", "\t4096", "4096 "])
def test_blanks_around_a_number_do_not_matter(raw: str) -> None:
    assert (read_buffsize(raw).effective_mib, read_buffsize(raw).problem) == (4096, "")


@given(st.text())
def test_any_text_is_read_without_an_exception(raw: str) -> None:
    found = read_buffsize(raw)
    assert 1 <= found.effective_mib < 2**32
    assert leading_integer(raw) is None or isinstance(leading_integer(raw), int)


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_any_length_is_read_without_an_exception(sign: str) -> None:
    read_buffsize(sign + "9" * 5000)


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("-12x", -12), ("  +7", 7), ("\n9", 9), ("x1", None), ("", None), ("- 1", None)],
)
def test_leading_integers_are_those_of_strtol(text: str, value: int | None) -> None:
    assert leading_integer(text) == value


@pytest.mark.parametrize("text", ["\u0661\u0662", "\xa05", "\u20035"])
def test_only_ascii_counts(text: str) -> None:
    assert leading_integer(text) is None
