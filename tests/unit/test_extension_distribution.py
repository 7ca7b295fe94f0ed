# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""An installed distribution brings its own kind of connector, through a real entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import SEAM_DOUBLE
from processes import run

UNIT = Path(__file__).resolve().parent

HOOKS = """
import sys
from cam_hccl_plugin import hookimpl
from cam_hccl_plugin.model import MiB, ConnectorClaim, GroupRequest, Role, RoleNeed

@hookimpl
def cam_hccl_claim_connector(connector):
    if "StarfishConnector" in connector.base_names:
        return ConnectorClaim("starfish", tokens_shared=True)

@hookimpl
def cam_hccl_describe_groups(claim, topology):
    if claim.kind == "starfish":
        moe = GroupRequest("belly", frozenset({Role.FFN}))
        return (GroupRequest("arms"), moe)

@hookimpl
def cam_hccl_role_need(claim, role, inputs):
    if claim.kind == "starfish":
        factor = 2 if role is Role.FFN else 1
        return RoleNeed(factor * inputs.max_num_batched_tokens * MiB, 1 * MiB, 1)

@hookimpl
def cam_hccl_plan_ready(plan):
    sizes = {g.name: g.size_mib for g in plan.groups}
    print("TOLD", plan.role.value, sizes, file=sys.stderr)
"""

CONNECTOR = """
from datetime import timedelta
from afd_plugin.connectors.base import AFDConnectorBase
from afd_plugin.distributed import init_afd_process_group

class StarfishConnector(AFDConnectorBase):
    def init_afd_connector(self):
        names = ["arms", "belly"] if self.afd_config.role == "ffn" else ["arms"]
        for name in names:
            init_afd_process_group(
                backend="hccl", init_method="tcp://127.0.0.1:1", world_size=2, rank=0,
                group_name=name, timeout=timedelta(minutes=1))
        self._initialized = True
"""

START = """
import sys
sys.path.insert(0, {unit!r})
from fakes import Groups, fake_torch, fake_torch_npu, vllm_config
groups = Groups()
sys.modules.update(torch=fake_torch(groups), torch_npu=fake_torch_npu())
import cam_hccl_plugin
cam_hccl_plugin.register()
from afd_plugin.distributed import afd_process_group
afd_process_group.create_group = groups.create
from afd_plugin.connectors.factory import AFDConnectorFactory as factory
factory.register_connector("StarfishConnector", "starfish.connector", "StarfishConnector")
config = vllm_config(connector="StarfishConnector", role={role!r}, tokens=100, flag={{}})
factory.create_connector(0, 0, config).init_afd_connector()
print(groups.sizes)
"""

PLAN = (
    *("plan", "--connector", "StarfishConnector", "--max-num-batched-tokens", "100"),
    *("--hidden-size", "64", "--topk", "2", "--routed-experts", "8"),
    *("--attention-ranks", "2", "--ffn-ranks", "2", "--json"),
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder in which the distribution ``starfish`` is installed."""
    package, info = tmp_path / "starfish", tmp_path / "starfish-1.0.dist-info"
    files = {
        package / "__init__.py": "",
        package / "hooks.py": HOOKS,
        package / "connector.py": CONNECTOR,
        info / "METADATA": "Metadata-Version: 2.1\nName: starfish\nVersion: 1.0\n",
        info / "entry_points.txt": "[cam_hccl_plugin]\nstarfish = starfish.hooks\n",
    }
    for file, text in files.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return tmp_path


def test_without_the_distribution_the_connector_is_unknown() -> None:
    done = run("-m", "cam_hccl_plugin", *PLAN)
    assert done.returncode == 2
    assert "not CAM-type" in done.stderr


def test_the_plan_command_knows_the_connector(site: Path) -> None:
    done = run("-m", "cam_hccl_plugin", *PLAN, path=(site,))
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["kind"] == "starfish"
    assert found["roles"]["attention"]["groups"] == {"arms": 110}
    assert found["roles"]["ffn"]["groups"] == {"arms": 220, "belly": 220}
    assert found["roles"]["ffn"]["operator_bytes"] == 1048576
    assert done.stderr.splitlines() == [
        "TOLD attention {'arms': 110}",
        "TOLD ffn {'arms': 220, 'belly': 220}",
    ]


def test_scope_group_works_where_the_claim_says_that_tokens_are_shared(site: Path) -> None:
    done = run("-m", "cam_hccl_plugin", *PLAN, "--scope", "group", path=(site,))
    found = json.loads(done.stdout)["roles"]
    assert found["attention"]["groups"] == {"arms": 220}
    assert found["ffn"]["groups"] == {"arms": 220, "belly": 220}


@pytest.mark.parametrize("generation", ["a", "b"])
@pytest.mark.parametrize(
    ("role", "sizes"), [("attention", {"arms": 110}), ("ffn", {"arms": 220, "belly": 220})]
)
def test_the_factory_creates_it_with_its_sizes(
    site: Path, role: str, sizes: dict[str, int], generation: str
) -> None:
    code = START.format(unit=str(UNIT), role=role)
    env = {"SEAM_DOUBLE_GENERATION": generation}
    done = run("-c", code, path=(site, SEAM_DOUBLE), env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{sizes}\n"
    assert done.stderr.count("TOLD") == 1


@pytest.mark.parametrize(
    ("hooks", "words"),
    [
        ("import nowhere_to_be_found\n", ["nowhere_to_be_found", "entry point 'starfish'"]),
        (HOOKS.replace("cam_hccl_plan_ready", "cam_hccl_plan_redy"), ["cam_hccl_plan_redy"]),
        (
            HOOKS.replace(
                'return ConnectorClaim("starfish", tokens_shared=True)', "raise KeyError(7)"
            ),
            ["extension 'starfish'", "cam_hccl_claim_connector", "KeyError"],
        ),
    ],
)
def test_an_extension_that_is_broken_is_one_message(
    site: Path, hooks: str, words: list[str]
) -> None:
    (site / "starfish" / "hooks.py").write_text(hooks, encoding="utf-8")
    done = run("-m", "cam_hccl_plugin", *PLAN, path=(site,))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_an_extension_that_is_broken_does_not_hurt_who_is_off(site: Path) -> None:
    (site / "starfish" / "hooks.py").write_text("raise RuntimeError\n", encoding="utf-8")
    code = START.format(unit=str(UNIT), role="ffn").replace("flag={})", "flag=None)")
    done = run("-c", code, path=(site, SEAM_DOUBLE))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'arms': None, 'belly': None}\n"
