# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The CANN stand-in is built once, by whoever comes first, for the torch-npu that is there."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cann_shim.build import build_shim, cache_folder, torch_npu_dir

pytestmark = pytest.mark.torch_npu


@pytest.fixture
def empty_cache(warmed, tmp_path, monkeypatch):
    """A cache folder of this test's own; ``warmed`` makes sure that torch-npu is there."""
    monkeypatch.setenv("CAM_HCCL_SHIM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_builders_at_the_same_time_end_with_one_shim(empty_cache):
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build_shim, [torch_npu_dir()] * 2)
    assert first == second
    assert list(empty_cache.iterdir()) == [first]
    assert {"libcannshim.so", "libhccl.so", "libascendcl.so"} <= {p.name for p in first.iterdir()}
    built = first.stat().st_mtime_ns
    assert build_shim(torch_npu_dir()).stat().st_mtime_ns == built


def test_the_cache_tells_versions_apart(empty_cache, tmp_path):
    info = tmp_path / "other" / "torch_npu-9.9.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-npu\nVersion: 9.9.9\n")
    assert cache_folder(tmp_path / "other").name.startswith("9.9.9-")
    assert cache_folder(tmp_path / "other") != cache_folder(torch_npu_dir())


@pytest.mark.parametrize("named", [None, "/nonexistent"])
def test_a_missing_torch_npu_is_named(monkeypatch, named):
    if named is None:
        monkeypatch.delenv("CAM_HCCL_TORCH_NPU_DIR", raising=False)
    else:
        monkeypatch.setenv("CAM_HCCL_TORCH_NPU_DIR", named)
    with pytest.raises(FileNotFoundError, match="CAM_HCCL_TORCH_NPU_DIR"):
        torch_npu_dir()
