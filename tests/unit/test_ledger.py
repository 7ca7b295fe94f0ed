# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The ledger's arithmetic and layout."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin.ledger import (
    FROM_CALLER,
    FROM_DEFAULT,
    FROM_ENVIRONMENT,
    FROM_PLUGIN,
    LedgerEntry,
    ledger_table,
)

_ENTRIES = (
    LedgerEntry("0", 32, 4096, FROM_ENVIRONMENT),
    LedgerEntry("afd_async_cam", 32, 139, FROM_PLUGIN),
    LedgerEntry("mine", 8, 77, FROM_CALLER),
    LedgerEntry("tp", 8, 200, FROM_DEFAULT),
)


def test_a_communicator_takes_two_areas() -> None:
    assert LedgerEntry("afd", 2, 139, FROM_PLUGIN).device_memory_mib == 278


def test_the_table_has_a_line_each_and_the_sum() -> None:
    assert ledger_table(_ENTRIES).splitlines() == [
        "HCCL group     ranks  buffer MB  size from         device MB",
        "0                 32       4096  HCCL_BUFFSIZE          8192",
        "afd_async_cam     32        139  cam_hccl                278",
        "mine               8         77  caller's options        154",
        "tp                 8        200  HCCL default            400",
        "sum                                                     9024",
    ]


def test_an_empty_ledger_sums_to_nothing() -> None:
    assert ledger_table([]).splitlines()[-1].split() == ["sum", "0"]


_entries = st.builds(
    LedgerEntry,
    st.text("abc_01", min_size=1, max_size=30),
    st.integers(1, 9999),
    st.integers(1, 2**32 - 2),
    st.sampled_from([FROM_PLUGIN, FROM_CALLER, FROM_ENVIRONMENT, FROM_DEFAULT]),
)


@given(st.lists(_entries, max_size=6))
def test_every_number_can_be_read_back_and_columns_line_up(entries: list[LedgerEntry]) -> None:
    head, *lines, total = ledger_table(entries).splitlines()
    rows = [re.split(r"\s{2,}", line) for line in lines]
    assert rows == [
        [e.name, str(e.ranks), str(e.buffer_mib), e.origin, str(2 * e.buffer_mib)] for e in entries
    ]
    assert total.split() == ["sum", str(sum(2 * e.buffer_mib for e in entries))]
    assert len({len(line) for line in (head, *lines, total)}) == 1
