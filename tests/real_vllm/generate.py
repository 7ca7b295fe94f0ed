# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Script: generate a few tokens with a tiny model, as a user's program does.

Arguments: the model directory, the ``additional_config`` as JSON, the file for the tokens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Generate and write the tokens and their log probability."""
    from vllm import LLM, SamplingParams

    model, additional, output = sys.argv[1:]
    llm = LLM(
        model=model,
        additional_config=json.loads(additional),
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=128,
        num_gpu_blocks_override=32,
        seed=0,
    )
    sampling = SamplingParams(max_tokens=8, seed=7, logprobs=0, detokenize=False)
    prompts = [{"prompt_token_ids": [1, 2, 3, 4]}, {"prompt_token_ids": [9, 8, 7]}]
    outputs = [answer.outputs[0] for answer in llm.generate(prompts, sampling)]
    answers = [[list(out.token_ids), out.cumulative_logprob] for out in outputs]
    Path(output).write_text(json.dumps(answers))


if __name__ == "__main__":  # the engine's processes import this file again
    main()
