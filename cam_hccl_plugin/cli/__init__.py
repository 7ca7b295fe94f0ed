# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The ``cam-hccl`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cam_hccl_plugin import __version__
from cam_hccl_plugin.errors import CamHcclError

EXIT_OK, EXIT_BAD_INPUT, EXIT_WARNED = 0, 2, 3


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``cam-hccl`` with all its subcommands."""
    from cam_hccl_plugin.cli import plan

    parser = argparse.ArgumentParser(
        prog="cam-hccl",
        description="Size the HCCL buffers of CAM connectors (AFD on Ascend NPUs) before a launch.",
        epilog="Example: cam-hccl plan --help",
    )
    parser.add_argument("--version", action="version", version=f"cam-hccl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    plan.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, 2 for bad input, 3 with ``--strict`` where something warns."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except CamHcclError as error:
        print(f"cam-hccl: error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone; the interpreter would complain
        return EXIT_OK
