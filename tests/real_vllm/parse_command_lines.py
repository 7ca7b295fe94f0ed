# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Script: real command lines through vLLM's parser into a VllmConfig, one JSON report.

Arguments: a JSON file ``{"cases": [{"name", "argv", "afd"}]}`` and the file to write. Cases with
``afd`` come last, after importing afd_plugin (the seam double).
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

GROUP = "vllm.general_plugins"


class Recorder:
    """Keeps what the plugin logs; not a handler, vLLM configures those anew at will."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._make = logging.getLogRecordFactory()
        logging.setLogRecordFactory(self)

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        if record.name == "vllm.cam_hccl":
            self.lines.append(f"{record.levelname} {record.getMessage()}")
        return record


def plain(value: Any) -> Any:
    """A settings object as JSON can hold it; a Fraction as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "items"):
        return {str(getattr(k, "value", k)): plain(v) for k, v in value.items()}
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def register_as_vllm_does() -> dict[str, Any]:
    """Let vLLM load its general plugins; what that imported."""
    import vllm.engine.arg_utils  # noqa: F401 - what every vLLM process has imported by then
    from vllm.plugins import load_plugins_by_group

    points = importlib.metadata.entry_points(group=GROUP)
    for point in points:
        if point.name != "cam_hccl":
            point.load()  # what other plugins import is not ours
    before = set(sys.modules)
    load_plugins_by_group(GROUP)["cam_hccl"]()
    added = sorted(set(sys.modules) - before)

    import cam_hccl_plugin

    package = importlib.metadata.distribution("cam-hccl-plugin")
    return {
        "added": added,
        "file": cam_hccl_plugin.__file__,
        "installed_file": str(package.locate_file("cam_hccl_plugin/__init__.py")),
    }


def read_through_connector(config: Any) -> dict[str, Any]:
    """Let the seam double's factory make the connector; the plugin's inputs from both."""
    from afd_plugin.connectors.factory import AFDConnectorFactory

    from cam_hccl_plugin import vllm_adapter

    settings = vllm_adapter.read_flag(config)
    if settings is None:
        return {}
    connector = AFDConnectorFactory.create_connector(0, 0, config)
    role = vllm_adapter.read_role(connector)
    topology = vllm_adapter.read_topology(connector, config, role, settings)
    inputs, missing = vllm_adapter.read_inputs(connector, config, topology, settings)
    return {"role": role.value, "inputs": plain(inputs), "missing": missing}


def run_case(argv: list[str], afd: bool, recorder: Recorder) -> dict[str, Any]:
    """Parse one command line and build its VllmConfig."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    from cam_hccl_plugin.vllm_adapter import read_flag

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:  # older vLLM
        from vllm.utils import FlexibleArgumentParser

    recorder.lines.clear()
    report: dict[str, Any] = {"parsed": False, "connector": {}}
    try:
        parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
        engine_args = AsyncEngineArgs.from_cli_args(parser.parse_args(argv))
        report["parsed"] = True
        config = engine_args.create_engine_config()
        report["additional_config"] = config.additional_config
        report["settings"] = plain(read_flag(config))
        report["log"] = list(recorder.lines)
        if afd:
            report["connector"] = read_through_connector(config)
    except (Exception, SystemExit) as error:
        report["error"] = {"type": type(error).__name__, "message": str(error)}
        report["log"] = list(recorder.lines)
    return report


def main() -> None:
    """Run the cases of the first argument, write the report to the second."""
    cases = json.loads(Path(sys.argv[1]).read_text())["cases"]
    environ_before = dict(os.environ)
    report: dict[str, Any] = {"registration": register_as_vllm_does(), "cases": {}}
    recorder = Recorder()
    for case in (c for c in cases if not c["afd"]):
        report["cases"][case["name"]] = run_case(case["argv"], case["afd"], recorder)
    import afd_plugin  # noqa: F401 - the seam double, as if its own entry point had loaded it

    for case in (c for c in cases if c["afd"]):
        report["cases"][case["name"]] = run_case(case["argv"], case["afd"], recorder)
    report["hccl_buffsize"] = [environ_before.get("HCCL_BUFFSIZE"), os.environ.get("HCCL_BUFFSIZE")]
    Path(sys.argv[2]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
