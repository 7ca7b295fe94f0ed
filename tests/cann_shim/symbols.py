# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""What a torch_npu installation wants from CANN, read from its shared objects.

Uses ``nm``, ``readelf`` and ``strings`` (binutils, which gcc cannot do without).  Nothing here
is a list that could grow old: another torch-npu is read afresh.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

# C interfaces of CANN that torch_npu looks up by name at run time.  The operator interfaces
# (aclnn*) stay absent on purpose: no operator runs here.
_LOOKED_UP = re.compile(r"(?:acl(?!nn)[A-Za-z_]|[Hh]ccl[A-Z_]|Hcom[A-Za-z]|rt[A-Z]|Msprof)\w+\Z")
# CANN libraries that torch_npu opens by name to come up.  Optional ones (profilers, SHMEM,
# ATB, ...) stay absent on purpose.
_OPENED = re.compile(
    r"(lib(?:hccl|hcomm|ascendcl|opapi|runtime|ascend_hal|acl_op_compiler))(?:\.so)?\Z"
)
_C_NAME = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True)
class Wanted:
    """Functions and libraries that somebody has to provide."""

    symbols: frozenset[str]
    libraries: frozenset[str]


def _output(*command: str) -> list[str]:
    done = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")
    return done.stdout.splitlines()


def _defined(library: Path) -> set[str]:
    lines = _output("nm", "-D", "--defined-only", str(library))
    return {line.split()[-1].split("@")[0] for line in lines if line.strip()}


def _undefined(library: Path) -> set[str]:
    """Names this library needs and does not tie to a versioned provider such as libc."""
    rows = [line.split() for line in _output("nm", "-D", "--undefined-only", str(library))]
    return {row[1] for row in rows if len(row) == 2 and row[0] == "U" and "@" not in row[1]}


def _needed(library: Path) -> set[str]:
    text = "\n".join(_output("readelf", "-d", str(library)))
    return set(re.findall(r"\(NEEDED\).*\[(.+?)\]", text))


def _python_objects() -> list[Path]:
    found = [Path(sys.executable).resolve()]
    shared = sysconfig.get_config_var("LDLIBRARY") or ""
    if ".so" in shared:
        found.append(Path(sysconfig.get_config_var("LIBDIR"), shared))
    return [path for path in found if path.exists()]


def _is_a_system_library(name: str) -> bool:
    return _output("gcc", f"-print-file-name={name}")[0] != name


def _loaded_with(entries: list[Path], own: dict[str, Path], torch_lib: Path) -> tuple[set, set]:
    """Own libraries that load with the extension module, and library names nobody has."""
    todo, seen, absent = list(entries), set(), set()
    while todo:
        library = todo.pop()
        if library in seen:
            continue
        seen.add(library)
        for name in _needed(library):
            if name in own:
                todo.append(own[name])
            elif not (torch_lib / name).exists() and not _is_a_system_library(name):
                absent.add(name)
    return seen, absent


def wanted_by(torch_npu: Path, torch: Path) -> Wanted:
    """Work out what the package folder ``torch_npu`` needs beyond the package ``torch``."""
    own = {path.name: path for path in sorted(torch_npu.rglob("*.so*")) if path.is_file()}
    entries = [path for name, path in own.items() if name.startswith("_C")]
    if not entries:
        raise FileNotFoundError(f"no _C extension module under {torch_npu}")

    provided: set[str] = set()
    for library in [*(torch / "lib").glob("*.so*"), *own.values(), *_python_objects()]:
        provided |= _defined(library)
    loaded, libraries = _loaded_with(entries, own, torch / "lib")

    symbols: set[str] = set()
    for library in own.values():
        symbols |= _undefined(library)
    for library in loaded:
        for word in _output("strings", "-n", "5", str(library)):
            if _LOOKED_UP.match(word):
                symbols.add(word)
            elif opened := _OPENED.match(word):
                libraries.add(opened[1] + ".so")
    symbols = {
        name
        for name in symbols - provided
        if _C_NAME.match(name) and not name.startswith(("Py", "_Py"))
    }
    return Wanted(frozenset(symbols), frozenset(libraries))
