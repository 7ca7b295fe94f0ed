# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Fingerprints: what is in them, how they travel, what a mismatch says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin.model import ConnectorClaim, ModelShape, Role, SizingInputs, Topology
from cam_hccl_plugin.role_match import FINGERPRINT_VERSION, Fingerprint, mismatch, take_fingerprint
from cam_hccl_plugin.settings import Settings

ASYNC = ConnectorClaim("cam_async", tokens_shared=True, async_operators=True)
CAMP2P = ConnectorClaim("camp2p", ubatches_shared=True)
GENERIC = ConnectorClaim("cam_generic")
TOPOLOGY = Topology(16, 8, num_ubatches=2, attn_ranks_per_dp=8)
INPUTS = SizingInputs(ModelShape(7168, 8, 256), TOPOLOGY, 8192, True)


def take(role: Role = Role.ATTENTION, **changes: Any) -> Fingerprint:
    topology = replace(TOPOLOGY, **changes.pop("topology", {}))
    inputs: SizingInputs | None = replace(INPUTS, topology=topology, **changes.pop("inputs", {}))
    if changes.pop("no_inputs", False):
        inputs = None
    values: dict[str, Any] = {
        "claim": ASYNC,
        "rank": 3,
        "settings": Settings(),
        "size_mib": 139,
        **changes,
    }
    return take_fingerprint(role=role, topology=topology, inputs=inputs, **values)


def compared(fingerprint: Fingerprint) -> dict[str, Any]:
    return {name: value for name, value in fingerprint.fields.items() if value is not None}


_COMMON = {
    "hidden_size": 7168,
    "topk": 8,
    "routed_experts": 256,
    "num_attention_ranks": 16,
    "num_ffn_ranks": 8,
    "dynamic_quant": 1,
    "attn_ranks_per_dp": 8,
    "num_npus_per_dp_group": 8,
    "scope": "role",
}


@pytest.mark.parametrize(
    ("claim", "more"),
    [
        (ASYNC, {"connector_kind": "cam_async", "max_num_batched_tokens": 8192}),
        (CAMP2P, {"connector_kind": "camp2p", "num_ubatches": 2}),
        (GENERIC, {"connector_kind": "cam_generic"}),
    ],
)
def test_the_fields_of_each_kind(claim: ConnectorClaim, more: dict[str, Any]) -> None:
    assert compared(take(claim=claim)) == {**_COMMON, **more}


def test_the_size_is_compared_with_scope_group_only() -> None:
    grouped = Settings(scope="group")
    assert compared(take(settings=grouped))["buffer_size_mb"] == 139
    assert "buffer_size_mb" not in compared(take())
    assert mismatch(take(size_mib=1), take(size_mib=2)) is None
    found = mismatch(take(settings=grouped, size_mib=1), take(settings=grouped, size_mib=2))
    assert found is not None
    assert "buffer_size_mb is 1 on" in found


def test_what_may_differ_between_the_roles_is_not_compared() -> None:
    mine = take(Role.ATTENTION, claim=CAMP2P, inputs={"max_num_batched_tokens": 28})
    other = take(Role.FFN, claim=CAMP2P, inputs={"max_num_batched_tokens": 84})
    assert mismatch(mine, other) is None
    # The number of ubatches of CAM Async makes no group of its own.
    assert mismatch(take(), take(topology={"num_ubatches": 7})) is None
    one, two = Settings(sizing="published"), Settings(sizing="operator", ledger=False)
    assert mismatch(take(settings=one), take(settings=two)) is None


def test_tp_x_pcp_stands_in_on_attention_and_ffn_does_not_know_it() -> None:
    unknown = {"attn_ranks_per_dp": None}
    attention = take(claim=CAMP2P, topology={**unknown, "tp_pcp_ranks": 4})
    ffn = take(Role.FFN, claim=CAMP2P, topology=unknown)
    assert attention.fields["num_npus_per_dp_group"] == 4
    assert mismatch(attention, ffn) is None
    assert mismatch(ffn, attention) is None
    other = take(claim=CAMP2P, topology={**unknown, "tp_pcp_ranks": 2})
    assert "num_npus_per_dp_group" in str(mismatch(attention, other))


def test_without_inputs_the_rest_is_compared() -> None:
    mine = take(no_inputs=True)
    assert mine.fields["hidden_size"] is None
    assert mismatch(mine, take(Role.FFN)) is None
    assert "num_ffn_ranks" in str(mismatch(mine, take(topology={"ffn_ranks": 4})))


_ALONE: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "connector_kind": ({"claim": replace(ASYNC, kind="mine")}, "cam_async", "mine"),
    "hidden_size": ({"inputs": {"model": ModelShape(4096, 8, 256)}}, 7168, 4096),
    "topk": ({"inputs": {"model": ModelShape(7168, 6, 256)}}, 8, 6),
    "routed_experts": ({"inputs": {"model": ModelShape(7168, 8, 64)}}, 256, 64),
    "num_attention_ranks": ({"topology": {"attention_ranks": 24}}, 16, 24),
    "num_ffn_ranks": ({"topology": {"ffn_ranks": 16}}, 8, 16),
    "dynamic_quant": ({"inputs": {"dynamic_quant": False}}, 1, 0),
    "num_npus_per_dp_group": ({"topology": {"npus_per_dp_group": 4}}, 8, 4),
    "max_num_batched_tokens": ({"inputs": {"max_num_batched_tokens": 8191}}, 8192, 8191),
    "scope": ({"settings": Settings(scope="group")}, "role", "group"),
}


@pytest.mark.parametrize("field", _ALONE)
def test_each_field_alone_is_named_with_both_values_and_both_roles(field: str) -> None:
    changes, here, there = _ALONE[field]
    mine, other = take(Role.ATTENTION, rank=3), take(Role.FFN, rank=17, **changes)
    assert mismatch(mine, other) == (
        f"the roles do not match: {field} is {here} on attention (rank 3) and {there} on ffn "
        "(rank 17); stop both roles and give both the same settings (cam_hccl.on_mismatch "
        '"warn" goes on regardless)'
    )


def test_ranks_per_dp_group_alone() -> None:
    flag = {"npus_per_dp_group": 8}
    found = mismatch(take(topology=flag), take(topology={**flag, "attn_ranks_per_dp": 4}))
    assert found is not None
    assert "attn_ranks_per_dp is 8 on" in found
    assert ";" not in found.partition("; stop")[0]


def test_ubatches_alone_in_camp2p() -> None:
    found = mismatch(take(claim=CAMP2P), take(claim=CAMP2P, topology={"num_ubatches": 1}))
    assert "num_ubatches is 2 on attention (rank 3) and 1 on" in str(found)


def test_two_ranks_of_one_role_are_compared_too() -> None:
    found = mismatch(take(rank=0), take(rank=1, topology={"ffn_ranks": 4}))
    assert "8 on attention (rank 0) and 4 on attention (rank 1)" in str(found)


def test_it_is_small_versioned_json() -> None:
    text = take().encode()
    assert len(text) < 600
    content = json.loads(text)
    assert content["version"] == FINGERPRINT_VERSION == 1
    assert (content["role"], content["rank"]) == ("attention", 3)


_values = st.one_of(st.none(), st.integers(0, 2**40), st.text(max_size=8))
_fields = st.dictionaries(st.text(min_size=1, max_size=12), _values, max_size=8)
_fingerprints = st.builds(Fingerprint, st.sampled_from(Role), st.integers(0, 999), _fields)


@given(_fingerprints)
def test_what_is_decoded_is_what_was_encoded(fingerprint: Fingerprint) -> None:
    assert Fingerprint.decode(fingerprint.encode()) == fingerprint


@given(_fields, st.randoms())
def test_the_order_of_a_dict_does_not_matter(fields: dict[str, Any], random: Any) -> None:
    items = list(fields.items())
    random.shuffle(items)
    one, two = (Fingerprint(Role.FFN, 0, f) for f in (fields, dict(items)))
    assert one.encode() == two.encode()
    assert mismatch(one, two) is None


@given(_fingerprints, _fingerprints)
def test_unequal_fingerprints_have_unequal_texts(one: Fingerprint, two: Fingerprint) -> None:
    assert (one == two) is (one.encode() == two.encode())


_inputs = st.builds(
    lambda h, k, e, a, f, t, q, n: {
        "inputs": {
            "model": ModelShape(h, k, e),
            "max_num_batched_tokens": t,
            "dynamic_quant": q,
        },
        "topology": {"attention_ranks": a, "ffn_ranks": f, "attn_ranks_per_dp": n},
    },
    *[st.sampled_from([2, 3])] * 6,
    st.booleans(),
    st.sampled_from([1, 2]),
)


@given(_inputs, _inputs)
def test_a_mismatch_is_found_exactly_where_the_inputs_differ(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    mine, other = take(Role.ATTENTION, **one), take(Role.FFN, **two)
    travelled = Fingerprint.decode(other.encode())
    assert travelled is not None
    found = mismatch(mine, travelled)
    assert (found is None) is (one == two)
    assert (found is None) is (mismatch(travelled, mine) is None)


def _stored(**changes: Any) -> str:
    return json.dumps({**json.loads(take().encode()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "{}",
        "[]",
        "7",
        "null",
        '"text"',
        "[" * 100000,
        _stored(version=2),
        _stored(version=0),
        _stored(version="1"),
        _stored(version=None),
        _stored(role="both"),
        _stored(role=[]),
        _stored(rank="first"),
        _stored(rank=None),
        _stored(rank=float("inf")),
        _stored(rank=float("nan")),
        _stored(fields=None),
        _stored(fields=5),
        _stored(fields=["ab", 3]),
    ],
)
def test_another_version_or_garbage_is_ignored(text: str) -> None:
    assert Fingerprint.decode(text) is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries({"version": st.just(1), "role": _json, "rank": _json, "fields": _json})
)
def test_no_stored_value_raises(content: dict[str, Any]) -> None:
    Fingerprint.decode(json.dumps(content))


@given(st.text())
def test_no_text_raises(text: str) -> None:
    Fingerprint.decode(text)


def test_a_field_of_a_newer_minor_is_not_compared() -> None:
    known = take()
    more = Fingerprint(Role.FFN, 0, {**known.fields, "unheard_of": 1})
    fewer = Fingerprint(Role.FFN, 0, {"topk": known.fields["topk"]})
    assert mismatch(known, more) is None
    assert mismatch(more, known) is None
    assert mismatch(known, fewer) is None
