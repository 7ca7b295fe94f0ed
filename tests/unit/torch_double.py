# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""A process as torch-distributed sees it, without torch: groups, their stores, operators."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest


class Options:
    """The part of ``ProcessGroupHCCL.Options`` that carries a size."""

    def __init__(self, size: Any = None) -> None:
        self.hccl_config = {} if size is None else {"hccl_buffer_size": size}


class Store:
    """``compare_set`` of a TCPStore and nothing else: whatever could wait is an error."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.asked: list[str] = []

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        self.asked.append(key)
        if self.values.get(key, "") == expected:
            self.values[key] = desired
        return self.values[key].encode()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the store was asked for {name}")


class Group:
    """A process group of any backend; options of an HCCL group are copied."""

    def __init__(self, name: str, options: Any) -> None:
        self.name = name
        held = Options()
        held.hccl_config = dict(getattr(options, "hccl_config", {}))
        self.backend = types.SimpleNamespace(options=held)

    def _get_backend(self, device: Any) -> Any:
        assert device == "npu"
        return self.backend


class TorchDouble:
    """Modules ``torch`` and ``torch_npu``, and what was done with the groups."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, total_bytes: int = 2**36) -> None:
        self.world = types.SimpleNamespace(pg_map={}, pg_names={}, pg_group_ranks={})
        self.closed: list[str] = []
        self.torch: Any = types.ModuleType("torch")
        self.torch.device = lambda name: name
        self.torch.npu = types.SimpleNamespace(mem_get_info=lambda: (0, total_bytes))
        self.torch.ops = types.SimpleNamespace()
        c10d = types.SimpleNamespace(_world=self.world)
        self.torch.distributed = types.SimpleNamespace(
            distributed_c10d=c10d, destroy_process_group=self.close
        )
        torch_npu: Any = types.ModuleType("torch_npu")
        hccl = types.SimpleNamespace(Options=Options)
        c10d_of_npu = types.SimpleNamespace(ProcessGroupHCCL=hccl)
        torch_npu._C = types.SimpleNamespace(_distributed_c10d=c10d_of_npu)
        monkeypatch.setitem(sys.modules, "torch", self.torch)
        monkeypatch.setitem(sys.modules, "torch_npu", torch_npu)

    def make(
        self, name: str, options: Any = None, ranks: int = 2, backend: str = "hccl", store: Any = 0
    ) -> Group:
        """A group that torch knows from now on."""
        group = Group(name, options)
        self.world.pg_map[group] = (backend, store)
        self.world.pg_names[group] = name
        self.world.pg_group_ranks[group] = {rank: rank for rank in range(ranks)}
        return group

    def close(self, group: Group) -> None:
        """``destroy_process_group``."""
        self.closed.append(group.name)
        for table in vars(self.world).values():
            table.pop(group)

    def register(self, namespace: str, *names: str) -> None:
        """Operators in ``torch.ops``."""
        found = getattr(self.torch.ops, namespace, None) or types.SimpleNamespace()
        for name in names:
            setattr(found, name, object())
        setattr(self.torch.ops, namespace, found)
