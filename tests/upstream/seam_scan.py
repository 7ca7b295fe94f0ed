# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Find every place in a source tree that binds or calls upstream's group creation."""

from __future__ import annotations

import ast
from pathlib import Path

FUNCTION = "init_afd_process_group"


def _mentions(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(a.name == FUNCTION for a in node.names):
            return True
        if isinstance(node, ast.Attribute) and node.attr == FUNCTION:
            return True
        if isinstance(node, ast.FunctionDef) and node.name == FUNCTION:
            return True
        if isinstance(node, ast.Constant) and node.value == FUNCTION:
            return True
    return False


def modules_that_bind(package: Path) -> set[str]:
    """Paths within ``package`` of the modules that import, define or look the function up."""
    return {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if _mentions(ast.parse(path.read_text(encoding="utf-8")))
    }


def keywords_of_calls(module: Path) -> list[set[str]]:
    """The keywords of each direct call of the function in ``module``."""
    return [
        {keyword.arg or "**" for keyword in node.keywords}
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == FUNCTION
    ]


def parameters(module: Path) -> set[str]:
    """The parameters of the function defined in ``module``."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name == FUNCTION:
            return {a.arg for a in (*node.args.args, *node.args.kwonlyargs)}
    raise LookupError(f"{module} defines no {FUNCTION}")
