"""The modules of a project that other modules import, directly or indirectly."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from etdev.files import read_file

_COMPUTED = frozenset({"__import__", "exec", "import_module", "importlib", "pkgutil", "runpy"})
"""Functions and modules with which Python code can import a module by a computed name."""


def imported_files(roots: Iterable[str], modules: Mapping[str, Path]) -> set[Path]:
    """Return the files of the modules in ``roots``, and the files of their direct and indirect imports.

    Parent packages of these modules are included. ``modules`` maps each imported module of the project to its file. If
    one of the files computes names to import, return all files in ``modules``.
    """
    found: dict[str, Path] = {}
    todo = [part for root in roots for part in _with_packages(root)]
    while todo:
        name = todo.pop()
        if name in found or name not in modules:
            continue
        found[name] = modules[name]
        named = _named(name, modules[name])
        if named is None:
            return set(modules.values())
        todo += [part for dotted in named for part in _with_packages(dotted)]
    return set(found.values())


def _named(name: str, file: Path) -> set[str] | None:
    """Return the names that a module's source imports; None if the source computes names to import.

    Return an empty set for an extension module, because it has no source.
    """
    if file.suffix != ".py":
        return set()
    try:
        tree = ast.parse(read_file(file))
    except (OSError, SyntaxError, ValueError):
        return None
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    nodes = list(ast.walk(tree))
    if any(_is_computed(node) for node in nodes):
        return None
    return {dotted for node in nodes for dotted in _imports(node, package)}


def _is_computed(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _COMPUTED
        case ast.Import(names=aliases):
            return any(alias.name.partition(".")[0] in _COMPUTED for alias in aliases)
        case ast.ImportFrom(module=str(module)):
            return module.partition(".")[0] in _COMPUTED
    return False


def _imports(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_packages(dotted: str) -> Iterator[str]:
    """Yield a dotted name and its parent packages: ``a.b.c``, ``a.b`` and ``a``."""
    while dotted:
        yield dotted
        dotted = dotted.rpartition(".")[0]
