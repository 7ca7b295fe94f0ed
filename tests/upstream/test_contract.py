# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The seam is where we believe it is: an undeclared copy of the function fails here first."""

import pytest

from upstream.seam_scan import keywords_of_calls, modules_that_bind, parameters

pytestmark = pytest.mark.upstream

_PATCHED = ("connectors/npu/async_cam.py", "connectors/npu/camp2p.py")
_DEFINITION = "distributed/afd_process_group.py"
_DECLARED = {*_PATCHED, _DEFINITION, "distributed/__init__.py", "connectors/gpu/p2p.py"}
_RELIED_ON = {"backend", "group_name", "rank"}


def test_no_module_binds_the_function_that_is_not_declared(upstream_source):
    assert modules_that_bind(upstream_source / "afd_plugin") == _DECLARED


@pytest.mark.parametrize("module", _PATCHED)
def test_cam_connectors_pass_the_keywords_we_rely_on(upstream_source, module):
    calls = keywords_of_calls(upstream_source / "afd_plugin" / module)
    assert calls
    for keywords in calls:
        assert keywords >= _RELIED_ON


def test_the_function_takes_options(upstream_source):
    assert parameters(upstream_source / "afd_plugin" / _DEFINITION) >= _RELIED_ON | {"pg_options"}


def test_the_scan_sees_every_way_of_binding(tmp_path):
    sources = {
        "by_name": "from x import init_afd_process_group as f",
        "attribute": "import x\nx.init_afd_process_group()",
        "definition": "def init_afd_process_group(): ...",
        "looked_up": "getattr(x, 'init_afd_process_group')",
        "unrelated": "from x import something",
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    assert modules_that_bind(tmp_path) == {f"{n}.py" for n in sources if n != "unrelated"}
