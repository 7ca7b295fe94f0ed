# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Script: write a tiny Qwen3-MoE model directory (a config.json; the weights are dummies)."""

from __future__ import annotations

import sys


def main() -> None:
    """Write it to the directory named by the first argument."""
    from transformers import Qwen3MoeConfig

    config = Qwen3MoeConfig(
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
    )
    config.save_pretrained(sys.argv[1])


if __name__ == "__main__":
    main()
