# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The test bed tells the truth: no plugin in the warmed process, no hang, no silent failure."""

import time

import pytest

from worlds.client import WorldFailed
from worlds.model import CAMP2P, Connector, World

pytestmark = pytest.mark.torch_npu

_WITHOUT_US = {"VLLM_PLUGINS": "afd"}


def test_the_warmed_process_has_the_real_neighbours_and_no_plugin(warmed):
    result, _ = warmed.probe("loaded_modules")
    assert {"torch", "torch_npu", "vllm"} <= set(result["modules"])
    assert not {"afd_plugin", "cam_hccl_plugin"} & set(result["modules"])


def test_a_world_without_the_plugin_shows_the_groups_of_each_role(warmed):
    report = warmed.run(World(4, 2, (Connector(name=CAMP2P, num_ubatches=2),), env=_WITHOUT_US))
    assert not any(rank.plugin_loaded for rank in report.ranks)
    for rank in report.of("attention"):
        assert rank.sizes() == {"afd": 200, "afd1": 200}
    for rank in report.of("ffn"):
        assert rank.sizes() == {"afd": 200, "afd1": 200, "afd_moe": 200}
    gloo = [any(group.backend == "gloo" for group in rank.groups) for rank in report.ranks]
    assert gloo == [True, True, False, False, True, True]


def test_a_rank_that_fails_ends_the_world_with_its_log(warmed):
    bad = World(env=_WITHOUT_US | {"CAM_HCCL_SHIM_FAIL_COMM": "afd_async_cam"})
    start = time.monotonic()
    with pytest.raises(WorldFailed) as caught:
        warmed.run(bad)
    assert time.monotonic() - start < 20
    assert "exit status 1" in str(caught.value)
    assert "RuntimeError" in str(caught.value)


def test_a_rank_that_never_comes_is_not_waited_for(warmed):
    # The FFN rank leaves before the rendezvous, the Attention ranks would wait 30 minutes.
    steps = ({"do": "create", "connector": 0}, {"do": "leave", "role": "ffn"})
    steps += ({"do": "init", "connector": 0},)
    start = time.monotonic()
    with pytest.raises(WorldFailed, match="killed"):
        warmed.run(World(env=_WITHOUT_US, steps=steps, timeout_seconds=8))
    assert time.monotonic() - start < 20


def test_an_unknown_afd_key_is_refused_as_upstream_does(warmed):
    extra = {"hccl_buffer_size": 300}
    world = World(connectors=(Connector(extra=extra),), env=_WITHOUT_US)
    with pytest.raises(WorldFailed, match="hccl_buffer_size"):
        warmed.run(world)
