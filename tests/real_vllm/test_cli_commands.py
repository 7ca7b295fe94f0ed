# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""``cam-hccl plan`` and ``doctor`` beside the real vLLM: its parser reads the commands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import SEAM_DOUBLE

pytestmark = pytest.mark.vllm_runtime

SHAPE = ["--model-shape", "deepseek-v3.2"]
AFD = {
    "connector": "CAMAsyncAFDConnector",
    "num_attention_ranks": 16,
    "num_ffn_ranks": 16,
    "connector_extra_config": {"dynamicQuant": 1, "attn_ranks_per_dp": 8},
}


def cam_hccl(
    *words: str, stdin: str = "", path: tuple[Path, ...] = (), **env: str
) -> tuple[int, str, str]:
    inherited = {k: v for k, v in os.environ.items() if k not in ("VLLM_PLUGINS", "HCCL_BUFFSIZE")}
    search = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "cam_hccl_plugin", *words],
        input=stdin,
        env={**inherited, **({"PYTHONPATH": search} if search else {}), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=420,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def serve(role: str, *more: str, flag: Any = None, parallel: str = "") -> list[str]:
    parallel = parallel or ("-tp 8 -dp 2" if role == "attention" else "-dp 16")
    config = {"afd": {**AFD, "role": role}, "cam_hccl": flag or {}}
    words = ["vllm", "serve", "/m", "--max-num-batched-tokens", "8K", *parallel.split(), *more]
    return [*words, "--additional-config", json.dumps(config)]


def both(*more: str, parser: str) -> tuple[int, str, str]:
    lines = "\n".join(shlex.join(serve(role, *more)) for role in ("attention", "ffn"))
    return cam_hccl("plan", "-", "--json", "--parser", parser, *SHAPE, stdin=lines)


def test_vllms_parser_and_ours_agree() -> None:
    transfer = {
        "kv_connector": "SharedStorageConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"cam_hccl": {}},
    }
    more = ("--enable-dbo", "--kv-transfer-config", json.dumps(transfer), "--seed", "1024")
    theirs, ours = (both(*more, parser=parser) for parser in ("vllm", "own"))
    assert theirs == ours
    status, out, err = theirs
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert {r: e["selected_mb"] for r, e in found["roles"].items()} == {
        "attention": 139,
        "ffn": 113,
    }
    assert found["warnings"] == found["notes"] == []


def test_a_yaml_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("tensor-parallel-size: 8\nmax-num-batched-tokens: 4096\n", encoding="utf-8")
    config = {"afd": {**AFD, "role": "attention"}, "cam_hccl": {}}
    words = ["vllm", "serve", "/m", "--config", str(file), "-dp", "2"]
    words += ["--additional-config", json.dumps(config)]
    status, out, err = cam_hccl("plan", "--json", *SHAPE, "--", *words)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["roles"]["attention"]["max_num_batched_tokens"] == 4096
    assert found["warnings"] == []


def test_what_vllm_refuses_is_one_message() -> None:
    status, out, err = cam_hccl("plan", *SHAPE, "--", *serve("attention", "--no-such-option"))
    assert (status, out) == (2, "")
    assert err.startswith("cam-hccl: error: vLLM refuses the command:")
    assert "--no-such-option" in err
    assert err.count("\n") == 1


def test_what_vllm_takes_in_silence_is_refused_before() -> None:
    more = ("--additional-config.cam_hccl.headroom", "1.2")
    status, _, err = cam_hccl("plan", *SHAPE, "--", *serve("attention", *more))
    assert status == 2
    assert "both as JSON and dotted" in err


def test_the_doctor_finds_vllm_and_the_seam() -> None:
    plugins = "ascend,afd,cam_hccl"
    status, out, _ = cam_hccl("doctor", "--json", path=(SEAM_DOUBLE,), VLLM_PLUGINS=plugins)
    checks = {check["check"]: check for check in json.loads(out)["checks"]}
    assert checks["vLLM"]["status"] == "ok"
    assert checks["entry point"]["status"] == "ok"
    assert checks["VLLM_PLUGINS"]["status"] == "ok"
    assert checks["afd-plugin seam"]["status"] == "ok"
    assert "CAMP2pAFDConnector" in checks["afd-plugin seam"]["text"]
    assert status == 1  # no vllm-ascend here
