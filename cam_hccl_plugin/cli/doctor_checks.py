# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The doctor's checks: each gives one finding with its remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cam_hccl_plugin import __version__
from cam_hccl_plugin.cli.allowed_plugins import (
    AFD_ENTRY_POINT,
    ASCEND_ENTRY_POINT,
    VLLM_PLUGINS,
    left_out,
)
from cam_hccl_plugin.cli.doctor_probe import ProbeResult
from cam_hccl_plugin.cli.installed import ENTRY_POINT_GROUP, Neighbour
from cam_hccl_plugin.environment import (
    HCCL_BUFFSIZE,
    LCCL_BUFFER_SIZE,
    leading_integer,
    read_buffsize,
)
from cam_hccl_plugin.errors import CamHcclError
from cam_hccl_plugin.flag_places import FLAG_KEY
from cam_hccl_plugin.model import HCCL_DEFAULT_MIB
from cam_hccl_plugin.operator_window import BINARY_BUILD, LCCL_DEFAULT_MIB, SOURCE_BUILD
from cam_hccl_plugin.operators import MAX_WINDOW_MIB
from cam_hccl_plugin.patches.upstream import AFD_PACKAGE

OK, WARN, FAIL = "ok", "warn", "fail"
ENTRY_POINT_VALUE = "cam_hccl_plugin:register"
PYTHON_RANGE = ((3, 10), (3, 13))
VLLM_RANGE = ((0, 26), (0, 33))
_BACK_TO_PLAN = "cam-hccl plan and sweep work without it"


@dataclass(frozen=True)
class Finding:
    """The outcome of one check; ``remedy`` is "" where nothing is to be done."""

    check: str
    status: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Surroundings:
    """Everything that the checks look at, gathered elsewhere."""

    python: tuple[int, int]
    environment: Mapping[str, str]
    neighbour: Callable[[str], Neighbour | None]
    entry_points: Callable[[str], list[tuple[str, str]]]
    probe: Callable[[str], ProbeResult]
    load_extensions: Callable[[], object]


def all_findings(around: Surroundings) -> Iterator[Finding]:
    """Run every check, the quick ones first."""
    yield _python(around)
    yield from _plugin(around)
    yield _vllm(around)
    yield _presence(around, "vllm_ascend", "vllm-ascend", "install the one for your vLLM")
    yield _presence(around, AFD_PACKAGE, "afd-plugin", "install it from its repository")
    yield _presence(around, "torch", "torch", "install the one that your torch-npu wants")
    yield _torch_npu(around)
    yield from _allowed(around)
    yield _hccl_buffsize(around)
    yield _lccl_buffer_size(around)
    yield _probed(around, "seam", AFD_PACKAGE, "afd-plugin seam", "use a supported afd-plugin")
    yield _probed(
        around,
        "options",
        "torch_npu",
        "HCCL options",
        "install the torch-npu and CANN that fit this torch, and source CANN's set_env.sh",
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _python(around: Surroundings) -> Finding:
    low, high = PYTHON_RANGE
    text = f"{_dotted(around.python)}, supported are {_dotted(low)} to {_dotted(high)}"
    if low <= around.python <= high:
        return Finding("Python", OK, text)
    return Finding("Python", WARN, text, f"use Python {_dotted(low)} to {_dotted(high)}")


def _plugin(around: Surroundings) -> Iterator[Finding]:
    yield Finding("cam-hccl-plugin", OK, f"{__version__}, {sys.executable}")
    found = around.entry_points(FLAG_KEY)
    check = "entry point"
    label = f"{FLAG_KEY} in {ENTRY_POINT_GROUP}"
    owners = ", ".join(owner for _, owner in found)
    if not found:
        remedy = "pip install cam-hccl-plugin into this environment; a bare checkout is not enough"
        yield Finding(check, FAIL, f"{label} is not visible, vLLM will not load the plugin", remedy)
    elif len(found) > 1:
        remedy = "uninstall all but one"
        yield Finding(check, FAIL, f"{label} is there {len(found)} times ({owners})", remedy)
    elif found[0][0] != ENTRY_POINT_VALUE:
        remedy = "another package has taken the name: uninstall it"
        yield Finding(check, FAIL, f"{label} is {found[0][0]} of {owners}", remedy)
    else:
        yield Finding(check, OK, f"{label}, of {owners}")
    try:
        around.load_extensions()
    except CamHcclError as error:
        yield Finding("extensions", FAIL, str(error), "fix or uninstall that package")


def _vllm(around: Surroundings) -> Finding:
    found = around.neighbour("vllm")
    low, high = VLLM_RANGE
    span = f"{_dotted(low)} to {_dotted(high)}"
    if found is None:
        return Finding("vLLM", FAIL, "not installed", f"install vLLM {span}; {_BACK_TO_PLAN}")
    if not found.release:
        return Finding("vLLM", WARN, str(found), f"check that it is {span}")
    if low <= found.release[:2] <= high:
        return Finding("vLLM", OK, f"{found}, supported are {span}")
    return Finding("vLLM", WARN, f"{found}, supported are {span}", f"use vLLM {span}")


def _presence(around: Surroundings, module: str, label: str, remedy: str) -> Finding:
    found = around.neighbour(module)
    if found is None:
        return Finding(label, FAIL, "not installed", f"{remedy}; {_BACK_TO_PLAN}")
    return Finding(label, OK, str(found))


def _torch_npu(around: Surroundings) -> Finding:
    check = "torch-npu"
    found, torch = around.neighbour("torch_npu"), around.neighbour("torch")
    if found is None:
        remedy = f"install the torch-npu of your torch's version; {_BACK_TO_PLAN}"
        return Finding(check, FAIL, "not installed", remedy)
    if torch is None or not torch.release or not found.release:
        return Finding(check, WARN, str(found), "check that it has the version of torch")
    text = f"{found} with torch {torch.version}"
    if found.release[:2] != torch.release[:2]:
        return Finding(check, FAIL, text, "install the torch-npu of torch's version")
    if found.release[:3] != torch.release[:3]:
        return Finding(check, WARN, text, "install the torch-npu of exactly torch's version")
    return Finding(check, OK, text)


def _allowed(around: Surroundings) -> Iterator[Finding]:
    given = around.environment.get(VLLM_PLUGINS)
    if given is None:
        yield Finding(VLLM_PLUGINS, OK, "unset, vLLM loads every plugin")
        return
    wanted = [FLAG_KEY]
    if around.entry_points(AFD_ENTRY_POINT):
        wanted.append(AFD_ENTRY_POINT)
    if around.neighbour("vllm_ascend") is not None:
        wanted.append(ASCEND_ENTRY_POINT)
    missing = left_out(given, wanted)
    if missing:
        text = f"{given!r} leaves out {' and '.join(missing)}: vLLM will not load it"
        remedy = f"add {','.join(missing)} (exact names, commas, no spaces), or unset it"
        yield Finding(VLLM_PLUGINS, FAIL, text, remedy)
    else:
        yield Finding(VLLM_PLUGINS, OK, f"{given!r} allows {' and '.join(wanted)}")


def _hccl_buffsize(around: Surroundings) -> Finding:
    raw = around.environment.get(HCCL_BUFFSIZE)
    buffer = read_buffsize(raw)
    reader = f"the operators of the {BINARY_BUILD.name} believe in it too"
    if raw is None:
        text = (
            f"unset: communicators without a size of their own get {HCCL_DEFAULT_MIB} MB twice; "
            f"{reader}"
        )
        return Finding(HCCL_BUFFSIZE, OK, text)
    if buffer.problem:
        unusable = leading_integer(raw) is None or (leading_integer(raw) or 0) <= 0
        status = FAIL if unusable else WARN
        text, _, remedy = buffer.problem.rpartition("; ")
        return Finding(HCCL_BUFFSIZE, status, text, remedy)
    text = (
        f"{raw}: every communicator without a size of its own takes 2 x {buffer.effective_mib} MB; "
        f"{reader}"
    )
    if buffer.effective_mib > HCCL_DEFAULT_MIB:
        remedy = (
            "with the plugin CAM's groups do not need it: unset it, or give the binary operators "
            "what cam-hccl plan prints"
        )
        return Finding(HCCL_BUFFSIZE, WARN, text, remedy)
    return Finding(HCCL_BUFFSIZE, OK, text)


def _lccl_buffer_size(around: Surroundings) -> Finding:
    raw = around.environment.get(LCCL_BUFFER_SIZE)
    believed = SOURCE_BUILD.believed_mib(raw)
    if raw is None:
        text = f"unset: operators {SOURCE_BUILD.name} believe in a window of {LCCL_DEFAULT_MIB} MB"
        return Finding(LCCL_BUFFER_SIZE, OK, text)
    text = f"{raw!r}: operators {SOURCE_BUILD.name} believe in a window of {believed} MB"
    if not 0 < believed <= MAX_WINDOW_MIB:
        remedy = "write what cam-hccl plan prints, or unset it"
        return Finding(LCCL_BUFFER_SIZE, WARN, text, remedy)
    if str(believed) != raw.strip():
        return Finding(LCCL_BUFFER_SIZE, WARN, text, f"write {believed}, or unset it")
    return Finding(LCCL_BUFFER_SIZE, OK, text)


def _probed(around: Surroundings, probe: str, module: str, check: str, remedy: str) -> Finding:
    if around.neighbour(module) is None:
        text = f"not checked, {module} is not installed"
        return Finding(check, FAIL, text, f"install it first; {_BACK_TO_PLAN}")
    result = around.probe(probe)
    if result.problem:
        return Finding(check, FAIL, result.problem, remedy)
    return Finding(check, OK, result.found)
