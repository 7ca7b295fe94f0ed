# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""One connector's start: comparing the roles, and the ledger."""

from __future__ import annotations

import json
from typing import Any

import pytest
from start_case import CAMP2P, Lines, Start
from torch_double import Options, Store

from cam_hccl_plugin import torch_process
from cam_hccl_plugin.errors import InjectionError, SeamError
from cam_hccl_plugin.model import Role


class TestRoles:
    def test_one_compare_set_a_connector_in_the_first_common_group(self, torch: Any) -> None:
        start = Start(torch, Role.FFN, connector=CAMP2P)
        start.run()
        assert len(start.store.asked) == 1
        (text,) = start.store.values.values()
        assert json.loads(text)["fields"]["connector_kind"] == "camp2p"

    def test_a_group_of_one_role_is_not_used(self, torch: Any) -> None:
        start = Start(torch, Role.FFN, connector=CAMP2P)
        start.names = ("afd_moe",)
        start.run()
        assert start.store.asked == []

    def test_equal_roles_pass_in_silence(self, torch: Any, log: Lines) -> None:
        store = Store()
        for role in Role:
            Start(torch, role, store=store).run()
        assert len(store.values) == 1
        assert log.text("WARNING") == ""

    def test_the_raising_rank_closes_its_group_first(self, torch: Any, log: Lines) -> None:
        store = Store()
        Start(torch, Role.ATTENTION, store=store).run()
        with pytest.raises(InjectionError, match=r"topk is 6 on ffn .* and 8 on attention"):
            Start(torch, Role.FFN, store=store, topk=6).run()
        assert torch.closed == ["afd_async_cam"]
        assert "topk is 6" in log.text("ERROR")

    def test_warn_goes_on(self, torch: Any, log: Lines) -> None:
        store = Store()
        Start(torch, store=store).run()
        Start(torch, Role.FFN, store=store, topk=6, on_mismatch="warn").run()
        assert torch.closed == []
        assert "topk is 6" in log.text("WARNING")

    def test_a_warning_comes_from_every_rank(self, torch: Any, log: Lines) -> None:
        store = Store()
        Start(torch, store=store).run()
        Start(torch, Role.FFN, store=store, topk=6, on_mismatch="warn", first=False).run()
        assert "topk is 6" in log.text("WARNING")

    def test_a_store_without_compare_set_is_a_debug_line(self, torch: Any, log: Lines) -> None:
        Start(torch, store=object()).run()
        assert "roles not compared" in log.text("DEBUG")
        assert log.text("WARNING") == ""

    def test_a_stored_value_of_another_version_is_ignored(self, torch: Any, log: Lines) -> None:
        store = Store()
        Start(torch, store=store).run()
        (key,) = store.values
        store.values[key] = store.values[key].replace('"version":1', '"version":2')
        Start(torch, Role.FFN, store=store, topk=6).run()
        store.values[key] = "garbage"
        Start(torch, Role.FFN, store=store, topk=6).run()
        assert log.text("WARNING") == ""

    def test_another_connector_and_another_start_have_keys_of_their_own(self, torch: Any) -> None:
        store = Store()
        first = Start(torch, store=store)
        first.run()
        first.run()
        Start(torch, store=store, number=1, topk=6).run()
        assert len(set(store.asked)) == 3

    def test_the_size_of_scope_group_is_that_of_the_group(self, torch: Any) -> None:
        start = Start(torch, scope="group")
        start.run()
        (text,) = start.store.values.values()
        assert json.loads(text)["fields"]["buffer_size_mb"] == start.sizes["afd_async_cam"]


class TestGroupsPastTheHook:
    """Groups that the connector makes another way, beside those that go through the hook."""

    @staticmethod
    def start(torch: Any, options: Any = None, backend: str = "hccl", **changes: Any) -> Start:
        class MakesOneMore(Start):
            def _init(self) -> None:
                super()._init()
                torch.make("past", options, backend=backend)

        return MakesOneMore(torch, **changes)

    def test_one_without_a_size_stops_the_start(self, torch: Any, log: Lines) -> None:
        torch.make("0", ranks=32)  # was there before: no affair of the connector
        with pytest.raises(SeamError) as caught:
            self.start(torch).run()
        for words in ("CAMAsyncAFDConnector", "past", "afd-plugin 0", "switch the plugin off"):
            assert words in str(caught.value)
        assert "0," not in str(caught.value)

    def test_one_without_a_named_backend_stops_the_start(self, torch: Any) -> None:
        class MakesOneMore(Start):
            def _init(self) -> None:
                super()._init()
                torch.make("past", backend="undefined", backend_config="cpu:gloo,npu:hccl")

        with pytest.raises(SeamError, match="past"):
            MakesOneMore(torch).run()

    def test_one_with_a_size_of_its_own_is_left_alone(self, torch: Any, log: Lines) -> None:
        self.start(torch, Options(50)).run()
        assert "50  caller's options" in log.text("INFO")

    def test_one_of_another_backend_is_left_alone(self, torch: Any) -> None:
        self.start(torch, backend="gloo").run()

    def test_a_planned_group_left_alone_went_through(self, torch: Any) -> None:
        Start(torch, group_sizes_mib={"afd_async_cam": None}).run()


class TestLedger:
    def test_the_origins(self, torch: Any, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HCCL_BUFFSIZE", "4096")
        torch.make("0", ranks=32)
        torch.make("mine", Options(77), ranks=8)
        torch.make("gloo", backend="gloo")
        Start(torch).run()
        (table,) = [text for _, text in log.lines if "HCCL communicators" in text]
        assert [line.split("  ")[0] for line in table.splitlines()[2:]] == [
            "0",
            "mine",
            "afd_async_cam",
            "sum",
        ]
        assert "4096  HCCL_BUFFSIZE" in table
        assert "77  caller's options" in table
        assert "139  cam_hccl" in table
        assert table.split()[-1] == str(2 * (4096 + 77 + 139))

    @pytest.mark.parametrize("size", ["4096", -1, 0, True, 3.5])
    def test_a_size_of_somebody_else_that_is_none_does_not_stop_the_start(
        self, torch: Any, log: Lines, size: Any
    ) -> None:
        torch.make("odd", Options(size), ranks=8)
        Start(torch).run()
        assert "200  HCCL default" in log.text("INFO")
        assert f"{2 * (139 + 200)}\n" in log.text("INFO") + "\n"

    def test_the_default(self, torch: Any, log: Lines) -> None:
        torch.make("0", ranks=32)
        Start(torch, group_sizes_mib={"afd_async_cam": None}).run()
        assert log.text("INFO").count("200  HCCL default") == 2

    def test_the_callers_own_size(self, torch: Any, log: Lines) -> None:
        Start(torch, caller_mib=300).run()
        assert "300  caller's options" in log.text("INFO")

    def test_a_followed_size_is_ours(self, torch: Any, log: Lines) -> None:
        torch.register("afd_ascend", "afd_async_dispatch_send")
        Start(torch, operator_window="follow").run()
        assert "408  cam_hccl" in log.text("INFO")

    def test_info_on_the_first_rank_only(self, torch: Any, log: Lines) -> None:
        Start(torch, first=False).run()
        assert "HCCL communicators" in log.text("DEBUG")
        assert log.text("INFO") == ""

    def test_false_is_silent(self, torch: Any, log: Lines) -> None:
        Start(torch, ledger=False).run()
        assert "HCCL communicators" not in "".join(text for _, text in log.lines)

    def test_a_torch_that_hides_its_groups_costs_the_ledger_only(
        self, torch: Any, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def hidden() -> None:
            raise InjectionError("AttributeError: pg_names")

        monkeypatch.setattr(torch_process, "hccl_groups", hidden)
        Start(torch).run()
        assert "ledger skipped" in log.text("INFO")
        assert "device_memory=278MB" in log.text("INFO")
