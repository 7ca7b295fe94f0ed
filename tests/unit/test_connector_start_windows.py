# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""One connector's start: judging operator windows, and following them."""

from __future__ import annotations

from typing import Any

import pytest
from start_case import CAMP2P, SIZE, Lines, Start
from torch_double import TorchDouble

from cam_hccl_plugin.errors import InjectionError, PlanError
from cam_hccl_plugin.model import Role


class TestWindows:
    def test_a_loaded_build_is_judged(self, torch: Any, log: Lines) -> None:
        torch.register("afd_ascend", "afd_async_dispatch_send")
        Start(torch).run()
        assert "LCCL_BUFFER_SIZE=unset makes it 408 MB" in log.text("WARNING")
        assert "lower LCCL_BUFFER_SIZE to 139" in log.text("WARNING")

    @pytest.mark.parametrize("raw", ["10", "0"])
    def test_too_small_asks_for_the_plans_number(
        self, torch: Any, log: Lines, monkeypatch: pytest.MonkeyPatch, raw: str
    ) -> None:
        monkeypatch.setenv("LCCL_BUFFER_SIZE", raw)
        torch.register("afd_ascend", "afd_async_dispatch_send")
        Start(torch, Role.FFN).run()
        assert "tiling failed" in log.text("WARNING")
        assert "export LCCL_BUFFER_SIZE=113 on every ffn rank" in log.text("WARNING")

    def test_only_the_first_rank_warns(self, torch: Any, log: Lines) -> None:
        torch.register("afd_ascend", "afd_async_dispatch_send")
        Start(torch, first=False).run()
        assert log.text("WARNING") == ""
        assert "LCCL_BUFFER_SIZE" in log.text("DEBUG")

    def test_without_a_build_nothing_is_said(self, torch: Any, log: Lines) -> None:
        Start(torch).run()
        assert "operator window" not in "".join(text for _, text in log.lines)

    @pytest.mark.parametrize("raw", ["1", "9999"])
    def test_camp2p_believes_nothing(
        self, torch: Any, log: Lines, monkeypatch: pytest.MonkeyPatch, raw: str
    ) -> None:
        monkeypatch.setenv("LCCL_BUFFER_SIZE", raw)
        torch.register("afd_ascend", "a2e", "e2a", "afd_async_dispatch_send")
        start = Start(torch, connector=CAMP2P, operator_window="follow")
        start.names = ("afd", "afd1")
        start.run()
        assert "operator window (" not in "".join(text for _, text in log.lines)
        assert 9999 not in start.sizes.values()


class TestFollow:
    @pytest.fixture(autouse=True)
    def _loaded(self, torch: TorchDouble) -> None:
        torch.register("afd_ascend", "afd_async_dispatch_send")

    @pytest.mark.parametrize("role", Role)
    def test_it_raises_a_derived_size(self, torch: Any, log: Lines, role: Role) -> None:
        start = Start(torch, role, operator_window="follow")
        start.run()
        assert start.sizes == {"afd_async_cam": 408}
        assert log.text("WARNING") == ""
        assert "raised to the operator window" in log.text("INFO")

    def test_scoped_does_not(self, torch: Any) -> None:
        start = Start(torch)
        start.run()
        assert start.sizes == {"afd_async_cam": SIZE[Role.ATTENTION]}

    @pytest.mark.parametrize(
        "fixed",
        [
            {"role_sizes_mib": {Role.ATTENTION: 300}},
            {"group_sizes_mib": {"afd_async_cam": 300}},
        ],
    )
    def test_a_fixed_size_stays(self, torch: Any, fixed: dict[str, Any]) -> None:
        start = Start(torch, operator_window="follow", **fixed)
        start.run()
        assert start.sizes == {"afd_async_cam": 300}

    def test_a_group_left_alone_stays(self, torch: Any) -> None:
        start = Start(torch, operator_window="follow", group_sizes_mib={"afd_async_cam": None})
        start.run()
        assert start.sizes == {"afd_async_cam": None}

    def test_the_callers_size_stays(self, torch: Any) -> None:
        start = Start(torch, operator_window="follow", caller_mib=300)
        start.run()
        assert start.sizes == {"afd_async_cam": 300}

    def test_scope_group_comes_first(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LCCL_BUFFER_SIZE", "120")
        start = Start(torch, Role.FFN, operator_window="follow", scope="group")
        start.run()
        assert start.sizes == {"afd_async_cam": SIZE[Role.ATTENTION]}

    def test_a_window_that_does_not_fit_the_device_is_refused_before_the_group(
        self, torch: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LCCL_BUFFER_SIZE", "600")
        start = Start(torch, operator_window="follow", total_bytes=lambda: 2**30)
        with pytest.raises(PlanError, match="1200 MiB"):
            start.run()
        assert start.sizes == {}

    def test_a_window_that_hccl_cannot_take_is_refused_without_a_device_to_ask(
        self, torch: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unreadable() -> int:
            raise InjectionError("no such device")

        monkeypatch.setenv("LCCL_BUFFER_SIZE", "-1")
        start = Start(torch, operator_window="follow", total_bytes=unreadable)
        with pytest.raises(PlanError, match=r"LCCL_BUFFER_SIZE=-1.*at most 4294967294"):
            start.run()
        assert start.sizes == {}
