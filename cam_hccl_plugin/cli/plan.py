# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl plan``: both roles' buffers from numbers, or from the commands that start them."""

from __future__ import annotations

import argparse
import json

from cam_hccl_plugin.cli import options
from cam_hccl_plugin.cli.argument_types import shortened
from cam_hccl_plugin.cli.deployment import Deployment, plan_deployment
from cam_hccl_plugin.cli.extensions import may_be_installed
from cam_hccl_plugin.cli.from_options import (
    deployment_from,
    missing_options,
    required_shape,
)
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.plugin_host import PluginHost, build_host

DESCRIPTION = """Print what each role's CAM groups need and get. Needs no NPU and no vLLM.

Three ways to say what is deployed:
  numbers    cam-hccl plan --connector ... --attention-ranks ... (all options below)
  a command  cam-hccl plan [OPTIONS] -- vllm serve MODEL ...
             environment assignments, exec and env in front are read too; more commands
             follow after another --
  stdin      DRY_RUN=1 bash script | cam-hccl plan [OPTIONS] -
             one command per line, quoted as for a shell
The commands of both roles are checked against each other."""

EXAMPLES = """examples:
  cam-hccl plan --connector CAMAsyncAFDConnector --model-shape deepseek-v3.2 \\
    --attention-ranks 16 --ffn-ranks 16 --max-num-batched-tokens 8192 \\
    --npus-per-dp-group 8 --dynamic-quant 1 --device-memory-gib 64
  (DRY_RUN=1 bash attention.sh; DRY_RUN=1 bash ffn.sh) | cam-hccl plan -

exit status: 0; 2 for bad input; 3 with --strict if there is a warning
"""

FORMATS = ("table", "json", "env", "flag")


def _source(text: str) -> str:
    if text != "-":
        raise argparse.ArgumentTypeError(
            f"given {shortened(repr(text))}; a command goes behind two dashes: cam-hccl plan -- "
            "vllm serve MODEL ...; what a script prints comes through a pipe: DRY_RUN=1 bash "
            "script | cam-hccl plan -"
        )
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the subcommand's parser."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument(
        "source", nargs="?", type=_source, metavar="-", help="read vllm serve commands from stdin"
    )
    options.add_model(parser)
    options.add_deployment(parser)
    options.add_sizing(parser)
    options.add_variables(parser)
    commands = parser.add_argument_group("commands")
    commands.add_argument(
        "--parser",
        choices=("auto", "vllm", "own"),
        help="who reads the commands: vLLM's own parser (takes seconds to import), ours, or vLLM's "
        "if vLLM is installed (default: auto)",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print one JSON object")
    output.add_argument(
        "--format",
        choices=FORMATS,
        help="table; json; env: the HCCL_BUFFSIZE that would do without the plugin; flag: the "
        "explicit hccl_buffer_size for newer afd-plugin without the plugin (default: table)",
    )
    output.add_argument(
        "--strict",
        action="store_true",
        help="exit with 3 if there is a warning; the table of operator windows is none, for only "
        "one of the builds is yours",
    )
    parser.set_defaults(fail=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Plan the roles and print them."""
    chosen = "json" if arguments.json else arguments.format or "table"
    if arguments.json and arguments.format not in (None, "json"):
        raise PlanError(f"--json and --format {arguments.format} exclude each other; give one")
    host = build_host(installed=may_be_installed())
    result = plan_deployment(host, _deployment(arguments, host))
    if chosen == "json":
        from cam_hccl_plugin.cli.plan_json import as_json

        print(json.dumps(as_json(result), indent=2))
    elif chosen == "table":
        from cam_hccl_plugin.cli.render import as_text

        print(as_text(result))
    else:
        from cam_hccl_plugin.cli.without_plugin import as_env, as_flag

        print(as_env(result) if chosen == "env" else as_flag(result))
    return 3 if arguments.strict and result.warnings else 0


def _deployment(arguments: argparse.Namespace, host: PluginHost) -> Deployment:
    if arguments.source or arguments.after_dashes:
        from cam_hccl_plugin.cli.from_commands import deployment_from_commands

        return deployment_from_commands(arguments, host)
    if arguments.parser:
        raise PlanError("--parser reads commands, and none is given: end with - or with -- COMMAND")
    missing = missing_options(arguments)
    if missing:
        arguments.fail(
            f"the following arguments are required: {', '.join(missing)} (or end with - or with "
            "-- vllm serve ...)"
        )
    return deployment_from(arguments, host, required_shape(arguments))
