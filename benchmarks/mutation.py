"""How many deliberate mistakes the tests notice.

    python benchmarks/mutation.py                      # 10 mistakes each in linker, planner, program and pipeline
    python benchmarks/mutation.py --integration        # the same mistakes, with the integration tests too
    python benchmarks/mutation.py --list               # the mistakes alone
    python benchmarks/mutation.py --count 3 planner    # fewer, in one package

Each mistake changes one expression of a copy of the repository: a comparison, an operator, a condition or a number. The
same seed draws the same mistakes, whichever tests run. The tests of the package run first, then all others.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("linker", "planner", "program", "pipeline")
TESTS = {"pipeline": ["tests/pipeline", "tests/verification", "tests/execution", "tests/inspection"]}
"""Tests of a package that are not in the folder of its name alone."""
LIMIT = 3600
"""Seconds until a run of tests counts as hung, and the mistake as noticed."""
COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv}


@dataclass(frozen=True)
class Mistake:
    """One changed expression."""

    file: Path
    line: int
    before: str
    after: str
    source: str
    """The whole module with the change."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before}  ->  {self.after}"


def changed(node: ast.expr) -> ast.expr | None:
    """Return the expression with one mistake; None if this kind has none."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators) if type(op) in COMPARISONS:
            return ast.Compare(left, [COMPARISONS[type(op)]()], comparators)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.BoolOp(op=op, values=values):
            return ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value)):
            return ast.Constant(value + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(test, orelse, body)
        case _:
            return None


def expressions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions inside functions, but not those of annotations, defaults, messages and errors."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from _inside(statement)


def _inside(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.FunctionDef | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name != "annotation":
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _inside(child)


def mistakes(package: str, count: int, seed: int) -> list[Mistake]:
    """Return mistakes in a package, at most one in each file as long as there are files."""
    draw = random.Random(f"{seed} {package}")
    files = sorted((ROOT / "src/etdev" / package).rglob("*.py"))
    draw.shuffle(files)
    found: list[Mistake] = []
    while len(found) < count:
        for file in files:
            source = file.read_text(encoding="utf-8")
            nodes = [node for node in expressions(ast.parse(source)) if node.lineno == node.end_lineno]
            nodes = [node for node in nodes if changed(node) is not None]
            if nodes and len(found) < count:
                found.append(_with_mistake(file, source, draw.choice(nodes)))
    return found


def _with_mistake(file: Path, source: str, node: ast.expr) -> Mistake:
    new = changed(node)
    assert new is not None
    after = f"({ast.unparse(ast.fix_missing_locations(new))})"
    lines = source.splitlines(keepends=True)
    line = lines[node.lineno - 1].encode()
    before = line[node.col_offset : node.end_col_offset].decode()
    lines[node.lineno - 1] = (line[: node.col_offset] + after.encode() + line[node.end_col_offset :]).decode()
    return Mistake(file.relative_to(ROOT), node.lineno, before, after, "".join(lines))


def noticed(copy: Path, package: str, arguments: Sequence[str]) -> str | None:
    """Return the first test that fails in the copy; None if all pass."""
    own = TESTS.get(package, [f"tests/{package}"])
    for folders in (own, ["tests", *(f"--ignore={folder}" for folder in own)]):
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--dist", "worksteal", *arguments, *folders]
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "ETDEV_EXAMPLES": "same"}
        try:
            run = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return "no end"
        if run.returncode:
            failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return failed[0].split(" - ")[0] if failed else run.stdout.strip().splitlines()[-1]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--integration", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    drawn = [(name, mistake) for name in options.packages for mistake in mistakes(name, options.count, options.seed)]
    if options.list:
        print(*(str(mistake) for _, mistake in drawn), sep="\n")
        return
    arguments = ["-n", str(options.processes), *(["--integration"] if options.integration else [])]
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "etdev"
        ignored = shutil.ignore_patterns(".venv", "build", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, copy, ignore=ignored)
        for package, mistake in drawn:
            path = copy / mistake.file
            whole = path.read_text(encoding="utf-8")
            path.write_text(mistake.source, encoding="utf-8")
            begin = time.monotonic()
            by = noticed(copy, package, arguments)
            path.write_text(whole, encoding="utf-8")
            found += by is not None
            print(f"{mistake}\n    {by or 'NOT NOTICED'} ({time.monotonic() - begin:.0f} s)", flush=True)
        # Where a mistake is not noticed, all tests passed.
        if found == len(drawn) and (by := noticed(copy, "planner", arguments)) is not None:
            sys.exit(f"the tests fail without any mistake: {by}")
    print(f"{found} of {len(drawn)} noticed")


if __name__ == "__main__":
    main()
