# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The ``cam-hccl`` command.

A subcommand's module is imported only when it is the one that runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence

from cam_hccl_plugin import __version__
from cam_hccl_plugin.errors import CamHcclError

EXIT_OK, EXIT_FAILED, EXIT_BAD_INPUT, EXIT_WARNED = 0, 1, 2, 3

COMMANDS = {
    "plan": "both roles' buffers, from numbers or from the vllm serve commands",
    "sweep": "buffers over a range of tokens or ranks, and the largest tokens that fit",
    "doctor": "check this environment: versions, entry point, seam, variables",
}
"""Subcommands, each a module of this package with ``add_arguments`` and ``run``, and their help."""

_EPILOG = """examples:
  cam-hccl plan --connector CAMAsyncAFDConnector --model-shape deepseek-v3.2 \\
    --attention-ranks 16 --ffn-ranks 16 --max-num-batched-tokens 8192 --npus-per-dp-group 8
  cam-hccl plan -- vllm serve /models/DeepSeek-V3.2 --max-num-batched-tokens 8192 ...
  DRY_RUN=1 bash attention.sh | cam-hccl plan -
  cam-hccl sweep --help
  cam-hccl doctor

exit status: 0; 1 if doctor finds a failure; 2 for bad input; 3 with --strict if there is a warning
"""


def build_parser(command: str = "") -> argparse.ArgumentParser:
    """The parser of ``cam-hccl``; only the subcommand called ``command`` has its options."""
    parser = argparse.ArgumentParser(
        prog="cam-hccl",
        description="Size the HCCL buffers of CAM connectors (AFD on Ascend NPUs) before a launch. "
        "Needs no NPU and no vLLM.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"cam-hccl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name == command:
            module = importlib.import_module(f"cam_hccl_plugin.cli.{name}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0, 1 for a failed check, 2 for bad input, 3 with ``--strict``."""
    words = list(sys.argv[1:] if argv is None else argv)
    _print_what_cannot_be_encoded()
    try:
        return _run(words)
    except CamHcclError as error:
        return _complain(str(error))
    except BrokenPipeError:
        _discard_output()  # whoever read it has seen enough
        return EXIT_OK
    except OSError as error:  # what is read fails as a CamHcclError; only the output is left
        _discard_output()
        return _complain(f"the output cannot be written: {error}")
    except KeyboardInterrupt:
        print("cam-hccl: interrupted", file=sys.stderr)
        return EXIT_BAD_INPUT


def _run(words: list[str]) -> int:
    rest = words[words.index("--") :] if "--" in words else []
    words = words[: len(words) - len(rest)]
    try:
        parser = build_parser(words[0] if words else "")
        arguments = parser.parse_args(words)
        arguments.after_dashes = rest
        return int(arguments.run(arguments))
    finally:
        if sys.stdout is not None:  # closed by the caller
            sys.stdout.flush()  # here, where a failure can be reported, and not at the very end


def _complain(problem: str) -> int:
    """One line on stderr, whatever a name or a file put into ``problem``."""
    line = re.sub(r"[\x00-\x1f\x7f]", lambda found: repr(found[0])[1:-1], problem)
    print(f"cam-hccl: error: {line}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _print_what_cannot_be_encoded() -> None:
    """A name that the terminal's encoding lacks is printed with escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """The interpreter flushes stdout once more at its end, and would complain again."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
