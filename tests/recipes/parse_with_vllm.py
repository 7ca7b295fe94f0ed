# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Parses ``vllm serve`` arguments with the real vLLM, in a process of its own.

Reads a JSON list of argument lists on stdin and writes what each parsed to, as JSON, on the
last line of stdout. Run as a script: vLLM logs and warns while it is imported.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

_PLACES = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
"""Where ``make_arg_parser`` of ``vllm serve`` is, newest vLLM first."""

_FIELDS = (
    "model_tag",
    "additional_config",
    "kv_transfer_config",
    "max_num_batched_tokens",
    "max_num_seqs",
    "max_model_len",
    "tensor_parallel_size",
    "data_parallel_size",
    "data_parallel_size_local",
    "data_parallel_start_rank",
    "data_parallel_address",
    "enable_expert_parallel",
    "enforce_eager",
    "enable_dbo",
    "ubatch_size",
    "gpu_memory_utilization",
    "headless",
    "quantization",
)


def _make_parser() -> Any:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    for place in _PLACES:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError:
            continue
        return module.make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    raise SystemExit(f"this vLLM has make_arg_parser in none of {', '.join(_PLACES)}")


def main() -> None:
    parser = _make_parser()
    parsed = []
    for arguments in json.load(sys.stdin):
        found = parser.parse_args(arguments)
        fields = {name: getattr(found, name) for name in _FIELDS}
        compilation = found.compilation_config
        fields["cudagraph_mode"] = getattr(compilation.cudagraph_mode, "name", None)
        fields["cudagraph_capture_sizes"] = compilation.cudagraph_capture_sizes
        parsed.append(fields)
    print(json.dumps(parsed))


if __name__ == "__main__":
    main()
