"""No file imports itself through others: at run time, inside of functions, or for type checking only."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import etdev
from support.sources import imports

SOURCES = Path(etdev.__file__).parent
PROJECTS = SOURCES / "templates"
"""Folders below it are projects of the user's, with modules of their own."""


def graph(sources: Path, package: str) -> dict[str, set[str]]:
    """Return by module of a package the modules of it that it imports anywhere."""
    files = {_name(path, sources, package): path for path in sorted(sources.rglob("*.py")) if _is_own(path)}
    return {name: _imports(path, files.keys()) - {name} for name, path in files.items()}


def _is_own(path: Path) -> bool:
    return not path.is_relative_to(PROJECTS) or path.parent == PROJECTS


def _name(path: Path, sources: Path, package: str) -> str:
    parts = path.relative_to(sources).with_suffix("").parts
    return ".".join((package, *(part for part in parts if part != "__init__")))


def _imports(path: Path, known: object) -> set[str]:
    found = set()
    for node in imports(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module is not None:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in inner}  # type: ignore[operator]
    return {name for name in found if name in known}  # type: ignore[operator]


def test_no_file_imports_itself_through_others() -> None:
    found = graph(SOURCES, "etdev")
    assert len(found) > 400
    tuple(TopologicalSorter(found).static_order())


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from p import b\n")
    (tmp_path / "b.py").write_text("def f():\n    from p.c import g\n")
    (tmp_path / "c.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a\n")
    with pytest.raises(CycleError):
        TopologicalSorter(graph(tmp_path, "p")).prepare()
