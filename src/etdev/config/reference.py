"""Generator of the section "Keys" in ``docs/config.md``: ``python -m etdev.config.reference [FILE]``."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from etdev.config.describe.grammar import Key, Leaf, ListOf, MapOf, Node, OneOf, TableOf, grammar_of, tables
from etdev.config.describe.notation import literal
from etdev.config.keys import KeyPath
from etdev.config.models import Config
from etdev.files import atomic_write_text

BEFORE = "## Keys\n\n`X` is a name of your own.\n\n"
AFTER = "## Keys that go together\n"


def reference(page: str) -> str:
    """Replace the text between ``BEFORE`` and ``AFTER`` in a page, and return the new page.

    ``page`` is the content of ``docs/config.md``. The new text is generated from the models.
    """
    sections = [_section(path, table) for path, table in tables(grammar_of(Config))]
    head, _, rest = page.partition(BEFORE)
    return "\n".join([f"{head}{BEFORE}".removesuffix("\n"), *sections, AFTER + rest.partition(AFTER)[2]])


def _section(path: KeyPath, table: TableOf) -> str:
    lines = [f"### {_title(path, table)}", "", inspect.cleandoc(table.model.__doc__ or ""), ""]
    lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [_row(path, key) for key in table.keys.values()]
    return "\n".join([*lines, ""])


def _title(path: KeyPath, table: TableOf) -> str:
    if not path:
        return "Top level"
    tag = next(_tags(table), "")
    return f"`{_header(path)}`{tag}"


def _tags(table: TableOf) -> Iterator[str]:
    for name, key in table.keys.items():
        if key.required and isinstance(key.node, Leaf) and len(key.node.values) == 1 and name != "version":
            yield f" with `{name} = {literal(key.node.values[0])}`"


def _header(path: KeyPath) -> str:
    own = iter("XYZ")
    header = ".".join(next(own) if part == "*" else part for part in path if isinstance(part, str))
    return f"[[{header}]]" if isinstance(path[-1], int) else f"[{header}]"


def _row(path: KeyPath, key: Key) -> str:
    meaning = re.sub(r"\bdocs/([\w-]+\.md)", r"[\1](\1)", key.description)
    cells = (f"`{key.name}`", _type(key.node, (*path, key.name)), _default(key), meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(node: Node, path: KeyPath) -> str:
    match node:
        case TableOf():
            return f"table `{_header(path)}`"
        case MapOf(value=TableOf() | OneOf()):
            inner = dict.fromkeys(_header(inner) for inner, _ in tables(node.value, (*path, "*")))
            return f"tables `{next(iter(inner))}`" if inner else node.expected
        case ListOf(item=TableOf()):
            return f"list of tables `{_header((*path, 0))}`"
    return node.expected.replace("text that is not empty", "text")


def _default(key: Key) -> str:
    if key.required:
        return "**required**"
    if key.default is None or isinstance(key.default, BaseModel):
        return ""
    return f"`{literal(key.default)}`"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=Path("docs/config.md"))
    file: Path = parser.parse_args().file
    atomic_write_text(file, reference(file.read_text(encoding="utf-8")))
