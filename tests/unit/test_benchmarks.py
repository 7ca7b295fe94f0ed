# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The arithmetic and the tables of tests/benchmarks; nothing here is timed."""

import pytest

from benchmarks import kv_cache
from benchmarks.cases import recipe_cases, shared_cases
from benchmarks.counting import CountingStore
from benchmarks.memory import computed
from benchmarks.table import Table, Target, cell_text
from cam_hccl_plugin.model import Role
from cam_hccl_plugin.plugin_host import build_host


@pytest.fixture
def host():
    return build_host(installed=False)


def test_a_token_of_deepseek_v3_2_takes_85888_bytes():
    assert kv_cache.BYTES_PER_TOKEN == 85888
    assert kv_cache.tokens_in(7914) == 7914 * 2**20 // 85888 == 96619


def test_the_async_recipe_frees_what_the_readme_says(host):
    case = recipe_cases()[0]
    attention = computed(case, case.plan(Role.ATTENTION, host))
    ffn = computed(case, case.plan(Role.FFN, host))
    assert (attention.device_mib, ffn.device_mib) == ((8192, 278), (8192, 226))
    assert ffn.cells(kv_cache=False)[6:8] == pytest.approx((36.32, 1.0019), rel=1e-3)


def test_a_camp2p_ffn_die_counts_the_group_of_its_own_role(host):
    case = recipe_cases()[1]
    ffn = computed(case, case.plan(Role.FFN, host))
    assert (ffn.before_mib, ffn.after_mib) == ((2048,) * 3, (52,) * 3)


def test_memory_that_is_added_is_shown_as_such(host):
    case = next(c for c in shared_cases() if c.name == "glm5-async-24a8f-mbt140000-dq0")
    figures = computed(case, case.plan(Role.FFN, host))
    assert figures.cells(kv_cache=False)[2] == 8192 - 2 * 5415
    assert figures.cells(kv_cache=False)[6] < 1


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "-"),
        ("x", "x"),
        (12288, "12 288"),
        (1.0, "1.00"),
        (1008.4, "1 008"),
        (-2638, "-2 638"),
    ],
)
def test_cells(cell, text):
    assert cell_text(cell) == text


def test_a_table_aligns_numbers_to_the_right_and_keeps_values_in_json():
    table = Table("t", "Title", {"a": "name", "b": "MiB"}, [("x", 1024), ("long", None)], ["note"])
    assert table.as_text().splitlines() == [
        "Title",
        "",
        "name    MiB",
        "x     1 024",
        "long      -",
        "  note",
    ]
    assert table.as_json()["rows"] == [{"a": "x", "b": 1024}, {"a": "long", "b": None}]


def test_a_target_is_met_at_its_limit():
    assert Target("t", 10.0, 10.0, "ms").met
    assert not Target("t", 10.01, 10.0, "ms").met


def test_a_counting_store_passes_calls_on():
    store = CountingStore({"key": 1})
    assert (store.get("key"), store.get("other", 2), store.total) == (1, 2, 2)
    assert store.calls == {"get": 2}
