# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl plan``: both roles' buffers from the numbers of a deployment."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from cam_hccl_plugin.cli import deployment, render
from cam_hccl_plugin.errors import CamHcclError, PlanError
from cam_hccl_plugin.memory import DEFAULT_GUARD_RATIO
from cam_hccl_plugin.model import ModelShape
from cam_hccl_plugin.model_config import candidates, read_shape
from cam_hccl_plugin.settings import (
    MAX_BUFFER_MIB,
    MAX_HEADROOM,
    MIN_HEADROOM,
    SCOPES,
    SIZINGS,
    Settings,
)
from cam_hccl_plugin.sizing import exact

_EXAMPLE = """example:
  cam-hccl plan --connector CAMAsyncAFDConnector --hidden-size 7168 --topk 8 \\
    --routed-experts 256 --attention-ranks 16 --ffn-ranks 16 \\
    --max-num-batched-tokens 8192 --npus-per-dp-group 8 --dynamic-quant 1

exit status: 0; 2 for bad input; 3 with --strict if the memory guard or a check warns
"""

_MODEL_FLAGS = {
    "hidden_size": "--hidden-size",
    "topk": "--topk",
    "routed_experts": "--routed-experts",
}


def add_parser(commands: Any) -> None:
    """Add the subcommand to ``commands``."""
    parser = commands.add_parser(
        "plan",
        help="both roles' buffers from the numbers of a deployment",
        description="Print what each role's CAM groups need and get. Needs no NPU and no vLLM.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_model(parser)
    _add_deployment(parser)
    _add_sizing(parser)
    _add_memory(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print one JSON object")
    output.add_argument("--strict", action="store_true", help="exit with 3 if anything warns")
    parser.set_defaults(run=run)


def _add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model: --model, or the three numbers")
    group.add_argument(
        "--model", type=Path, metavar="DIR_OR_CONFIG_JSON", help="read the Hugging Face config.json"
    )
    group.add_argument("--hidden-size", type=_positive, metavar="N", help="elements per token")
    group.add_argument("--topk", type=_positive, metavar="N", help="routed experts per token")
    group.add_argument("--routed-experts", type=_positive, metavar="N", help="routed experts")


def _add_deployment(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("deployment")
    group.add_argument(
        "--connector",
        required=True,
        metavar="CLASS",
        help="AFD connector class: CAMAsyncAFDConnector, CAMP2pAFDConnector, another CAM* class "
        "or one that an installed extension claims",
    )
    group.add_argument("--attention-ranks", type=_positive, required=True, metavar="A")
    group.add_argument("--ffn-ranks", type=_positive, required=True, metavar="F")
    group.add_argument(
        "--max-num-batched-tokens",
        type=_positive,
        required=True,
        metavar="N",
        help="of Attention, and of FFN unless --ffn-max-num-batched-tokens is given",
    )
    group.add_argument(
        "--ffn-max-num-batched-tokens",
        type=_positive,
        metavar="N",
        help="of FFN; CAMP2P: A x batch / F. CAM Async needs the same value on both roles",
    )
    _add_splits(group)


def _add_splits(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--npus-per-dp-group",
        type=_positive,
        default=1,
        metavar="N",
        help="NPUs in one Attention DP group (TP x PCP); never divides the CAMP2P FFN size "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--attn-ranks-per-dp",
        type=_positive,
        metavar="N",
        help="as in connector_extra_config, CAM Async's operators divide by it "
        "(default: the value of --npus-per-dp-group)",
    )
    group.add_argument(
        "--num-ubatches", type=_positive, default=1, metavar="N", help="(default: %(default)s)"
    )
    group.add_argument(
        "--dynamic-quant",
        type=_zero_or_one,
        default=False,
        metavar="{0,1}",
        help="dynamic quantization (default: 0)",
    )


def _add_sizing(parser: argparse.ArgumentParser) -> None:
    default = Settings()
    group = parser.add_argument_group("sizing, as in the cam_hccl flag")
    group.add_argument(
        "--sizing", choices=SIZINGS, default=default.sizing, help="(default: %(default)s)"
    )
    group.add_argument(
        "--headroom",
        type=_ratio(MIN_HEADROOM, MAX_HEADROOM),
        default=default.headroom,
        metavar="X",
        help=f"{MIN_HEADROOM} to {MAX_HEADROOM} (default: 1.1)",
    )
    group.add_argument(
        "--scope", choices=SCOPES, default=default.scope, help="(default: %(default)s)"
    )


def _add_memory(parser: argparse.ArgumentParser) -> None:
    memory = parser.add_argument_group("device memory")
    memory.add_argument(
        "--device-memory-gib",
        type=_ratio(Fraction(0), None),
        metavar="GIB",
        help="memory of one die; with it the memory guard runs",
    )
    memory.add_argument(
        "--gpu-memory-utilization",
        type=_ratio(Fraction(0), Fraction(1)),
        default=Fraction(9, 10),
        metavar="X",
        help="as given to vLLM, above 0, up to 1 (default: 0.9)",
    )
    memory.add_argument(
        "--memory-guard-ratio",
        type=_ratio(Fraction(0), None),
        default=DEFAULT_GUARD_RATIO,
        metavar="X",
        help="(default: 2.5)",
    )
    memory.add_argument(
        "--hccl-buffsize",
        type=_buffer,
        metavar="MB",
        help="the HCCL_BUFFSIZE that you use today: prints what is saved against it, and whether "
        "the binary operator package would work with it (default: the environment's)",
    )
    memory.add_argument(
        "--lccl-buffer-size",
        type=_buffer,
        metavar="MB",
        help="the LCCL_BUFFER_SIZE of operators built from source, checked likewise "
        "(default: the environment's)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan both roles and print them."""
    if arguments.device_memory_gib == 0:
        raise PlanError("--device-memory-gib: given 0, allowed is a number above 0")
    if arguments.gpu_memory_utilization == 0:
        raise PlanError("--gpu-memory-utilization: given 0, allowed is a number above 0, up to 1")
    arguments.model_shape = _model_shape(arguments)
    result = deployment.plan_deployment(arguments)
    if arguments.json:
        print(json.dumps(render.as_json(result), indent=2))
    else:
        print(render.as_text(result))
    return 3 if arguments.strict and result.warnings else 0


def _model_shape(arguments: argparse.Namespace) -> ModelShape:
    given = {field: getattr(arguments, field) for field in _MODEL_FLAGS}
    if arguments.model is None:
        missing = [flag for field, flag in _MODEL_FLAGS.items() if given[field] is None]
        if missing:
            raise PlanError(
                f"{', '.join(missing)} missing; give {', '.join(_MODEL_FLAGS.values())}, or "
                "--model with a directory or config.json"
            )
        return ModelShape(**given)
    doubled = [flag for field, flag in _MODEL_FLAGS.items() if given[field] is not None]
    if doubled:
        raise PlanError(f"--model and {', '.join(doubled)} exclude each other; give one of the two")
    return load_model_shape(arguments.model)


def load_model_shape(path: Path) -> ModelShape:
    """The model's shape from a ``config.json`` or the directory that holds it.

    Raises:
        PlanError: the file cannot be read, is not a JSON object or lacks a number.
    """
    file = path / "config.json" if path.is_dir() else path
    flags = ", ".join(_MODEL_FLAGS.values())
    remedy = f"give {flags} instead of --model"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        places = candidates(config)
    except (OSError, ValueError, RecursionError) as error:
        raise PlanError(f"--model: cannot read {file}: {error}; {remedy}") from error
    if not isinstance(config, dict):
        raise PlanError(f"--model: {file} holds no JSON object; {remedy}")
    shape, problem = read_shape(places, f"--model {file}", remedy)
    if shape is None:
        raise PlanError(problem)
    return shape


def _checked(check: Callable[[str], Any], allowed: str) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return check(text)
        except (ValueError, ZeroDivisionError, CamHcclError):
            message = f"given {text!r}, allowed is {allowed}"
            raise argparse.ArgumentTypeError(message) from None

    return convert


def _integer(low: int, high: int) -> Callable[[str], int]:
    def check(text: str) -> int:
        if not (text.isascii() and text.isdigit()):  # int() takes spaces, signs and underscores
            raise ValueError(text)
        value = int(text, 10)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return check


def _ratio(low: Fraction, high: Fraction | None) -> Callable[[str], Any]:
    def check(text: str) -> Fraction:
        value = exact(float(text))  # as JSON delivers it; a fraction or a huge exponent is none
        if value < low or (high is not None and value > high):
            raise ValueError(text)
        return value

    span = f"a number, {low} or more" if high is None else f"a number from {low} to {high}"
    return _checked(check, span)


_positive = _checked(_integer(1, 2**63 - 1), "a positive integer of at most 63 bits")
_buffer = _checked(_integer(1, MAX_BUFFER_MIB), f"an integer from 1 to {MAX_BUFFER_MIB} (MB)")
_zero_or_one = _checked(lambda text: bool(_integer(0, 1)(text)), "0 or 1")
