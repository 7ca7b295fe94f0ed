# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Script: write tiny model directories: a config.json each, and one of them with weights."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Write them below the directory named by the first argument."""
    import torch
    from transformers import Glm4MoeConfig, Qwen3MoeConfig, Qwen3MoeForCausalLM

    root = Path(sys.argv[1])
    glm = Glm4MoeConfig(
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=128,
        n_routed_experts=8,
        num_experts_per_tok=3,
        vocab_size=256,
        max_position_embeddings=256,
        architectures=["Glm4MoeForCausalLM"],
    )
    glm.save_pretrained(root / "glm4_moe")
    qwen = Qwen3MoeConfig(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,  # vLLM's CPU attention needs one it knows
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        intermediate_size=128,
        vocab_size=256,
        max_position_embeddings=256,
        architectures=["Qwen3MoeForCausalLM"],
        # Large: whatever changes in the model has to change what it generates.
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    Qwen3MoeForCausalLM(qwen).save_pretrained(root / "qwen3_moe")


if __name__ == "__main__":
    main()
