# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""vLLM's own parser for ``vllm serve``, in a process of its own.

Apart, because importing vLLM takes seconds, prints, and changes its process's environment.
Run as a module it is that process: JSON lists of arguments on stdin, JSON answers on stdout.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from cam_hccl_plugin.cli.own_process import python_process
from cam_hccl_plugin.cli.serve_command import ServeCommand
from cam_hccl_plugin.cli.serve_options import ServeOptions
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.sizing import exact

PARSER_MODULES = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
"""Where ``make_arg_parser`` lives, the newest vLLM first."""

_TIMEOUT_SECONDS = 300
_FIELDS = (
    "hf_config_path",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "prefill_context_parallel_size",
    "data_parallel_size",
    "enable_dbo",
    "ubatch_size",
    "gpu_memory_utilization",
)
_COUNTS = ("tensor_parallel_size", "prefill_context_parallel_size", "data_parallel_size")


def vllm_installed() -> bool:
    """Whether a module vllm can be found; imports nothing."""
    return importlib.util.find_spec("vllm") is not None


def read_with_vllm(commands: Sequence[ServeCommand]) -> tuple[list[ServeOptions] | None, str]:
    """The options as vLLM reads them, or ``None`` and why its parser cannot be used.

    Raises:
        PlanError: vLLM refuses a command.
    """
    answer = _ask([list(command.arguments) for command in commands])
    if "unusable" in answer:
        return None, str(answer["unusable"])
    read = []
    for command, result in zip(commands, answer["commands"], strict=True):
        if "refused" in result:
            raise PlanError(f"vLLM refuses {command.label}: {result['refused']}")
        values = result["options"]
        if values["gpu_memory_utilization"] is not None:
            values["gpu_memory_utilization"] = exact(values["gpu_memory_utilization"])
        if not result["given_utilization"]:
            values["gpu_memory_utilization"] = None
        read.append(ServeOptions(**values))
    return read, ""


def _ask(arguments: list[list[str]]) -> dict[str, Any]:
    process = python_process(__name__)
    try:
        done = subprocess.run(
            process,
            input=json.dumps(arguments),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"unusable": f"it took more than {_TIMEOUT_SECONDS} s"}
    except OSError as error:
        return {"unusable": str(error)}
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        return {"unusable": f"exit status {done.returncode}, {last[0]}"}
    return dict(answer)


def _make_parser() -> Any:
    """vLLM's parser with its serve subcommand."""
    arguments = importlib.import_module("vllm.utils.argparse_utils")
    modules = [name for name in PARSER_MODULES if _exists(name)]
    if not modules:
        raise ImportError(f"no module of {', '.join(PARSER_MODULES)}")
    module = importlib.import_module(modules[0])
    parser = arguments.FlexibleArgumentParser(prog="vllm")
    serve = parser.add_subparsers(dest="subparser").add_parser("serve")
    module.make_arg_parser(serve)
    return parser


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _parse(parser: Any, arguments: list[str]) -> dict[str, Any]:
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed = parser.parse_args(["serve", *arguments])
    except SystemExit:
        lines = complaint.getvalue().strip().splitlines() or ["no reason given"]
        return {"refused": lines[-1]}
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    values = {name: getattr(parsed, name, None) for name in _FIELDS}
    for name in _COUNTS:
        values[name] = 1 if values[name] is None else values[name]
    values["ubatch_size"] = values["ubatch_size"] or 0
    values["enable_dbo"] = bool(values["enable_dbo"])
    values["model"] = getattr(parsed, "model_tag", None) or _given_model(parser, parsed)
    values["additional_config"] = dict(getattr(parsed, "additional_config", None) or {})
    values["kv_transfer_config"] = _kv_transfer(getattr(parsed, "kv_transfer_config", None))
    overrides = getattr(parsed, "hf_overrides", None)
    values["hf_overrides"] = dict(overrides) if isinstance(overrides, dict) else {}
    utilization = values["gpu_memory_utilization"]
    values["gpu_memory_utilization"] = None if utilization is None else str(utilization)
    given = any(a.replace("_", "-").startswith("--gpu-memory-ut") for a in arguments)
    return {"options": values, "given_utilization": given or "--config" in arguments}


def _given_model(parser: Any, parsed: Any) -> str | None:
    """``--model``, unless it is only vLLM's default."""
    model = getattr(parsed, "model", None)
    default = parser.parse_args(["serve"]).model
    return None if model == default else model


def _kv_transfer(config: Any) -> dict[str, Any] | None:
    if config is None or isinstance(config, dict):
        return config
    names = ("kv_connector", "kv_connector_extra_config")
    return {name: getattr(config, name, None) for name in names}


def _main() -> None:
    """Answer on the real stdout; what vLLM prints meanwhile goes to stderr.

    The broad ``except`` is the boundary to foreign code: whatever keeps this vLLM from building
    its parser becomes a note for the user.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests = json.load(sys.stdin)
    try:
        parser = _make_parser()
        answer: dict[str, Any] = {"commands": [_parse(parser, each) for each in requests]}
    except Exception as error:
        answer = {"unusable": f"{type(error).__name__}: {error}"}
    json.dump(answer, answers)
    answers.close()


if __name__ == "__main__":
    _main()
