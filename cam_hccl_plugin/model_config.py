# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The three model numbers out of a Hugging Face configuration, in all its spellings.

Works on the ``config.json`` mapping and on a configuration object alike.
Source of the spellings: the MoE configurations of transformers 5.19 and vLLM's
``ModelConfig.get_num_experts()``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cam_hccl_plugin.model import ModelShape

HIDDEN_SIZE_NAMES = ("hidden_size",)
TOPK_NAMES = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
    "moe_top_k",
    "top_k_experts",
)
ROUTED_EXPERTS_NAMES = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
TEXT_CONFIG_NAMES = ("text_config", "thinker_config", "language_config", "llm_config")

FIELD_NAMES: Mapping[str, tuple[str, ...]] = {
    "hidden_size": HIDDEN_SIZE_NAMES,
    "topk": TOPK_NAMES,
    "routed_experts": ROUTED_EXPERTS_NAMES,
}
"""Spellings of each field of :class:`ModelShape`, the most usual first."""


def lookup(config: Any, name: str) -> Any:
    """``config[name]`` or ``config.name``, ``None`` if absent or different from layer to layer."""
    if isinstance(config, Mapping):
        layers = config.get("per_layer_config")
        overrides = layers.values() if isinstance(layers, Mapping) else ()
        differs = any(isinstance(layer, Mapping) and name in layer for layer in overrides)
        return None if differs else config.get(name)
    try:
        return getattr(config, name, None)
    except RuntimeError:  # transformers refuses to read an attribute that layers override
        return None


def candidates(*configs: Any) -> list[Any]:
    """Configurations to look in, nested text configurations before what wraps them."""
    found: list[Any] = []
    for config in configs:
        if config is None:
            continue
        nested = [lookup(config, name) for name in TEXT_CONFIG_NAMES]
        inner = candidates(*(n for n in nested if n is not None and n is not config))
        found.extend(c for c in (*inner, config) if not any(c is seen for seen in found))
    return found


def find_field(configs: Iterable[Any], field: str) -> tuple[str, Any]:
    """Name and value of ``field`` in the first configuration that has it, else ``("", None)``.

    A list of equal numbers (some configurations repeat the number per modality) counts as
    that number.
    """
    for config in configs:
        for name in FIELD_NAMES[field]:
            value = lookup(config, name)
            if isinstance(value, (list, tuple)) and value and len(set(map(repr, value))) == 1:
                value = value[0]
            if value is not None:
                return name, value
    return "", None


def is_positive_int(value: Any) -> bool:
    """Whether ``value`` is an integer above 0; a bool is never a number."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def read_shape(configs: Iterable[Any], where: str, remedy: str) -> tuple[ModelShape | None, str]:
    """The model's shape, or ``None`` and one sentence with everything that is wrong.

    Args:
        configs: where to look, first match wins.
        where: name of the place, for the sentence.
        remedy: what the user can do, for the sentence.
    """
    looked_in = list(configs)
    values: dict[str, int] = {}
    problems = []
    for field, names in FIELD_NAMES.items():
        name, value = find_field(looked_in, field)
        if not name:
            problems.append(f"{field} is missing (looked for {', '.join(names)})")
        elif not is_positive_int(value):
            problems.append(f"{field} must be a positive integer, {name} is {value!r}")
        else:
            values[field] = value
    if problems:
        hint = "" if "hidden_size" not in values or len(values) > 1 else " (is this a MoE model?)"
        return None, f"{where}: {'; '.join(problems)}{hint}; {remedy}"
    return ModelShape(**values), ""
