"""Text from untrusted data, made safe to print on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from etdev.units import format_count

if TYPE_CHECKING:
    from etdev.program.info import BufferInfo

_LABEL_WIDTH = 11
_LISTED = 8
"""Maximum number of names listed on one line."""
_MOST = 400
"""Maximum number of characters to show of one text from a file."""


def escaped(text: str) -> str:
    """Return the text with escaped control characters, except line ends.

    Names in a file may contain escape sequences, and marks that change the writing direction.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


def printable(text: str) -> str:
    """Return the text escaped, on one line, and shortened if it is very long."""
    shown = text if len(text) <= _MOST else f"{text[:_MOST]}…"
    return escaped(shown).replace("\n", "\\n")


def code_place(module: str | None, source: str | None) -> str:
    """Return a text with a module and its source line; empty if both are unknown."""
    if source is None:
        return printable(f"  {module}") if module else ""
    return printable(f"  {module} ({source})" if module else f"  {source}")


def line(label: str, text: str) -> str:
    """Return an indented line of a block: a label and a text."""
    return f"  {label:<{_LABEL_WIDTH - 1}} {text}".rstrip()


def lines(label: str, texts: Iterable[str]) -> list[str]:
    """Return indented lines for several texts, with the label on the first line only."""
    return [line("" if index else label, text) for index, text in enumerate(texts)]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines, with each column as wide as its widest cell."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 method``, ``2,000 methods``."""
    return format_count(number, noun)


def some(names: Sequence[str]) -> str:
    """Return the first names of a list as text, and the number of other names."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(map(printable, names[:_LISTED])) + more


def bound_text(buffer: BufferInfo) -> str:
    """Return a text that compares a buffer's size with the lower bound of all plans; empty without a known bound."""
    if buffer.lower_bound is None:
        return ""
    if buffer.lower_bound == buffer.size:
        return "only state" if buffer.state else "optimal"
    return f"lower bound {buffer.lower_bound:,}"
