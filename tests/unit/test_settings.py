# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The flag: what is allowed, what is refused, and how a refusal reads."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin.errors import SettingsError
from cam_hccl_plugin.model import Role
from cam_hccl_plugin.settings import Settings, parse_flag, parse_settings

PLACE = "additional_config.cam_hccl"
NAN, INF = float("nan"), float("inf")


def refusal(raw: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        parse_settings(raw)
    return str(caught.value)


def parsed(raw: Any) -> Settings:
    settings = parse_settings(raw)
    assert settings is not None
    return settings


def test_absent_means_off() -> None:
    assert parse_flag(None, None) is None
    assert parse_flag({}, {}) is None
    assert parse_flag({"afd": {}}, {"other": 1}) is None


def test_presence_enables_with_the_documented_defaults() -> None:
    settings = parse_flag({"cam_hccl": {}}, None)
    assert settings == Settings()
    assert settings is not None
    assert settings.sizing == "auto"
    assert settings.headroom == Fraction(11, 10)
    assert settings.role_sizes_mib == {}
    assert settings.group_sizes_mib == {}
    assert settings.npus_per_dp_group is None
    assert settings.dynamic_quant is None
    assert settings.memory_guard_ratio == Fraction(5, 2)
    assert settings.on_memory_shortage == "warn"
    assert settings.scope == "role"


def test_enabled_true_is_the_default_spelled_out() -> None:
    assert parse_settings({"enabled": True}) == Settings()


def test_enabled_false_switches_off_and_nothing_else_is_looked_at() -> None:
    assert parse_settings({"enabled": False}) is None
    assert parse_settings({"enabled": False, "headroom": "x", "nonsense": None}) is None


@pytest.mark.parametrize("value", [0, 1, "false", None, [], "true"])
def test_enabled_is_true_or_false_and_nothing_else(value: Any) -> None:
    text = refusal({"enabled": value})
    assert f"{PLACE}.enabled: given {json.dumps(value)}" in text
    assert "true or false" in text


@pytest.mark.parametrize("raw", [None, True, False, [], "on", 1, 1.5])
def test_the_flag_itself_is_an_object(raw: Any) -> None:
    text = refusal(raw)
    assert PLACE in text
    assert json.dumps(raw) in text
    assert "object" in text


GOOD = [
    ("sizing", "auto", "sizing", "auto"),
    ("sizing", "published", "sizing", "published"),
    ("sizing", "operator", "sizing", "operator"),
    ("headroom", 1, "headroom", Fraction(1)),
    ("headroom", 1.0, "headroom", Fraction(1)),
    ("headroom", 1.1, "headroom", Fraction(11, 10)),
    ("headroom", 1.05, "headroom", Fraction(21, 20)),
    ("headroom", 10, "headroom", Fraction(10)),
    ("buffer_size_mb", 1, "role_sizes_mib", {Role.ATTENTION: 1, Role.FFN: 1}),
    ("buffer_size_mb", 2**32 - 2, "role_sizes_mib", dict.fromkeys(Role, 4294967294)),
    ("buffer_size_mb", {"attention": 5}, "role_sizes_mib", {Role.ATTENTION: 5}),
    ("buffer_size_mb", {"ffn": 7}, "role_sizes_mib", {Role.FFN: 7}),
    (
        "buffer_size_mb",
        {"attention": 5, "ffn": 7},
        "role_sizes_mib",
        {Role.ATTENTION: 5, Role.FFN: 7},
    ),
    ("group_buffer_size_mb", {}, "group_sizes_mib", {}),
    (
        "group_buffer_size_mb",
        {"afd_moe": 300, "afd": None},
        "group_sizes_mib",
        {"afd_moe": 300, "afd": None},
    ),
    ("num_npus_per_dp_group", 8, "npus_per_dp_group", 8),
    ("dynamic_quant", 0, "dynamic_quant", False),
    ("dynamic_quant", 1, "dynamic_quant", True),
    ("dynamic_quant", False, "dynamic_quant", False),
    ("dynamic_quant", True, "dynamic_quant", True),
    ("memory_guard_ratio", 0, "memory_guard_ratio", Fraction(0)),
    ("memory_guard_ratio", 2.5, "memory_guard_ratio", Fraction(5, 2)),
    ("memory_guard_ratio", 1000, "memory_guard_ratio", Fraction(1000)),
    ("on_memory_shortage", "warn", "on_memory_shortage", "warn"),
    ("on_memory_shortage", "error", "on_memory_shortage", "error"),
    ("scope", "role", "scope", "role"),
    ("scope", "group", "scope", "group"),
]


@pytest.mark.parametrize(("key", "value", "attribute", "expected"), GOOD)
def test_a_good_value_is_taken(key: str, value: Any, attribute: str, expected: Any) -> None:
    assert getattr(parsed({key: value}), attribute) == expected


WORDS = ["", "Auto", "x", None, 1, True, [], {}]
NOT_INTS = [None, True, False, "8", "", 8.0, 8.5, [], NAN, INF]
SIZES = [*NOT_INTS, 0, -1, 2**32 - 1, 2**32, 2**64]
RATIOS = [None, True, False, "1.1", "", [], {}, NAN, INF, -INF]

BAD = [
    *(("sizing", v, '"auto", "published", "operator"') for v in WORDS),
    *(("scope", v, '"role", "group"') for v in WORDS),
    *(("on_memory_shortage", v, '"warn", "error"') for v in WORDS),
    *(("headroom", v, "from 1 to 10") for v in [*RATIOS, 0, -1, 0.99, 10.01, 11]),
    *(("memory_guard_ratio", v, "0 or more") for v in [*RATIOS, -1, -0.01]),
    *(("num_npus_per_dp_group", v, "1 or more") for v in [*NOT_INTS, {}, 0, -8]),
    *(("dynamic_quant", v, "0, 1, false or true") for v in [None, "1", "true", 1.0, 0.0, 2, -1]),
    *(("buffer_size_mb", v, "1 to 4294967294") for v in SIZES),
    *(("group_buffer_size_mb", v, "object") for v in [None, 300, "afd", True, []]),
]


@pytest.mark.parametrize(("key", "value", "allowed"), BAD)
def test_a_bad_value_is_refused_with_key_given_and_allowed(
    key: str, value: Any, allowed: str
) -> None:
    text = refusal({key: value})
    assert text.startswith("1 problem in the cam_hccl flag: ")
    assert f"{PLACE}.{key}: given {json.dumps(value)}" in text
    assert allowed in text


@pytest.mark.parametrize("value", SIZES)
@pytest.mark.parametrize("role", ["attention", "ffn"])
def test_a_bad_size_of_a_role_names_the_role(role: str, value: Any) -> None:
    text = refusal({"buffer_size_mb": {role: value}})
    assert f"{PLACE}.buffer_size_mb.{role}: given {json.dumps(value)}" in text
    assert "1 to 4294967294" in text


@pytest.mark.parametrize("value", [v for v in SIZES if v is not None])
def test_a_bad_size_of_a_group_names_the_group_and_allows_null(value: Any) -> None:
    text = refusal({"group_buffer_size_mb": {"afd1": value}})
    assert f"{PLACE}.group_buffer_size_mb.afd1: given {json.dumps(value)}" in text
    assert "1 to 4294967294" in text
    assert "null" in text


def test_an_unknown_role_is_refused_with_its_full_key() -> None:
    text = refusal({"buffer_size_mb": {"experts": 5}})
    assert f"{PLACE}.buffer_size_mb.experts" in text
    assert "attention" in text
    assert "ffn" in text


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    text = refusal({"hedroom": 1.1})
    assert f"{PLACE}.hedroom: unknown key, did you mean headroom?" in text
    for known in ("enabled", "sizing", "group_buffer_size_mb", "scope"):
        assert known in text


@pytest.mark.parametrize("key", ["operator_window", "on_mismatch", "ledger"])
@pytest.mark.parametrize("value", [0, 1, "sometimes", None, [], {}])
def test_the_keys_of_the_checks_take_their_own_values_only(key: str, value: object) -> None:
    assert f"{PLACE}.{key}: given" in refusal({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("operator_window", "scoped"),
        ("operator_window", "follow"),
        ("on_mismatch", "error"),
        ("on_mismatch", "warn"),
        ("ledger", False),
        ("ledger", True),
    ],
)
def test_the_keys_of_the_checks_reach_the_settings(key: str, value: object) -> None:
    found = parse_settings({key: value})
    assert found is not None
    assert getattr(found, key) == value


def test_one_error_lists_every_problem() -> None:
    text = refusal(
        {
            "enabled": "yes",
            "sizing": "big",
            "headroom": True,
            "buffer_size_mb": {"attention": 0, "ffn": "x", "expert": 1},
            "group_buffer_size_mb": {"afd": -1, "afd1": 1.5, "afd_moe": None},
            "num_npus_per_dp_group": 0,
            "dynamic_quant": "1",
            "memory_guard_ratio": -1,
            "on_memory_shortage": "stop",
            "scope": None,
            "colour": "red",
        }
    )
    for key in (
        "enabled",
        "sizing",
        "headroom",
        "buffer_size_mb.attention",
        "buffer_size_mb.ffn",
        "buffer_size_mb.expert",
        "group_buffer_size_mb.afd",
        "group_buffer_size_mb.afd1",
        "num_npus_per_dp_group",
        "dynamic_quant",
        "memory_guard_ratio",
        "on_memory_shortage",
        "scope",
        "colour",
    ):
        assert f"{PLACE}.{key}:" in text
    assert "afd_moe" not in text
    assert text.startswith("14 problems in the cam_hccl flag: ")


def test_the_kv_transfer_place_counts_as_much() -> None:
    settings = parse_flag({"afd": {}}, {"cam_hccl": {"headroom": 2}})
    assert settings is not None
    assert settings.headroom == 2


def test_a_problem_in_the_kv_transfer_place_names_that_place() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_flag(None, {"cam_hccl": {"scope": "all"}})
    assert "kv_transfer_config.kv_connector_extra_config.cam_hccl.scope: given" in str(caught.value)


def test_both_places_with_equal_content_are_one() -> None:
    both = {"cam_hccl": {"headroom": 2, "scope": "role"}}
    same = {"cam_hccl": {"scope": "role", "headroom": 2}}
    settings = parse_flag(both, same)
    assert settings is not None
    assert settings.headroom == 2


@pytest.mark.parametrize("other", [{}, {"headroom": 3}, {"enabled": False}, None])
def test_both_places_with_different_content_are_an_error(other: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_flag({"cam_hccl": {"headroom": 2}}, {"cam_hccl": other})
    text = str(caught.value)
    assert "different" in text
    assert PLACE in text
    assert "kv_connector_extra_config.cam_hccl" in text
    assert json.dumps(other) in text


@pytest.mark.parametrize("place", ["text", 3, [], None])
def test_a_place_that_is_no_object_holds_no_flag(place: Any) -> None:
    assert parse_flag(place, place) is None


def test_settings_are_frozen_through_and_through() -> None:
    settings = parsed({"buffer_size_mb": 3, "group_buffer_size_mb": {"afd": 4}})
    with pytest.raises(AttributeError):
        settings.sizing = "operator"  # type: ignore[misc]  # that is the point
    with pytest.raises(TypeError):
        settings.role_sizes_mib[Role.FFN] = 1  # type: ignore[index]  # that is the point
    with pytest.raises(TypeError):
        settings.group_sizes_mib["afd"] = 1  # type: ignore[index]  # that is the point


def test_the_flag_given_is_not_changed() -> None:
    raw = {"headroom": 1.5, "group_buffer_size_mb": {"afd": 3}}
    before = json.dumps(raw)
    parsed(raw)
    assert json.dumps(raw) == before


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
keys = st.sampled_from(sorted({row[0] for row in GOOD} | {"enabled", "x"}))


@given(json_values | st.dictionaries(keys, json_values, max_size=4))
def test_any_json_is_either_settings_or_one_clear_error(raw: Any) -> None:
    try:
        settings = parse_settings(raw)
    except SettingsError as error:
        outcome: object = str(error)
    else:
        outcome = settings or Settings()
    assert isinstance(outcome, Settings) or PLACE in str(outcome)


def _nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


UNPRINTABLE: list[Any] = [
    10**5000,
    _nested(5000),
    "x" * 10**6,
    [[]] * 10**5,
    "\ud800",
    {1: 2, "a": 3},
]


@pytest.mark.parametrize("value", UNPRINTABLE, ids=range(len(UNPRINTABLE)))
@pytest.mark.parametrize(
    "key", ["headroom", "sizing", "buffer_size_mb", "group_buffer_size_mb", "dynamic_quant", "new"]
)
def test_a_huge_or_odd_value_is_one_short_error_that_can_be_printed(key: str, value: Any) -> None:
    message = refusal({key: value})
    assert f"{PLACE}.{key}" in message
    assert len(message) < 2000
    message.encode()


@pytest.mark.parametrize("key", ["x" * 10**6, "\ud800", 10**5000, None, ("a", 1)], ids=range(5))
@pytest.mark.parametrize("place", [None, "buffer_size_mb", "group_buffer_size_mb"])
def test_so_is_a_huge_or_odd_key(place: str | None, key: Any) -> None:
    message = refusal({key: -1} if place is None else {place: {key: -1}})
    assert len(message) < 2000
    message.encode()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("value", UNPRINTABLE, ids=range(len(UNPRINTABLE)))
def test_so_are_two_places_of_which_one_is_huge_or_odd(value: Any, first: int) -> None:
    places: list[Any] = [{}, {}]
    places[first] = {"cam_hccl": {"sizing": value}}
    places[1 - first] = {"cam_hccl": {}}
    with pytest.raises(SettingsError, match="different content") as caught:
        parse_flag(*places)
    str(caught.value).encode()


def test_a_group_without_a_name_is_refused() -> None:
    for name in ("", 5, None):
        assert "the name of a group" in refusal({"group_buffer_size_mb": {name: 1}})


def test_a_huge_ratio_is_a_number() -> None:
    assert parsed({"memory_guard_ratio": 10**5000}).memory_guard_ratio == 10**5000
