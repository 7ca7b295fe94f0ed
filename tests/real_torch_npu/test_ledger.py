# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The ledger against the structures that HCCL received."""

import re

import pytest

from worlds.model import ASYNC, CAMP2P, Connector, World

pytestmark = pytest.mark.torch_npu

_TITLE = "HCCL communicators of this process:"
_ASYNC = Connector(name=ASYNC, tokens=(512, 512))
_CAMP2P = Connector(name=CAMP2P, tokens=(512, 1024), num_ubatches=2)


def _steps(*groups):
    """A connector in a process that also has other groups, which exist before it."""
    others = ({"do": "plain_group", "connector": 0, **group} for group in groups)
    return ({"do": "create", "connector": 0}, *others, {"do": "init", "connector": 0})


_OTHERS = ({"name": "mine", "hccl_config": {"hccl_buffer_size": 77}}, {"name": "plain"})


def _tables(rank, level="INFO"):
    return [text for name, text in rank.logs if name == level and _TITLE in text]


def _ledger(rank, level="INFO"):
    """Lines of the table by group name: (ranks, MB, origin, device MB); and the sum."""
    (text,) = _tables(rank, level)
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()[2:]]
    assert rows[-1][0] == "sum"
    lines = {name: (int(n), int(mb), origin, int(two)) for name, n, mb, origin, two in rows[:-1]}
    assert len(lines) == len(rows) - 1
    return lines, int(rows[-1][1])


def _structs(rank):
    """MB in the structure of every HCCL group, by torch's name of the group."""
    return {
        "0" if group.name == "default" else group.name: group.struct_mb
        for group in rank.groups
        if group.backend == "hccl"
    }


@pytest.mark.parametrize("env", [{}, {"HCCL_BUFFSIZE": "333"}])
@pytest.mark.parametrize("connector", [_ASYNC, _CAMP2P], ids=lambda c: c.name)
def test_sizes_are_those_that_hccl_received(warmed, connector, env):
    report = warmed.run(World(2, 1, (connector,), steps=_steps(*_OTHERS), env=env))
    unsized = "HCCL_BUFFSIZE" if env else "HCCL default"
    for role in ("attention", "ffn"):
        rank = report.of(role)[0]
        lines, total = _ledger(rank)
        structs = _structs(rank)
        assert None not in structs.values()
        assert {name: mb for name, (_, mb, _, _) in lines.items()} == structs
        assert all(two == 2 * mb for _, mb, _, two in lines.values())
        assert total == 2 * sum(structs.values())
        origins = {name: origin for name, (_, _, origin, _) in lines.items()}
        assert origins.pop("0") == unsized
        assert origins.pop("plain") == unsized
        assert origins.pop("mine") == "caller's options"
        assert set(origins.values()) == {"cam_hccl"}
        assert set(origins) == set(rank.sizes()) - {"mine", "plain"}
        assert lines["0"][:2] == (3, 333 if env else 200)
        assert lines["mine"][1] == 77


def test_ranks_are_those_of_the_group(warmed):
    rank = warmed.run(World(2, 1, (_CAMP2P,), steps=_steps())).of("ffn")[0]
    lines, _ = _ledger(rank)
    assert {name: line[0] for name, line in lines.items()} == {
        "0": 3,
        "afd": 3,
        "afd1": 3,
        "afd_moe": 1,
    }


def test_origins_of_groups_that_the_plugin_does_not_size(warmed):
    # The connector's own option wins in generation b, null leaves a group to the environment.
    connector = Connector(
        name=CAMP2P,
        tokens=(512, 1024),
        flag={"group_buffer_size_mb": {"afd_moe": None}},
        num_ubatches=2,
    )
    rank = warmed.run(World(2, 1, (connector,), steps=_steps())).of("ffn")[0]
    lines, _ = _ledger(rank)
    assert lines["afd_moe"][1:3] == (200, "HCCL default")
    assert lines["afd"][2] == "cam_hccl"
    caller = Connector(name=ASYNC, tokens=(512, 512), extra={"hccl_buffer_size": 350})
    report = warmed.run(World(2, 1, (caller,), generation="b", steps=_steps()))
    lines, _ = _ledger(report.of("ffn")[0])
    assert lines["afd_async_cam"][1:3] == (350, "caller's options")


def test_one_table_a_role_at_info_and_debug_elsewhere(warmed):
    report = warmed.run(World(2, 2, (_ASYNC,), log_level="DEBUG"))
    for role in ("attention", "ffn"):
        first, second = report.of(role)
        assert (len(_tables(first)), len(_tables(first, "DEBUG"))) == (1, 0)
        assert (len(_tables(second)), len(_tables(second, "DEBUG"))) == (0, 1)


def test_ledger_false_is_silent(warmed):
    connector = Connector(name=ASYNC, tokens=(512, 512), flag={"ledger": False})
    report = warmed.run(World(1, 1, (connector,), log_level="DEBUG"))
    for rank in report.ranks:
        assert "HCCL communicators" not in rank.log_text()
        assert "ledger" not in rank.log_text()
        assert "device_memory=" in rank.log_text("INFO")


def test_a_destroyed_group_is_not_listed(warmed):
    steps = tuple({"do": do, "connector": n} for n in (0, 1) for do in ("create", "init", "close"))
    rank = warmed.run(World(1, 1, (_ASYNC, _CAMP2P), steps=steps)).ranks[0]
    first, second = _tables(rank)
    assert "afd_async_cam" in first
    assert "afd_async_cam" not in second
    assert "afd1" in second
