"""Plain text for people out of data that may come from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_LABEL_WIDTH = 11
_LISTED = 8
"""Most names that are listed in one line."""
_MOST = 400
"""Characters of one text out of a file; a longer one says nothing to anybody."""


def escaped(text: str) -> str:
    """The text with everything but line ends escaped that a terminal would not print but obey.

    Names in a file may hold escape sequences, and marks that turn the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


def printable(text: str) -> str:
    """The text escaped, on one line, and cut where it is endless."""
    shown = text if len(text) <= _MOST else f"{text[:_MOST]}…"
    return escaped(shown).replace("\n", "\\n")


def line(label: str, text: str) -> str:
    """An indented line of a block: what it is about, and what there is to say."""
    return f"  {label:<{_LABEL_WIDTH - 1}} {text}".rstrip()


def lines(label: str, texts: Iterable[str]) -> list[str]:
    """Several lines about one thing, which stands before the first of them."""
    return [line("" if index else label, text) for index, text in enumerate(texts)]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, each column as wide as its widest cell."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def count(number: int, noun: str) -> str:
    """``1 method``, ``2,000 methods``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def some(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(map(printable, names[:_LISTED])) + more
