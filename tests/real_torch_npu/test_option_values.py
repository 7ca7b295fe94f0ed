# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What the real torch-npu does with sizes, good and bad: why ours are validated by us."""

import pytest

from cann_shim.recording import attempted

pytestmark = pytest.mark.torch_npu

_NOT_AN_INT = "Value type of hccl_buffer_size should be int."


def _size_given(warmed, value):
    result, calls = warmed.probe("size_through_a_group", hccl_config={"hccl_buffer_size": value})
    return result, [call.buffer_size_mb for call in calls]


@pytest.mark.parametrize("value", [1, 321, 4096, 32768, 2**31, 2**32 - 2, 2**32 - 1])
def test_a_size_up_to_32_bits_reaches_hccl_as_it_is(warmed, value):
    result, sizes = _size_given(warmed, value)
    assert result == {"stopped_at": None, "read_back": {"hccl_buffer_size": value}}
    assert sizes == [value]


@pytest.mark.parametrize(("value", "arrives"), [(0, 0), (True, 1)])
def test_zero_and_true_are_passed_on_unchecked(warmed, value, arrives):
    result, sizes = _size_given(warmed, value)
    assert result["stopped_at"] is None
    assert sizes == [arrives]


@pytest.mark.parametrize("value", [-1, "256", "abc", 2**32, 2**40])
def test_a_wrong_value_is_kept_and_fails_only_with_the_communicator(warmed, value):
    result, sizes = _size_given(warmed, value)
    assert result["stopped_at"] == "communicator"
    assert _NOT_AN_INT in result["error"]["message"]
    assert sizes == []


@pytest.mark.parametrize("value", [1.5, 256.0, None, 2**64])
def test_a_value_of_an_unknown_type_is_refused_at_assignment(warmed, value):
    result, sizes = _size_given(warmed, value)
    assert result["stopped_at"] == "assignment"
    assert result["error"]["type"] == "TypeError"
    assert sizes == []


@pytest.mark.parametrize("kind", ["dict", "int", "gloo"])
def test_options_of_another_type_are_ignored_without_a_word(warmed, kind):
    result, calls = warmed.probe("options_of_another_type", kind=kind)
    assert result == {"read_back": {}}
    assert [call.buffer_size_mb for call in calls] == [200]


def test_the_group_keeps_a_copy_of_the_options(warmed):
    result, calls = warmed.probe("change_options_afterwards")
    assert result == {"read_back": {"hccl_buffer_size": 321}}
    assert [call.buffer_size_mb for call in calls] == [321]


def test_other_settings_arrive_beside_the_size(warmed):
    both = {"hccl_buffer_size": 321, "hccl_op_expansion_mode": 3}
    result, (call,) = warmed.probe("size_through_a_group", hccl_config=both)
    assert result["read_back"] == both
    assert (call.buffer_size_mb, call.op_expansion_mode) == (321, 3)


def test_the_communicator_is_named_after_the_group(warmed):
    _, (call,) = warmed.probe("size_through_a_group", hccl_config=None)
    assert call.name == f"group_name_{call.group_name}"


def test_the_name_can_be_asked_for_without_making_a_communicator(warmed):
    result, calls = warmed.probe("name_before_and_after_the_communicator")
    assert result == {"before": "", "after": calls[0].name}
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, 200),
        ({"HCCL_BUFFSIZE": "4096"}, 4096),
        ({"HCCL_BUFFSIZE": "1"}, 1),
        ({"HCCL_BUFFSIZE": "4096.5"}, 4096),
        ({"HCCL_BUFFSIZE": str(2**32 + 7)}, 7),
    ],
)
def test_without_a_size_the_environment_or_200_counts(warmed, env, expected):
    result, (call,) = warmed.probe("size_through_a_group", hccl_config=None, env=env)
    assert result["stopped_at"] is None
    assert call.buffer_size_mb == expected
    assert call.hccl_buffsize == env.get("HCCL_BUFFSIZE")


@pytest.mark.parametrize("size", [None, 321])
@pytest.mark.parametrize("text", ["abc", "", "0", "-5"])
def test_an_unusable_environment_fails_the_first_communicator_even_with_a_size(warmed, text, size):
    config = None if size is None else {"hccl_buffer_size": size}
    env = {"HCCL_BUFFSIZE": text}
    result, calls = warmed.probe("size_through_a_group", hccl_config=config, env=env)
    assert result["stopped_at"] == "communicator"
    assert calls == []


def test_a_size_in_the_options_wins_over_the_environment(warmed):
    env = {"HCCL_BUFFSIZE": "4096"}
    config = {"hccl_buffer_size": 321}
    _, (call,) = warmed.probe("size_through_a_group", hccl_config=config, env=env)
    assert call.buffer_size_mb == 321


@pytest.mark.parametrize(("first", "expected"), [(None, [200, 200]), ("300", [300, 300])])
def test_the_environment_is_read_once_per_process(warmed, first, expected):
    _, calls = warmed.probe("environment_change_between_groups", first=first, second="4096")
    made = attempted(calls)
    assert [call.buffer_size_mb for call in made] == expected
    assert made[1].hccl_buffsize == "4096"


@pytest.mark.parametrize(
    ("env", "total_mib", "free_mib"),
    [
        ({}, 65536, 61440),
        ({"CAM_HCCL_SHIM_TOTAL_MIB": "512"}, 512, 0),
        ({"CAM_HCCL_SHIM_TOTAL_MIB": "2048", "CAM_HCCL_SHIM_FREE_MIB": "100"}, 2048, 100),
    ],
)
def test_device_memory_is_what_the_shim_is_told(warmed, env, total_mib, free_mib):
    result, _ = warmed.probe("device_memory", env=env)
    assert result == {"total": total_mib * 2**20, "free": free_mib * 2**20}
