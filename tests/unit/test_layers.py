# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The layers: what may import what, and the sizes that keep files readable."""

from __future__ import annotations

import ast

import pytest
from source import PACKAGE, ROOT, imports, internal_imports, modules, strings, tree

# One home per fact: the layer of every module; a new module must be entered here.
LAYERS = {
    "errors": 0,
    "flag_places": 0,
    "model": 0,
    "sizing": 1,
    "operators": 1,
    "memory": 1,
    "model_config": 1,
    "model_shapes": 1,
    "log": 1,
    "import_watch": 1,
    "environment": 1,
    "ledger": 1,
    "settings": 1,
    "planning": 2,
    "hookspecs": 2,
    "report": 2,
    "memory_guard": 2,
    "operator_window": 2,
    "role_match": 2,
    "builtin_hooks": 3,
    "plugin_host": 3,
    "vllm_adapter": 4,
    "hccl_options": 4,
    "torch_process": 4,
    "injector": 5,
    "connector_start": 5,
    "startup": 5,
    "patches": 6,
    "patches.connector_factory": 6,
    "patches.engine_config": 6,
    "patches.process_group": 6,
    "patches.upstream": 6,
    "patches.wrapping": 6,
    "bootstrap": 7,
    "cli": 7,
    "": 8,
    "__main__": 8,
}
MODULES = modules()
LAYERS |= {name: 7 for name in MODULES if name.startswith("cli.")}
# The commands that ask another Python process, which inherits the environment as it is.
ASKS_A_PROCESS = {"cli.vllm_parser", "cli.doctor_probe"}
UPSTREAM = {"torch", "torch_npu", "vllm", "afd_plugin"}
every_module = pytest.mark.parametrize("name", sorted(MODULES))


def top_level(name: str) -> set[str]:
    return {imported.partition(".")[0] for imported in imports(MODULES[name])}


def test_every_module_has_a_layer() -> None:
    assert set(MODULES) == set(LAYERS)


@every_module
def test_an_arrow_only_points_down_or_sideways(name: str) -> None:
    for target in internal_imports(MODULES[name]):
        assert LAYERS[target] <= LAYERS[name] or target == "", f"{name} imports {target}"


def test_there_is_no_circle() -> None:
    arrows = {name: internal_imports(file) - {""} for name, file in MODULES.items()}
    while leaves := {name for name, targets in arrows.items() if not targets & set(arrows)}:
        arrows = {name: targets for name, targets in arrows.items() if name not in leaves}
    assert arrows == {}


@every_module
def test_the_package_root_is_imported_for_its_version_only(name: str) -> None:
    for node in ast.walk(tree(MODULES[name])):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            own = {a.name for a in node.names if a.name not in MODULES}
            assert own <= {"__version__"}


@pytest.mark.parametrize("name", [n for n, layer in LAYERS.items() if layer <= 3])
def test_the_lower_layers_know_no_upstream(name: str) -> None:
    assert not top_level(name) & UPSTREAM
    assert not top_level(name) & {"os", "subprocess"}


@every_module
def test_only_the_adapter_reads_the_environment(name: str) -> None:
    if name != "vllm_adapter":
        words = {n.attr for n in ast.walk(tree(MODULES[name])) if isinstance(n, ast.Attribute)}
        assert not words & {"environ", "environb", "getenv"}


@every_module
def test_torch_is_known_to_two_modules_alone_and_inside_functions(
    name: str,
) -> None:
    if name in ("hccl_options", "torch_process"):
        outside = [
            n for n in tree(MODULES[name]).body if isinstance(n, (ast.Import, ast.ImportFrom))
        ]
        names = {a.name for n in outside for a in n.names} | {
            n.module or "" for n in outside if isinstance(n, ast.ImportFrom)
        }
        assert not names & UPSTREAM
    else:
        assert not top_level(name) & {"torch", "torch_npu"}


@every_module
def test_vllm_and_afd_plugin_are_never_imported_by_name(name: str) -> None:
    assert not top_level(name) & {"vllm", "afd_plugin"}


@every_module
def test_nothing_but_the_entry_points_imports_bootstrap_or_cli(name: str) -> None:
    if LAYERS[name] == 8:
        return
    targets = internal_imports(MODULES[name])
    assert "bootstrap" not in targets
    if not name.startswith("cli"):
        assert not {t for t in targets if t.partition(".")[0] == "cli"}


@every_module
def test_only_patches_names_a_module_of_afd_plugin(name: str) -> None:
    if name.partition(".")[0] == "patches":
        return
    named = [s for s in strings(MODULES[name]) if s == "afd_plugin" or s.startswith("afd_plugin.")]
    assert named == []


@every_module
def test_files_and_functions_stay_small(name: str) -> None:
    file = MODULES[name]
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 300
    for node in ast.walk(tree(file)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= 40, f"{node.name} has {length} lines"


@every_module
def test_the_header_and_a_docstring_are_there(name: str) -> None:
    text = MODULES[name].read_text(encoding="utf-8").splitlines()
    assert text[0] == "# SPDX-License-Identifier: Apache-2.0"
    assert text[1].startswith("# SPDX-FileCopyrightText: ")
    assert ast.get_docstring(tree(MODULES[name]))


@pytest.mark.parametrize("name", [n for n in MODULES if n.startswith("patches.")])
def test_a_patch_says_what_it_patches_and_when_to_delete_it(name: str) -> None:
    if name in ("patches.upstream", "patches.wrapping"):
        return
    text = ast.get_docstring(tree(MODULES[name])) or ""
    for label in ("Upstream", "Versions", "Why", "Change", "Bindings", "Unaffected", "Delete when"):
        assert f"\n{label}:" in text


@every_module
def test_suppressions_carry_a_code_and_a_reason(name: str) -> None:
    for line in MODULES[name].read_text(encoding="utf-8").splitlines():
        if "# noqa" in line:
            code, _, reason = line.partition("# noqa: ")[2].partition(" - ")
            assert code
            assert reason
        if "type: ignore" in line:
            assert "type: ignore[" in line
            assert line.partition("type: ignore[")[2].count("#") == 1


def test_the_words_that_the_house_avoids_name_nothing() -> None:
    for file in (ROOT / PACKAGE).rglob("*"):
        assert file.stem not in {"manager", "utils", "helpers", "common"}


def _parents(module: ast.Module) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}


@every_module
def test_no_module_does_anything_but_get_from_the_environment(name: str) -> None:
    module = tree(MODULES[name])
    parents = _parents(module)
    for node in ast.walk(module):
        if isinstance(node, (ast.Name, ast.Attribute)):
            word = node.id if isinstance(node, ast.Name) else node.attr
            assert word not in {"putenv", "unsetenv", "environb", "setenv", "Popen"}
            if word == "environ":
                got = parents[node]
                call = parents[got] if isinstance(got, ast.Attribute) else got
                assert isinstance(call, ast.Call)
                if call is got:  # dict(os.environ), a copy
                    assert isinstance(call.func, ast.Name)
                    assert call.func.id == "dict"
                else:
                    assert isinstance(got, ast.Attribute)
                    assert got.attr == "get"
                    assert call.func is got
        if isinstance(node, ast.ImportFrom):
            assert node.module not in {"os", "subprocess", "multiprocessing"}
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
            allowed = {"subprocess"} if name in ASKS_A_PROCESS else set()
            assert not names & ({"subprocess", "multiprocessing"} - allowed)
            assert all(alias.asname is None for alias in node.names if alias.name == "os")
