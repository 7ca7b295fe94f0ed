# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``python -m benchmarks``: print the figures as tables and, with --json, as JSON."""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.util
import json
import os
import platform
import sys
import time
from pathlib import Path

from benchmarks.table import Figures, target_table

SECTIONS = ("memory", "register", "plan", "scale")


def _machine() -> str:
    name = platform.machine()
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    load = os.getloadavg()[0]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{name}, {os.cpu_count()} cores, load {load:.1f} at the start, {python}"


def _package() -> str:
    """Where the measured package lies: a wheel's has compiled files, a checkout may have none."""
    spec = importlib.util.find_spec("cam_hccl_plugin")
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{sys.executable} has no cam-hccl-plugin; pip install it there")
    compiled = "compiled" if Path(spec.cached or "").is_file() else "NOT compiled: slower imports"
    return f"cam_hccl_plugin in {Path(spec.origin).parent}, {compiled}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/benchmarks/run", description=__doc__)
    parser.add_argument(
        "--only", default=",".join(SECTIONS), metavar="A,B", help="sections (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write JSON to FILE")
    parser.add_argument(
        "--runs", type=int, default=15, help="of each timing (default: %(default)s)"
    )
    arguments = parser.parse_args()
    arguments.only = [name for name in arguments.only.split(",") if name]
    unknown = sorted(set(arguments.only) - set(SECTIONS))
    if unknown or not arguments.only or arguments.runs < 1:
        parser.error(f"--only takes {','.join(SECTIONS)}; --runs 1 or more")
    return arguments


def main() -> int:
    """Run the sections one after the other."""
    arguments = _arguments()
    date, machine = datetime.date.today().isoformat(), _machine()
    print(f"{date}, {machine}\n{_package()}", flush=True)
    total = Figures()
    for name in arguments.only:
        start = time.monotonic()
        figures: Figures = importlib.import_module(f"benchmarks.{name}").measure(arguments.runs)
        print(f"\n== {name} ({time.monotonic() - start:.0f} s)", flush=True)
        for table in figures.tables:
            print(f"\n{table.as_text()}", flush=True)
        total.tables += figures.tables
        total.targets += figures.targets
    if total.targets:
        total.tables.append(target_table(total.targets))
        print(f"\n{total.tables[-1].as_text()}")
    if arguments.json:
        content = {"date": date, "machine": machine, "tables": [t.as_json() for t in total.tables]}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
