"""Functions that find the packages that the modules of a project import, without importing the modules."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from etdev.config.module_files import is_installed, module_place
from etdev.files import read_file


def imported_packages(file: Path) -> frozenset[str]:
    """Return the packages that a module imports at any place; empty if the file is not a valid module."""
    nodes = (node for statement in _statements(file) for node in ast.walk(statement))
    return frozenset(name.partition(".")[0] for name in _imported(nodes))


def missing_imports(entry: str, base: Path) -> tuple[str, ...]:
    """Return the packages that the function ``entry`` of a project needs, and that are not installed here.

    ``entry`` is a function such as ``model:make``, and ``base`` is the folder of its module. Imports at the top level
    of the module and of the function count. Imports in other functions and in conditions do not, because they may be
    optional. The imports of modules in ``base`` count in the same way. If the module of ``entry`` is not in ``base``,
    return an empty tuple.
    """
    module, _, function = entry.partition(":")
    if module_place(module, base) is None:
        return ()
    waiting, seen, missing = [module], {module}, dict[str, None]()
    while waiting:
        name = waiting.pop()
        place = module_place(name, base)
        if place is None:
            top = name.partition(".")[0]
            if module_place(top, base) is None and top not in sys.stdlib_module_names and not is_installed(top):
                missing[top] = None
        elif place.suffix == ".py":
            found = [each for each in _needed(place, function if name == module else "") if each not in seen]
            seen.update(found)
            waiting += reversed(found)
    return tuple(missing)


def _needed(file: Path, function: str) -> list[str]:
    """Return the modules that a module imports at its top level, and at the top level of one of its functions."""
    body = _statements(file)
    own = [each for node in body if isinstance(node, ast.FunctionDef) and node.name == function for each in node.body]
    return list(dict.fromkeys(_imported([*body, *own])))


def _statements(file: Path) -> list[ast.stmt]:
    """Return the statements of a module; none if the file is not a valid module."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(read_file(file)).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the full names of the modules in import statements, except in relative imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
