# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Shapes of well-known MoE models, for planning where the model directory is not at hand.

Three published numbers each, the routed experts without shared ones. A ``config.json``
always wins over this table: nothing here is used unless the user names a shape.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.model import ModelShape


@dataclass(frozen=True)
class KnownShape:
    """A shape and the public place that its numbers were read from."""

    shape: ModelShape
    source: str


def _known(hidden_size: int, topk: int, routed_experts: int, source: str) -> KnownShape:
    return KnownShape(ModelShape(hidden_size, topk, routed_experts), source)


_V3 = _known(7168, 8, 256, "transformers 5.19, defaults of DeepseekV3Config")
_V32 = _known(7168, 8, 256, "transformers 5.19, defaults of DeepseekV32Config (V3.2-Exp)")
_GLM_5 = _known(6144, 8, 256, "transformers 5.19, defaults of GlmMoeDsaConfig (GLM-5)")
_GLM_45 = _known(5120, 8, 160, "THUDM/slime scripts/models/glm4.5-355B-A32B.sh")
_KIMI = _known(7168, 8, 384, "Kimi-K2.5 README, model summary; Kimi-K2 has the same numbers")

SHAPES: Mapping[str, KnownShape] = MappingProxyType(
    {
        "deepseek-v2-lite": _known(
            2048, 6, 64, "deepseek-ai/DeepSeek-V2-Lite config.json, as afd-plugin's recipes use it"
        ),
        "deepseek-v2": _known(5120, 6, 160, "AMD-AGI/Primus, Megatron model files of DeepSeek-V2"),
        "deepseek-v3": _V3,
        "deepseek-v3.1": _V3,
        "deepseek-r1": _V3,
        "deepseek-v3.2": _V32,
        "deepseek-v4-flash": _known(
            4096, 6, 256, "transformers 5.19, defaults of DeepseekV4Config (V4-Flash-Base)"
        ),
        "deepseek-v4-pro": _known(
            7168, 6, 384, "AMD-AGI/Primus deepseek_v4_pro.yaml, from the model's config.json"
        ),
        "glm-4.5": _GLM_45,
        "glm-4.5-air": _known(4096, 8, 128, "transformers 5.19, defaults of Glm4MoeConfig"),
        "glm-5": _GLM_5,
        "kimi-k2": _KIMI,
        "kimi-k2.5": _KIMI,
        "minimax-m2": _known(3072, 8, 256, "transformers 5.19, defaults of MiniMaxM2Config"),
        "qwen3-30b-a3b": _known(
            2048, 8, 128, "transformers 5.19, defaults of Qwen3MoeConfig (Qwen3-30B-A3B)"
        ),
        "qwen3-235b-a22b": _known(4096, 8, 128, "THUDM/slime scripts/models/qwen3-235B-A22B.sh"),
    }
)
"""Well-known shapes by name, in lower case."""


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def shape_named(name: str) -> ModelShape:
    """The shape called ``name``; case, dots, dashes and underscores do not matter.

    Raises:
        PlanError: there is none; the message lists all names.
    """
    by_plain = {_plain(known): entry.shape for known, entry in SHAPES.items()}
    shape = by_plain.get(_plain(name))
    if shape is not None:
        return shape
    close = difflib.get_close_matches(name.lower(), SHAPES, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise PlanError(
        f"--model-shape {name} is not known; {hint}known are {', '.join(SHAPES)}; or give "
        "--hidden-size, --topk and --routed-experts"
    )


def suggestion_for(model: str) -> str:
    """The longest name that occurs in a model's path or id, "" if none does. Only a hint."""
    plain = _plain(model)
    return max((name for name in SHAPES if _plain(name) in plain), key=len, default="")
