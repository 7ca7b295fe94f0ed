# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Checks that many worlds share, for the double of upstream and for a real checkout."""

from __future__ import annotations

from worlds.model import Group, RankReport, WorldReport

_SIZE = "hccl_buffer_size"


def hccl_groups(rank: RankReport) -> list[Group]:
    """The connectors' HCCL groups of one rank."""
    return [g for g in rank.groups if g.backend == "hccl" and g.name != "default"]


def check_sizes(report: WorldReport, expected: dict[str, dict[str, int]]) -> None:
    """Every group of every rank was asked for, holds and gives HCCL the size of its role.

    ``expected`` maps role to group name to MB.
    """
    for rank in report.ranks:
        assert rank.plugin_loaded
        assert rank.sizes() == expected[rank.role]
        for group in hccl_groups(rank):
            wanted = expected[rank.role][group.name]
            assert group.requested is not None
            assert group.requested[_SIZE] == wanted
            assert group.read_back is not None
            assert group.read_back[_SIZE] == wanted


def check_left_alone(report: WorldReport, expected_mb: int) -> None:
    """No group was given options; HCCL gets what the environment or its default says."""
    for rank in report.ranks:
        assert hccl_groups(rank)
        for group in hccl_groups(rank):
            assert group.requested is None
            assert group.struct_mb == expected_mb


def check_others_untouched(report: WorldReport, hccl_buffsize: str | None) -> None:
    """The worker's own group and the environment are as they are without the plugin."""
    for rank in report.ranks:
        assert rank.hccl_buffsize == (hccl_buffsize, hccl_buffsize)
        own = rank.default_group
        assert own.requested is None
        assert own.struct_mb == (200 if hccl_buffsize is None else int(hccl_buffsize))
        assert [g.requested for g in rank.groups if g.backend == "gloo"] in ([], [None])


def quiet(report: WorldReport) -> bool:
    """Nothing was logged above DEBUG by the plugin."""
    return not [line for rank in report.ranks for line in rank.logs if line[0] != "DEBUG"]
