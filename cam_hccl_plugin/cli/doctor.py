# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl doctor``: is this environment one in which the plugin works?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from cam_hccl_plugin.cli.doctor_checks import FAIL, WARN, Finding, Surroundings, all_findings
from cam_hccl_plugin.cli.doctor_probe import TIMEOUT_SECONDS, run_probe
from cam_hccl_plugin.cli.installed import entry_points_named, find_neighbour
from cam_hccl_plugin.errors import PlanError
from cam_hccl_plugin.plugin_host import build_host
from cam_hccl_plugin.vllm_adapter import environment

DESCRIPTION = f"""Check the environment that this command runs in, one line per check.

Run it where vLLM will run, with the same variables: in the container, after set_env.sh.
vLLM is not imported here; afd-plugin and torch_npu are, each in a process of its own that
may take up to {TIMEOUT_SECONDS} s. Works, and says what is missing, where none of them is
installed. Nothing is changed."""

EXAMPLES = """example:
  VLLM_PLUGINS=ascend,afd,cam_hccl cam-hccl doctor

exit status: 0; 1 if a check fails; 2 for bad input
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the subcommand's parser."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the checks and print them as they finish."""
    if arguments.after_dashes:
        raise PlanError("doctor takes no command; run it in the environment of the command")
    around = Surroundings(
        python=sys.version_info[:2],
        environment=environment(),
        neighbour=find_neighbour,
        entry_points=entry_points_named,
        probe=run_probe,
        load_extensions=build_host,
    )
    findings = []
    for finding in all_findings(around):
        findings.append(finding)
        if not arguments.json:
            print(finding_line(finding), flush=True)
    failed = [finding for finding in findings if finding.status == FAIL]
    if arguments.json:
        print(json.dumps(as_json(findings), indent=2))
    else:
        print(f"\n{summary(findings)}")
    return 1 if failed else 0


def finding_line(finding: Finding) -> str:
    """One line: status, check, what was found, and the remedy behind an arrow."""
    text = " ".join(finding.text.split())
    remedy = f" -> {finding.remedy}" if finding.remedy else ""
    return f"{finding.status:<4}  {finding.check:<16}  {text}{remedy}"


def summary(findings: Sequence[Finding]) -> str:
    """The last line."""
    failed = sum(finding.status == FAIL for finding in findings)
    warned = sum(finding.status == WARN for finding in findings)
    counts = f"{len(findings)} checks, {failed} failed, {warned} warned"
    if failed:
        return f"{counts}: the plugin cannot work here as it is; cam-hccl plan and sweep can"
    return f"{counts}: the plugin can work here"


def as_json(findings: Sequence[Finding]) -> dict[str, object]:
    """The findings as one JSON object."""
    return {
        "ok": all(finding.status != FAIL for finding in findings),
        "checks": [
            {
                "check": finding.check,
                "status": finding.status,
                "text": finding.text,
                "remedy": finding.remedy or None,
            }
            for finding in findings
        ],
    }
