# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Fresh Python processes for promises about imports and about what is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HEAVY = ("afd_plugin", "torch", "torch_npu", "vllm")
ROOT = Path(__file__).resolve().parents[2]


def run(
    *arguments: str, path: tuple[Path, ...] = (), env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with ``arguments``; ``path`` comes first on its module path."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HCCL_BUFFSIZE")}
    search = os.pathsep.join(str(p) for p in (*path, ROOT))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**inherited, "PYTHONPATH": search, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def write_tripwires(folder: Path) -> Path:
    """Packages with the names of the heavy ones, which fail when they are imported."""
    for name in HEAVY:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(
            f"raise AssertionError({name + ' was imported'!r})\n", encoding="utf-8"
        )
    return folder
