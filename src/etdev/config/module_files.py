"""Functions that find the files of Python modules, and the names that these files define, without importing modules."""

from __future__ import annotations

import ast
import importlib.util
import os.path
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path

from etdev.files import read_file

MODULE_ENDS = ("/__init__.py", *EXTENSION_SUFFIXES, *SOURCE_SUFFIXES)
"""Endings that follow a module's path in the name of its file, in the order in which Python tries them."""

_DYNAMIC = frozenset({"__dict__", "__getattr__", "eval", "exec", "globals", "locals", "setattr", "sys.modules", "vars"})
"""Names that allow a module to define other names dynamically, so that the module's source does not show all names."""


def module_place(dotted: str, base: Path) -> Path | None:
    """Return the file of a module in ``base``, or the folder of a namespace package; None if neither exists."""
    place = base.joinpath(*dotted.split("."))
    found = next((Path(file) for end in MODULE_ENDS if os.path.isfile(file := f"{place}{end}")), None)
    return found or (place if os.path.isdir(place) else None)  # os.path, since Path's methods raise for invalid names.


def is_installed(name: str) -> bool:
    """Return True if a top-level module can be imported here. This function does not run the module's code."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def defined_names(file: Path) -> frozenset[str] | None:
    """Return every name that a source file binds, at any depth.

    Return None if the file cannot be parsed, or if it may define names dynamically.
    """
    try:
        nodes = list(ast.walk(ast.parse(read_file(file))))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    names = {name for node in nodes for name in _bound(node)}
    used = {name for node in nodes for name in _used(node)}
    return None if "*" in names or not _DYNAMIC.isdisjoint(names | used) else frozenset(names)


def top_level_names(file: Path) -> frozenset[str]:
    """Return the names that a source file binds outside of functions and classes; none if it cannot be parsed."""
    try:
        body = ast.parse(read_file(file)).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return frozenset()
    scopes = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = (node for each in body for node in ([each] if isinstance(each, scopes) else ast.walk(each)))
    return frozenset(name for node in nodes for name in _bound(node))


def _used(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr="__dict__" as name):
            yield name
        case ast.Attribute(value=ast.Name(id="sys"), attr="modules"):
            yield "sys.modules"


def _bound(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
            yield from _bound_in_package(node)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


def _bound_in_package(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield every part of the module names in an import statement, such as ``a`` and ``b`` for ``import a.b``.

    Python sets an imported submodule as an attribute of its package, in addition to the names that the statement binds.
    All parts are included, because the package that contains this file is unknown here.
    """
    modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    yield from (part for module in modules for part in module.split("."))
