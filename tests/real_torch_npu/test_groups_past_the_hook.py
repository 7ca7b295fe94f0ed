# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A connector that makes one group more than it is known for, in several ways."""

import pytest

from worlds.expected import async_mb
from worlds.model import Connector, World

pytestmark = pytest.mark.torch_npu

_ASYNC = Connector(extra={"attn_ranks_per_dp": 2, "dynamicQuant": 1}, tensor_parallel=2)
_MB = async_mb(attention_ranks=2, ffn_ranks=1, tokens=8192, ranks_per_dp=2, quant=True)


def _world(way, expect_error=False, **more):
    steps = (
        {"do": "create", "connector": 0},
        {"do": "make_one_more", "connector": 0, "name": "more", "way": way, **more},
        {"do": "create", "connector": 0},
        {"do": "init", "connector": 0, "expect_error": expect_error},
    )
    return World(2, 1, (_ASYNC,), steps=steps)


@pytest.mark.parametrize("backend", ["hccl", "npu:hccl", "cpu:gloo,npu:hccl", "undefined", ""])
def test_one_by_the_modules_name_is_sized_whatever_its_backend_is_called(warmed, backend):
    for rank in warmed.run(_world("name", backend=backend)).ranks:
        sizes = {group.name: group.struct_mb for group in rank.groups if group.name != "default"}
        assert sizes == dict.fromkeys(("afd_async_cam", "more"), _MB[rank.role])
        assert rank.initialized == (True,)


@pytest.mark.parametrize("way", ["thread", "module"])
@pytest.mark.parametrize("backend", ["hccl", "undefined"])
def test_one_past_the_hook_stops_the_start(warmed, way, backend):
    for rank in warmed.run(_world(way, expect_error=True, backend=backend)).ranks:
        (error,) = rank.errors
        assert error["type"] == "SeamError"
        assert "HCCL group(s) more past the cam_hccl hook" in error["message"]


@pytest.mark.parametrize("way", ["thread", "module"])
def test_one_with_a_size_of_its_own_is_left_alone(warmed, way):
    report = warmed.run(_world(way, hccl_config={"hccl_buffer_size": 77}))
    for rank in report.ranks:
        assert rank.sizes() == {"afd_async_cam": _MB[rank.role], "more": 77}
