"""Draw docstrings and messages of the source at random, for readers who have not seen it.

    python benchmarks/voice.py [--seed 7] [--docstrings 60] [--messages 30] [--sources FOLDER ...]

A text that has to be read twice is rewritten; the share of such texts is the figure. Readers differ in what they
accept, so others read a draw from well-known packages (``--sources``): their share is the scale.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import random
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src" / "etdev"
_SHORTEST = 20
"""Characters of a message. Shorter texts are keys and names."""


def main() -> None:
    """Print the texts that were drawn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--docstrings", type=int, default=60)
    parser.add_argument("--messages", type=int, default=30)
    parser.add_argument("--sources", type=Path, nargs="+", default=[SOURCES], help="folders of Python packages")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    folders = [folder.resolve() for folder in arguments.sources]
    paths = [(path, path.relative_to(folder.parent)) for folder in folders for path in sorted(folder.rglob("*.py"))]
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for path, name in paths}
    for name, find in (("docstrings", _docstrings), ("messages", _messages)):
        found = [(path, *item) for path, tree in trees.items() for item in find(tree)]
        for number, (path, line, context, text) in enumerate(draw.sample(found, getattr(arguments, name)), 1):
            print(f"{name[:-1]} {number}, {path}:{line} <{context}>\n{text}\n")


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, context and text of each docstring, those of fields and constants included."""
    for node in ast.walk(tree):
        before = None
        for statement in getattr(node, "body", None) or () if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, _context(node if before is None else before), inspect.cleandoc(text)
            before = statement


def _context(node: ast.AST) -> str:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return f"def {node.name}({ast.unparse(node.args)})"
        case ast.ClassDef():
            return f"class {node.name}"
        case ast.Module():
            return "module"
    return ast.unparse(node).partition("\n")[0]


def _messages(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield line, callee and text of each error or problem, with its hint as users see it; ``…`` stands for a value."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        callee = ast.unparse(node.func).rpartition(".")[2]
        if not callee.endswith(("Error", "Issue", "Problem", "refuse", "note", "warn")):
            continue
        given = {keyword.arg: _text(keyword.value) for keyword in node.keywords}
        said = [text for text in (*map(_text, node.args), given.get("message", ""), given.get("summary", "")) if text]
        said = [text for text in said if len(text) >= _SHORTEST and " " in text]
        if said:
            hint = given.get("hint")
            yield node.lineno, callee, "\n".join(said) + (f"\nhelp: {hint}" if hint else "")


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        case ast.BinOp(op=ast.Add()):
            return _text(node.left) + _text(node.right)
    return ""


if __name__ == "__main__":
    main()
