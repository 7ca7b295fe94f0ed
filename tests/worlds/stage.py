# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The scenery of a rank: afd_plugin on the path, a VllmConfig, a watch on process groups."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

_SEAM_DOUBLE = Path(__file__).resolve().parent.parent / "seam_double"
_OPERATOR_CHECKS = ("ensure_cam_async_ops_available", "ensure_cam_p2p_ops_available")


def put_afd_plugin_on_path(folder: Path, upstream: str | None) -> None:
    """Make ``afd_plugin`` importable, with the entry point that vLLM loads it by."""
    site = folder / "site"
    info = site / "vllm_afd_plugin-0.0.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-afd-plugin\nVersion: 0.0.0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nafd = afd_plugin:register_afd\n"
    )
    sys.path[:0] = [str(site), upstream or str(_SEAM_DOUBLE)]


def configure_logging() -> None:
    """Give the ``vllm`` loggers the level and handler that a worker has at default settings.

    vLLM 0.32 does so when a process starts its part; older ones do it on import.
    """
    from vllm import logger

    if hasattr(logger, "configure_logging"):
        from vllm.config.logging import LoggingConfig

        logger.configure_logging(LoggingConfig())


def vllm_config(
    world: dict[str, Any], connector: dict[str, Any], role: str, role_rank: int
) -> SimpleNamespace:
    """A stand-in for VllmConfig with the parts that a connector and the plugin may read."""
    number = 0 if world["one_port"] else world["connectors"].index(connector)
    connector = connector | connector["by_role"].get(role, {})
    role_ranks = world[f"{role}_ranks"]
    tensor_parallel = connector["tensor_parallel"]
    additional: dict[str, Any] = {
        "afd": {
            "connector": connector["name"],
            "role": role,
            "host": "127.0.0.1",
            "port": world["ports"][number],
            "num_attention_ranks": connector.get("num_attention_ranks", world["attention_ranks"]),
            "num_ffn_ranks": connector.get("num_ffn_ranks", world["ffn_ranks"]),
            "connector_extra_config": connector["extra"],
        }
    }
    if _configuration_holds_the_role_rank():
        additional["afd"]["afd_role_rank"] = role_rank
    if connector["flag"] is not None:
        additional["cam_hccl"] = connector["flag"]
    hf_config = SimpleNamespace(
        hidden_size=connector["hidden_size"],
        num_experts_per_tok=connector["topk"],
        n_routed_experts=connector["routed_experts"],
    )
    return SimpleNamespace(
        additional_config=additional,
        kv_transfer_config=None,
        model_config=SimpleNamespace(hf_config=hf_config, hf_text_config=hf_config),
        scheduler_config=SimpleNamespace(
            max_num_batched_tokens=connector["tokens"][role == "ffn"], max_num_seqs=8
        ),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=tensor_parallel,
            prefill_context_parallel_size=1,
            pipeline_parallel_size=1,
            data_parallel_size=max(1, role_ranks // tensor_parallel),
            data_parallel_rank=role_rank // tensor_parallel,
            num_ubatches=connector["num_ubatches"],
        ),
        cache_config=SimpleNamespace(gpu_memory_utilization=connector["gpu_memory_utilization"]),
    )


def _configuration_holds_the_role_rank() -> bool:
    """Some upstream trees take the role's rank from the AFD configuration, not from vLLM."""
    from afd_plugin.config import AFDConfig

    return "afd_role_rank" in AFDConfig.__dataclass_fields__


def neutralise_operator_checks(connector: Any) -> None:
    """CAM operators do not exist on a CPU: the only thing replaced in a real afd-plugin."""
    module = sys.modules[type(connector).__module__]
    for name in _OPERATOR_CHECKS:
        if hasattr(module, name):
            setattr(module, name, lambda: None)


class GroupWatch:
    """Sees each process group that torch is asked for, and later what torch-npu made of it."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.caller_options: list[Any] = []
        self.last_created = time.monotonic()
        self._known: set[Any] = set()

    def start(self) -> None:
        """Watch torch's own group function; called before afd_plugin is imported."""
        from torch.distributed import distributed_c10d

        original = distributed_c10d._new_process_group_helper

        def watched(*args: Any, **kwargs: Any) -> Any:
            options = kwargs.get("backend_options")
            config = None if options is None else dict(getattr(options, "hccl_config", {}))
            self.seen.append(
                {
                    "name": kwargs.get("group_name"),
                    "backend": str(args[3]),
                    "requested": config,
                    "read_back": None,
                }
            )
            made = original(*args, **kwargs)
            self.last_created = time.monotonic()
            return made

        distributed_c10d._new_process_group_helper = watched

    def note_default(self) -> None:
        """Make the worker's own communicator, as any collective would, and set it apart."""
        self.seen[-1]["name"] = "default"
        self.read_back()

    def read_back(self) -> None:
        """Ask torch-npu what it holds for the groups made since the last call."""
        import torch
        from torch.distributed import distributed_c10d

        world = distributed_c10d._world
        for group, (backend, _store) in list(world.pg_map.items()):
            if group in self._known or backend != "hccl":
                continue
            self._known.add(group)
            made = group._get_backend(torch.device("npu"))
            is_default = group is world.default_pg
            if is_default:
                made.get_hccl_comm_name(group.rank())
            name = "default" if is_default else world.pg_names[group]
            entry = [seen for seen in self.seen if seen["name"] == name][-1]
            entry["read_back"] = dict(made.options.hccl_config)


def give_caller_options(connector: Any, world: dict[str, Any], watch: GroupWatch) -> None:
    """Let a generation b connector pass options that hold ``caller_hccl_config``."""
    wanted = world["caller_hccl_config"]
    if wanted is None:
        return
    import torch_npu
    from torch.distributed import ProcessGroupGloo

    def options_of_the_caller(_size: int | None) -> Any:
        if isinstance(wanted, str):
            return {} if wanted == "dict" else ProcessGroupGloo._Options()
        options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
        options.hccl_config = dict(wanted)
        watch.caller_options.append(options)
        return options

    module: ModuleType = sys.modules[type(connector).__module__]
    if hasattr(module, "create_hccl_process_group_options"):
        module.create_hccl_process_group_options = options_of_the_caller
    else:
        module.afd_process_group.hccl_options = options_of_the_caller


def hccl_options(hccl_config: dict[str, Any] | None) -> Any:
    """torch-npu's options that hold ``hccl_config``, or None."""
    if hccl_config is None:
        return None
    import torch_npu

    options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
    options.hccl_config = dict(hccl_config)
    return options


def group_names() -> list[str]:
    """The process groups that torch knows now."""
    from torch.distributed import distributed_c10d

    return [str(name) for name in distributed_c10d._world.pg_names.values()]


def private_mib() -> float:
    """Memory of this process that it shares with no other."""
    total_kib = 0
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_"):
            total_kib += int(line.split()[1])
    return total_kib / 1024
