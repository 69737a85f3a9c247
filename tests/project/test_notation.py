"""Messages outside of etdev.config read the same in TOML and in YAML: they name keys and values, not assignments."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import etdev

SOURCES = Path(etdev.__file__).parent
NEITHER = {"config", "templates"}
"""Config messages are written in the notation of the file; templates are TOML."""
ASSIGNMENT = re.compile(r"[a-z_]+ = (?:$|[\"\[{]|true|false)|(?<!etdev)\[(?:targets|deploy|methods|quantize|model)\b")


def test_no_message_is_in_toml() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}: {text}"
        for path in sorted(SOURCES.rglob("*.py"))
        if NEITHER.isdisjoint(path.relative_to(SOURCES).parts)
        for line, text in _texts(path)
        if ASSIGNMENT.search(text) and not text.startswith(("import ", "SELECT "))
    ]
    assert not found


def test_an_assignment_is_found() -> None:
    assert ASSIGNMENT.search('use memory.planner = "best"')
    assert ASSIGNMENT.search("add [deploy.NAME] with `target`")
    assert not ASSIGNMENT.search("a size may be `n = t.long().item()`")


def _texts(path: Path) -> list[tuple[int, str]]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs: set[int] = set()
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):  # Nodes come before what is in them.
        if isinstance(node, documented):
            docs |= {id(statement.value) for statement in node.body if isinstance(statement, ast.Expr)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            found.append((node.lineno, node.value))
    return found
