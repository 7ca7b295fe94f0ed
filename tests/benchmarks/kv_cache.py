# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Bytes that one token of DeepSeek-V3.2 takes in the KV cache of a die.

Sources: ``DeepseekV32Config`` in transformers (the four numbers); vllm-ascend's
``NPUModelRunner.get_kv_cache_spec`` (main at 182b75e): each layer has a latent cache of
``kv_lora_rank + qk_rope_head_dim`` and an indexer cache of ``index_head_dim`` elements a token,
both in the KV cache's type, bf16 unless one of its int8 layouts is switched on. Neither is split
over TP: each rank keeps the whole latent.
"""

from __future__ import annotations

from benchmarks.table import Table
from cam_hccl_plugin.model import MiB

LATENT, ROPE, INDEXER_KEY, LAYERS = 512, 64, 128, 61
BF16_BYTES = 2

BYTES_PER_TOKEN = (LATENT + ROPE + INDEXER_KEY) * BF16_BYTES * LAYERS
"""Cache bytes of one token over all layers of one die."""


def tokens_in(mib: int) -> int:
    """Whole tokens that fit ``mib`` of cache; negative where memory was added."""
    return int(mib * MiB / BYTES_PER_TOKEN)


def arithmetic_table() -> Table:
    """How the number of bytes comes about, and whether transformers agrees."""
    elements = LATENT + ROPE + INDEXER_KEY
    rows = [
        ("MLA latent (kv_lora_rank)", LATENT, "elements a layer"),
        ("+ rope key (qk_rope_head_dim)", ROPE, "elements a layer"),
        ("+ DSA indexer key (index_head_dim)", INDEXER_KEY, "elements a layer"),
        ("x bf16", BF16_BYTES, "bytes an element"),
        ("x num_hidden_layers", LAYERS, "layers"),
        (f"= {elements} x {BF16_BYTES} x {LAYERS}", BYTES_PER_TOKEN, "bytes a token and die"),
    ]
    columns = {"term": "term", "value": "value", "unit": "unit"}
    title = "KV cache of DeepSeek-V3.2: bytes per token on one Attention die"
    return Table("kv_cache", title, columns, rows, [_agreement()])


def _agreement() -> str:
    try:
        from transformers import DeepseekV32Config, __version__
    except ImportError:
        return "not compared with transformers, which is not installed here"
    config = DeepseekV32Config()
    theirs = (
        config.kv_lora_rank,
        config.qk_rope_head_dim,
        config.index_head_dim,
        config.num_hidden_layers,
    )
    if theirs != (LATENT, ROPE, INDEXER_KEY, LAYERS):
        raise RuntimeError(f"transformers {__version__} has {theirs} for DeepSeek-V3.2")
    return f"the four numbers are the defaults of DeepseekV32Config in transformers {__version__}"
