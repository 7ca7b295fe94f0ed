# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""The package's source as syntax trees."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "cam_hccl_plugin"
ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def modules() -> dict[str, Path]:
    """Dotted name below the package (``""`` for the package itself) to its file."""
    found = {}
    for file in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = list(file.relative_to(ROOT / PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = file
    return found


@functools.cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def _type_checking(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and (node.test.id == "TYPE_CHECKING")
    )


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not _type_checking(child):
            yield from _walk(child)


@functools.cache
def imports(file: Path) -> set[str]:
    """Absolute names of everything imported, inside functions too; types excepted."""
    found: set[str] = set()
    for node in _walk(tree(file)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            module = node.module or ""
            known = modules()
            for alias in node.names:
                name = f"{module}.{alias.name}"
                inner = name.removeprefix(PACKAGE + ".")
                found.add(name if name != inner and inner in known else module)
    return found


def internal_imports(file: Path) -> set[str]:
    """Those within the package, as names below it."""
    return {
        name.removeprefix(PACKAGE).lstrip(".")
        for name in imports(file)
        if name == PACKAGE or name.startswith(PACKAGE + ".")
    }


def strings(file: Path) -> list[str]:
    """String constants that are no docstrings."""
    module = tree(file)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, documented)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]
