# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Stand-ins for torch, torch-npu, VllmConfig and the HCCL side of a process group.

They do what the contract says the real ones do: a group keeps a copy of its options and
writes into the object that it was handed, options of another type are ignored without a
word, and a group name cannot be used twice.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

GIB = 2**30

GENERIC = """
from datetime import timedelta
from afd_plugin.connectors.base import AFDConnectorBase
from afd_plugin.distributed import afd_process_group
from afd_plugin.distributed import init_afd_process_group

class CAMOtherConnector(AFDConnectorBase):
    wanted = [("one", "hccl"), ("two", "npu:hccl"), ("talk", "gloo")]
    pg_options = {}

    def init_afd_connector(self):
        self.groups = {}
        for name, backend in self.wanted:
            options = {}
            if name in self.pg_options:
                options["pg_options"] = self.pg_options[name]
            self.groups[name] = init_afd_process_group(
                backend=backend, init_method="tcp://127.0.0.1:1", world_size=2,
                rank=self.role_rank, group_name=name, timeout=timedelta(minutes=1), **options)
        self._initialized = True

    def close(self):
        for group in self.groups.values():
            afd_process_group.destroy_group(group)
        self._initialized = False
"""
"""Source of somebody else's connector: two HCCL groups and one of Gloo."""


class Options:
    """``ProcessGroupHCCL.Options``: settable attributes, one that is not, and a method."""

    def __init__(self) -> None:
        self.hccl_config: dict[str, Any] = {}
        self.is_high_priority_stream = False
        self.global_ranks_in_group: list[int] = []
        self.group_id = ""
        self._timeout: Any = None

    @property
    def backend(self) -> str:
        return "hccl"

    def describe(self) -> str:
        return f"options {self.hccl_config}"


class _Backend:
    def __init__(self, name: str, options: Any) -> None:
        self.options = options
        self._name = name

    def get_hccl_comm_name(self, rank: int) -> str:
        return f"group_name_{self._name}"


class Group:
    """A process group; its HCCL options are a copy."""

    def __init__(self, name: str, options: Any) -> None:
        self.name = name
        self.backend = _Backend(name, options)

    def _get_backend(self, device: Any) -> Any:
        return self.backend


class Groups:
    """Creates and destroys groups, and remembers with which arguments."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.alive: list[str] = []
        self.destroyed: list[str] = []
        self.before_create: Callable[[dict[str, Any]], None] = lambda kwargs: None
        self.tamper: Callable[[Options], None] = lambda held: None

    def create(self, **kwargs: Any) -> Group:
        self.calls.append(kwargs)
        self.before_create(kwargs)
        name = kwargs["group_name"]
        if name in self.alive:
            raise RuntimeError(f"group {name} exists already")
        given = kwargs.get("pg_options")
        held = Options()
        if isinstance(given, Options):
            held = copy.deepcopy(given)
            given._timeout = kwargs.get("timeout")
        self.tamper(held)
        self.alive.append(name)
        return Group(name, held)

    def destroy(self, group: Group) -> None:
        self.alive.remove(group.name)
        self.destroyed.append(group.name)

    @property
    def sizes(self) -> dict[str, Any]:
        """Group name to the size that was handed over, ``None`` without options."""
        return {
            call["group_name"]: None
            if call.get("pg_options") is None
            else call["pg_options"].hccl_config.get("hccl_buffer_size")
            for call in self.calls
        }


def fake_torch(groups: Groups, total_bytes: int = 64 * GIB) -> types.ModuleType:
    torch = types.ModuleType("torch")
    torch.device = lambda name: name  # type: ignore[attr-defined]  # a module takes attributes
    torch.npu = types.SimpleNamespace(  # type: ignore[attr-defined]  # the same
        mem_get_info=lambda: (total_bytes // 2, total_bytes)
    )
    torch.distributed = types.SimpleNamespace(  # type: ignore[attr-defined]  # the same
        destroy_process_group=groups.destroy
    )
    return torch


def fake_torch_npu() -> types.ModuleType:
    torch_npu = types.ModuleType("torch_npu")
    c10d = types.SimpleNamespace(ProcessGroupHCCL=types.SimpleNamespace(Options=Options))
    torch_npu._C = types.SimpleNamespace(  # type: ignore[attr-defined]  # a module takes attributes
        _distributed_c10d=c10d
    )
    return torch_npu


def hf_config(hidden: int = 7168, topk: int = 8, experts: int = 256) -> Any:
    return types.SimpleNamespace(
        hidden_size=hidden, num_experts_per_tok=topk, n_routed_experts=experts
    )


def vllm_config(
    *,
    connector: str = "CAMAsyncAFDConnector",
    role: str = "attention",
    attention_ranks: int = 16,
    ffn_ranks: int = 16,
    tokens: Any = 8192,
    tp: int = 8,
    pcp: int = 1,
    ubatches: int = 0,
    extra: dict[str, Any] | None = None,
    flag: Any = None,
    utilization: Any = 0.9,
    model: Any = None,
) -> Any:
    """A VllmConfig with what the plugin and the double read; ``flag=None`` means no flag."""
    afd: dict[str, Any] = {
        "connector": connector,
        "role": role,
        "num_attention_ranks": attention_ranks,
        "num_ffn_ranks": ffn_ranks,
    }
    if extra is not None:
        afd["connector_extra_config"] = extra
    additional: dict[str, Any] = {"afd": afd}
    if flag is not None:
        additional["cam_hccl"] = flag
    model = model or hf_config()
    return types.SimpleNamespace(
        additional_config=additional,
        kv_transfer_config=None,
        model_config=types.SimpleNamespace(hf_text_config=model, hf_config=model),
        scheduler_config=types.SimpleNamespace(max_num_batched_tokens=tokens),
        parallel_config=types.SimpleNamespace(
            tensor_parallel_size=tp,
            prefill_context_parallel_size=pcp,
            data_parallel_size=1,
            data_parallel_rank=0,
            num_ubatches=ubatches,
        ),
        cache_config=types.SimpleNamespace(gpu_memory_utilization=utilization),
    )


def async_config(role: str = "attention", **changes: Any) -> Any:
    """DeepSeek-V3.2, 16 + 16, 8192 tokens, DP groups of 8: 139 MB Attention, 113 MB FFN."""
    extra = {"dynamicQuant": 1, "attn_ranks_per_dp": 8, **changes.pop("extra", {})}
    return vllm_config(role=role, extra=extra, **{"flag": {}, **changes})


def camp2p_config(role: str = "attention", **changes: Any) -> Any:
    """DeepSeek-V3.2, 48 + 16, 28 and 84 tokens: 4 MB Attention, 52 MB FFN."""
    defaults = {
        "connector": "CAMP2pAFDConnector",
        "attention_ranks": 48,
        "ffn_ranks": 16,
        "tokens": 28 if role == "attention" else 84,
        "tp": 1,
        "flag": {},
    }
    return vllm_config(role=role, **{**defaults, **changes})
