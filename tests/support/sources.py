"""The project's own code, for tests that look at it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")


@cache
def imports(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return the import statements of a file that no test changes, those in functions and branches too."""
    return tuple(_imports(ast.parse(path.read_text(encoding="utf-8"))))


def _imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Leave out expressions, which are most of a tree and which ``ast.walk`` visits."""
    remaining = [tree]
    while remaining:
        node = remaining.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.expr):
            remaining += (statement for block in _BLOCKS for statement in getattr(node, block, ()))
