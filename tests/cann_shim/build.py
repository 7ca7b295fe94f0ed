# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Build the CANN stand-in for an installed torch-npu, once, into a cache folder.

    python tests/cann_shim/build.py [TORCH_NPU_DIR]

prints the folder to put on ``LD_LIBRARY_PATH``.  TORCH_NPU_DIR is what
``pip install --no-deps --target TORCH_NPU_DIR torch-npu==...`` made; the default is
``$CAM_HCCL_TORCH_NPU_DIR``.  The cache is ``$CAM_HCCL_SHIM_CACHE``, or a folder under
``$XDG_CACHE_HOME`` (``~/.cache``).  Needs gcc and the binutils that come with it.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_SOURCES = ("cann_shim.c", "symbols.py", "build.py")


def _load_symbols_module():
    spec = importlib.util.spec_from_file_location("cann_shim_symbols", _HERE / "symbols.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def torch_npu_dir() -> Path:
    """The folder that holds torch-npu; FileNotFoundError says what is missing."""
    named = os.environ.get("CAM_HCCL_TORCH_NPU_DIR")
    if not named:
        raise FileNotFoundError(
            "CAM_HCCL_TORCH_NPU_DIR is not set: name the folder made by "
            "`pip install --no-deps --target DIR torch-npu==2.13.0`"
        )
    if not (Path(named) / "torch_npu").is_dir():
        raise FileNotFoundError(f"CAM_HCCL_TORCH_NPU_DIR={named} holds no torch_npu package")
    return Path(named)


def torch_npu_version(folder: Path) -> str:
    """The version that pip recorded in ``folder``."""
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        if distribution.name.lower().replace("_", "-") == "torch-npu":
            return distribution.version
    raise FileNotFoundError(f"no torch-npu distribution is recorded in {folder}")


def cache_folder(folder: Path) -> Path:
    """Where the shim for this torch-npu, this torch and these sources lives."""
    root = os.environ.get("CAM_HCCL_SHIM_CACHE")
    if root is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        root = Path(base) / "cam-hccl-plugin" / "cann-shim"
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((_HERE / name).read_bytes())
    digest.update(importlib.metadata.version("torch").encode())
    digest.update(sys.version.encode())
    return Path(root) / f"{torch_npu_version(folder)}-{digest.hexdigest()[:16]}"


def _gcc(*arguments: str | Path) -> None:
    command = ["gcc", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")


def _compile(torch_npu: Path, out: Path) -> None:
    torch_spec = importlib.util.find_spec("torch")
    if torch_spec is None or torch_spec.origin is None:
        raise FileNotFoundError(f"torch is not installed for {sys.executable}")
    wanted = _load_symbols_module().wanted_by(torch_npu, Path(torch_spec.origin).parent)

    written, generated = out / "written.o", out / "generated.c"
    _gcc("-O1", "-fPIC", "-Wall", "-Wextra", "-Werror", "-c", _HERE / "cann_shim.c", "-o", written)
    table = subprocess.run(
        ["nm", "--defined-only", str(written)], check=True, capture_output=True, text=True
    )
    have = {line.split()[-1] for line in table.stdout.splitlines()}
    bodies = [f"long {name}(void) {{ return 0; }}\n" for name in sorted(wanted.symbols - have)]
    generated.write_text("".join(bodies))
    objects = (written, out / "generated.o")
    _gcc("-O1", "-fPIC", "-fno-builtin", "-w", "-c", generated, "-o", objects[1])
    _gcc("-shared", "-o", out / "libcannshim.so", *objects)
    for name in sorted(wanted.libraries):
        soname = f"-Wl,-soname,{name}"
        link = ("-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", f"-L{out}", "-lcannshim")
        _gcc("-shared", soname, "-o", out / name, *link)
    for path in (*objects, generated):
        path.unlink()


def build_shim(folder: Path) -> Path:
    """Return the folder of the shim for the torch-npu in ``folder``, building it if needed.

    Builders may run at the same time: each works in a folder of its own, and the first to
    finish moves it into place.
    """
    final = cache_folder(folder)
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="build-", dir=final.parent))
    try:
        _compile(folder / "torch_npu", work)
        work.chmod(0o755)
        try:
            work.rename(final)
        except OSError:
            if not final.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final


if __name__ == "__main__":
    print(build_shim(Path(sys.argv[1]) if len(sys.argv) > 1 else torch_npu_dir()))
