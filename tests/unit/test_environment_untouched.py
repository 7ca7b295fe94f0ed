# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``HCCL_BUFFSIZE`` is read and never written, by any path, whatever it holds."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest
from conftest import Stack
from fakes import async_config, camp2p_config

from cam_hccl_plugin.cli import main
from cam_hccl_plugin.errors import CamHcclError

PLAN = [
    *("plan", "--connector", "CAMAsyncAFDConnector"),
    *("--hidden-size", "7168", "--topk", "8", "--routed-experts", "256"),
    *("--attention-ranks", "16", "--ffn-ranks", "16", "--max-num-batched-tokens", "8192"),
]


@pytest.fixture(params=[None, "4096", "abc", "0"], autouse=True, ids=lambda raw: f"buffsize-{raw}")
def buffsize(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset, set, and set to nonsense."""
    if request.param is not None:
        monkeypatch.setenv("HCCL_BUFFSIZE", request.param)


class Unchanged:
    """A context in which the environment may not change."""

    def __enter__(self) -> None:
        self.environ = os.environ
        self.content = dict(os.environ)

    def __exit__(self, *_: object) -> None:
        assert os.environ is self.environ
        assert dict(os.environ) == self.content


@pytest.mark.parametrize("more", [[], ["--json"], ["--hccl-buffsize", "4096"], ["--topk", "0"]])
def test_the_plan_command(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refused = pytest.raises(SystemExit) if "0" in more else contextlib.nullcontext()
    with Unchanged(), refused:
        main([*PLAN, *more])


@pytest.mark.parametrize("role", ["attention", "ffn"])
@pytest.mark.parametrize("make", [async_config, camp2p_config])
def test_a_start(stack: Stack, make: Any, role: str) -> None:
    seen: list[str | None] = []
    stack.groups.before_create = lambda kwargs: seen.append(os.environ.get("HCCL_BUFFSIZE"))
    with Unchanged():
        expected = os.environ.get("HCCL_BUFFSIZE")
        connector = stack.start(make(role))
        connector.close()
        connector.init_afd_connector()
    assert set(seen) == {expected}


def test_a_start_that_leaves_a_group_to_the_environment(stack: Stack) -> None:
    with Unchanged():
        stack.start(camp2p_config("ffn", flag={"group_buffer_size_mb": {"afd_moe": None}}))


@pytest.mark.parametrize(
    "flag", [{"headroom": 0}, {"scope": "group"}, {"group_buffer_size_mb": {"x": 1}}]
)
def test_a_start_that_is_refused_early(stack: Stack, flag: dict[str, Any]) -> None:
    with Unchanged(), pytest.raises(CamHcclError):
        stack.create(camp2p_config(flag=flag))


def test_a_start_that_fails_late(stack: Stack) -> None:
    stack.groups.tamper = lambda options: setattr(options, "hccl_config", {})
    with Unchanged(), pytest.raises(CamHcclError):
        stack.start(async_config())


def test_a_rendezvous_that_fails(stack: Stack) -> None:
    def fail(kwargs: dict[str, Any]) -> None:
        raise TimeoutError

    stack.groups.before_create = fail
    with Unchanged(), pytest.raises(TimeoutError):
        stack.start(async_config())


def test_uninstalling(stack: Stack) -> None:
    with Unchanged():
        stack.start(async_config())
        stack.installation.disarm()
        stack.installation.arm()
