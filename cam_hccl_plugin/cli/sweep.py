# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl sweep``: the plan over a range of tokens or ranks."""

from __future__ import annotations

import argparse
import json

from cam_hccl_plugin.cli import options
from cam_hccl_plugin.cli.argument_types import checked, integer, positive
from cam_hccl_plugin.cli.extensions import may_be_installed
from cam_hccl_plugin.cli.from_options import (
    REQUIRED,
    device_bytes,
    option_name,
    required_shape,
)
from cam_hccl_plugin.cli.sweep_points import OVER, SweptDeployment, sweep
from cam_hccl_plugin.cli.token_limit import largest_tokens
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.plugin_host import build_host

DESCRIPTION = """Plan both roles at many values of the tokens or of the ranks of a role.

With --device-memory-gib the largest max_num_batched_tokens that fits the die is printed too,
exactly, with the role and the condition that stop the next one. In CAM Async the roles share
their tokens; elsewhere FFN gets A x tokens / F, unless --ffn-max-num-batched-tokens fixes it."""

EXAMPLES = """examples:
  cam-hccl sweep --over tokens --from 8192 --to 131072 --step 8192 --device-memory-gib 64 \\
    --connector CAMAsyncAFDConnector --model-shape deepseek-v3.2 \\
    --attention-ranks 16 --ffn-ranks 16 --npus-per-dp-group 8 --dynamic-quant 1
  cam-hccl sweep --over ffn-ranks --values 8,16,32 --plot ranks.png ...

exit status: 0; 2 for bad input
"""

MAX_POINTS = 10_000
_values = checked(
    lambda text: [integer(1, 2**63 - 1)(part) for part in text.split(",")],
    "positive integers with commas between them",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the subcommand's parser."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    group = parser.add_argument_group("range")
    group.add_argument("--over", choices=tuple(OVER), required=True, help="what to vary")
    group.add_argument("--values", type=_values, metavar="N,N,...", help="these values, or:")
    group.add_argument("--from", dest="first", type=positive, metavar="N", help="first value")
    group.add_argument("--to", dest="last", type=positive, metavar="N", help="last value")
    group.add_argument("--step", type=positive, metavar="N", help="between two values")
    options.add_model(parser)
    options.add_deployment(parser)
    options.add_sizing(parser)
    output = parser.add_argument_group("output: a table, unless")
    output.add_argument("--csv", action="store_true", help="one line per value")
    output.add_argument("--json", action="store_true", help="one JSON object")
    output.add_argument(
        "--plot",
        metavar="FILE",
        help="also draw it into a .png or .svg file (needs matplotlib: "
        "pip install 'cam-hccl-plugin[plot]')",
    )
    parser.set_defaults(fail=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Sweep and print."""
    _check(arguments)
    values = _range(arguments)
    swept = SweptDeployment(
        build_host(installed=may_be_installed()), arguments, required_shape(arguments)
    )
    points = sweep(swept, arguments.over, values)
    limit = largest_tokens(swept) if device_bytes(arguments) is not None else None
    # Only now: nothing above needs these, and a wrong option should not wait for them.
    from cam_hccl_plugin.cli import sweep_render

    title = _title(swept)
    if arguments.plot:
        from cam_hccl_plugin.cli.sweep_plot import write_plot

        mark = limit.tokens if limit and arguments.over == "tokens" else None
        write_plot(arguments.plot, title, arguments.over, points, mark)
    if arguments.json:
        print(json.dumps(sweep_render.as_json(arguments.over, points, limit), indent=2))
    elif arguments.csv:
        print(sweep_render.as_csv(arguments.over, points))
    else:
        print(sweep_render.as_table(title, arguments.over, points, limit))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what contradicts the sweep, and complete what it replaces."""
    if arguments.after_dashes:
        raise PlanError("sweep reads no commands; give the deployment in numbers")
    if arguments.csv and arguments.json:
        raise PlanError("--csv and --json exclude each other; give one")
    swept = OVER[arguments.over]
    if getattr(arguments, swept) is not None:
        raise PlanError(
            f"{option_name(swept)} is what --over {arguments.over} varies; leave it out"
        )
    missing = [option_name(d) for d in REQUIRED if d != swept and getattr(arguments, d) is None]
    if missing:
        arguments.fail(f"the following arguments are required: {', '.join(missing)}")


def _range(arguments: argparse.Namespace) -> list[int]:
    ends = (arguments.first, arguments.last, arguments.step)
    if arguments.values is not None:
        if any(end is not None for end in ends):
            raise PlanError("--values and --from/--to/--step exclude each other; give one of them")
        values = sorted(set(arguments.values))
    else:
        if None in ends:
            raise PlanError("give --values N,N,... or all of --from, --to and --step")
        if arguments.first > arguments.last:
            raise PlanError(f"--from {arguments.first} is above --to {arguments.last}")
        values = list(range(arguments.first, arguments.last + 1, arguments.step)[: MAX_POINTS + 1])
    if len(values) > MAX_POINTS:
        raise PlanError(f"more than {MAX_POINTS} values; give a larger --step")
    return values


def _title(swept: SweptDeployment) -> str:
    arguments, shape = swept.arguments, swept.shape
    fixed = {
        "attention_ranks": "Attention ranks",
        "ffn_ranks": "FFN ranks",
        "max_num_batched_tokens": "batched tokens",
    }
    parts = [
        f"{getattr(arguments, dest)} {text}"
        for dest, text in fixed.items()
        if dest != OVER[arguments.over]
    ]
    return (
        f"{arguments.connector}: {', '.join(parts)}, hidden {shape.hidden_size}, topk "
        f"{shape.topk}, {shape.routed_experts} experts, dynamic quant "
        f"{int(arguments.dynamic_quant or 0)}"
    )
