# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Script: config.json as transformers writes it, then read back through vLLM's own ModelConfig.

Argument: a directory; gets one folder per model and ``report.json``: ``models``, for each what
the plugin's adapter read from vLLM and through which object; ``scan``, all MoE classes.
"""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import transformers

SMALL = {"num_hidden_layers": 2, "vocab_size": 512}


@dataclass(frozen=True)
class Model:
    """A configuration class and what it is given, in its own spelling."""

    config_class: str
    architecture: str
    numbers: dict[str, Any]
    nested_in: str = ""
    vllm_refuses: tuple[str, ...] = ()

    def build(self) -> Any:
        """The configuration object; small where size costs time."""
        values = {**SMALL, **self.numbers}
        own = {self.nested_in: values} if self.nested_in else values
        return getattr(transformers, self.config_class)(**own, architectures=[self.architecture])


MODELS = {
    "deepseek_v2": Model(
        "DeepseekV2Config",
        "DeepseekV2ForCausalLM",
        {"hidden_size": 2048, "num_experts_per_tok": 6, "n_routed_experts": 64},
    ),
    "deepseek_v3": Model(
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {"hidden_size": 7168, "num_experts_per_tok": 8, "n_routed_experts": 256},
    ),
    "deepseek_v32": Model(
        "DeepseekV32Config",
        "DeepseekV32ForCausalLM",
        {"hidden_size": 7168, "num_experts_per_tok": 7, "n_routed_experts": 160},
    ),
    "deepseek_v4": Model(
        "DeepseekV4Config",
        "DeepseekV4ForCausalLM",
        {"hidden_size": 4096, "num_experts_per_tok": 6, "n_routed_experts": 384},
        vllm_refuses=("mlp_layer_types",),  # written by transformers, not in the published file
    ),
    "glm_moe_dsa": Model(
        "GlmMoeDsaConfig",
        "GlmMoeDsaForCausalLM",
        {"hidden_size": 6144, "num_experts_per_tok": 4, "n_routed_experts": 96},
    ),
    "qwen3_moe": Model(
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {"hidden_size": 2048, "num_experts_per_tok": 5, "num_experts": 120},
    ),
    "qwen3_5_moe": Model(
        "Qwen3_5MoeConfig",
        "Qwen3_5MoeForConditionalGeneration",
        {"hidden_size": 3072, "num_experts_per_tok": 10, "num_experts": 200},
        nested_in="text_config",
    ),
    "kimi_k25": Model(
        "Kimi_K25Config",
        "KimiK25ForConditionalGeneration",
        {
            "model_type": "deepseek_v3",
            "hidden_size": 7168,
            "num_experts_per_tok": 9,
            "n_routed_experts": 352,
        },
        nested_in="text_config",
    ),
    "minimax_m2": Model(
        "MiniMaxM2Config",
        "MiniMaxM2ForCausalLM",
        {"hidden_size": 3072, "num_experts_per_tok": 3, "num_local_experts": 192},
    ),
    "per_layer_topk": Model(
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        {
            "hidden_size": 1024,
            "num_experts_per_tok": 2,
            "num_experts": 16,
            "per_layer_config": {1: {"num_experts_per_tok": 4}},
        },
    ),
    "dense": Model("Qwen3Config", "Qwen3ForCausalLM", {"hidden_size": 1024}),
}


def as_vllm_reads_it(directory: Path, refused: tuple[str, ...]) -> Path:
    """The directory, or a copy without the fields that vLLM's own configuration class refuses."""
    if not refused:
        return directory
    config = json.loads((directory / "config.json").read_text())
    copy = directory.with_name(f"{directory.name}_for_vllm")
    copy.mkdir()
    kept = {key: value for key, value in config.items() if key not in refused}
    (copy / "config.json").write_text(json.dumps(kept))
    return copy


def inspect_in_this_process() -> None:
    """Spare vLLM a process of its own for each model class that it looks at.

    It starts one to keep CUDA out of the main process, about 10 s each; what is asked there
    stays the same.
    """
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()


def model_config_of(directory: Path) -> tuple[str, Any]:
    """vLLM's ModelConfig, or the two configurations in it where vLLM cannot inspect the model."""
    from vllm.config import ModelConfig
    from vllm.transformers_utils.config import get_config, get_hf_text_config

    try:
        return "ModelConfig", ModelConfig(model=str(directory), skip_tokenizer_init=True)
    except Exception as error:
        config = get_config(str(directory), trust_remote_code=False)
        text = get_hf_text_config(config)
        reason = f"get_config, for ModelConfig says {type(error).__name__}: {error}"
        return reason, SimpleNamespace(hf_config=config, hf_text_config=text)


def read_through_vllm(directory: Path) -> dict[str, Any]:
    """What ``read_inputs`` gets from vLLM's ModelConfig of this directory."""
    from cam_hccl_plugin.model import Topology
    from cam_hccl_plugin.settings import Settings
    from cam_hccl_plugin.vllm_adapter import read_inputs

    through, model_config = model_config_of(directory)
    vllm_config = SimpleNamespace(
        model_config=model_config,
        scheduler_config=SimpleNamespace(max_num_batched_tokens=8192),
        additional_config={},
    )
    topology = Topology(attention_ranks=1, ffn_ranks=1)
    inputs, missing = read_inputs(SimpleNamespace(), vllm_config, topology, Settings())
    shape = inputs.model if inputs else None
    count = getattr(model_config, "get_num_experts", None)
    return {
        "through": through,
        "experts_for_vllm": count() if count else None,
        "missing": missing,
        "shape": shape and [shape.hidden_size, shape.topk, shape.routed_experts],
    }


def scan_transformers() -> dict[str, Any]:
    """Every MoE configuration class of transformers at its defaults: both readings of it."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from cam_hccl_plugin.model_config import candidates, read_shape

    found = {}
    for model_type in CONFIG_MAPPING:
        config_class = CONFIG_MAPPING[model_type]
        if "expert" not in Path(inspect.getfile(config_class)).read_text():
            continue
        try:
            config = config_class()
        except Exception:  # no defaults of its own, or wants a package or the network for them
            continue
        text = config.get_text_config()
        if not any("expert" in k and type(v) is int for k, v in text.to_dict().items()):
            continue
        seen, missing = read_shape(candidates(text, config), "object", "")
        written, _ = read_shape(candidates(config.to_dict()), "config.json", "")
        found[model_type] = {"missing": missing, "same": seen == written}
    return found


def main() -> None:
    """Write every model, read it back, write the report."""
    root = Path(sys.argv[1])
    inspect_in_this_process()
    report: dict[str, Any] = {"scan": scan_transformers(), "models": {}}
    for name, model in MODELS.items():
        model.build().save_pretrained(root / name)
        for_vllm = as_vllm_reads_it(root / name, model.vllm_refuses)
        given = [value for value in model.numbers.values() if isinstance(value, int)]
        report["models"][name] = {"given": given, **read_through_vllm(for_vllm)}
    (root / "report.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
