"""Markdown as the repository shows it: headings, links and lists of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^ *(`{3,}|~{3,})")
_ITEM = re.compile(r"^ *(?:[*+-]|\d+\.) ")
_HEADING = re.compile(r"^(#{1,6}) +(.+?) *#*$")
_ANCHOR = re.compile(r'<a id="([^"]+)">')
_CODE = re.compile(r"(`+)(?!`)(?:[^\n]|\n(?!\n))+?(?<!`)\1(?!`)")
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^()\s]+)\)")
_INDENT = 4
"""Columns by which Python-Markdown expects the content of an item to be indented."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link or an image of a page."""

    target: str
    line: int
    """Counted from 1."""


def outside_code(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines that are not in a fence, each with its number, counted from 1."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = _FENCE.match(line)
        if fence:
            if found is not None and line.strip().startswith(fence):
                fence = ""
        elif found is not None:
            fence = found[1]
        else:
            yield number, line


def anchors(text: str) -> list[str]:
    """Return the anchors of a page: those of its headings, as GitHub makes them, and its own."""
    found: dict[str, int] = {}
    names = []
    for _, line in outside_code(text):
        names += _ANCHOR.findall(line)
        heading = _HEADING.match(line)
        if heading is not None:
            slug = _slug(heading[2])
            count = found.get(slug, 0)
            found[slug] = count + 1
            names.append(f"{slug}-{count}" if count else slug)
    return names


def _slug(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")


def links(text: str) -> list[Link]:
    """Return the links and images of a page outside of code."""
    masked = _masked(text)
    found = _LINK.finditer(masked)
    return [Link(match["target"], masked.count("\n", 0, match.start("target")) + 1) for match in found]


def relinked(text: str, resolve: dict[str, str]) -> str:
    """Return `text` with each target of a link that is a key of `resolve` replaced by its value."""
    parts, end = [], 0
    for match in _LINK.finditer(_masked(text)):
        parts += [text[end : match.start("target")], resolve.get(match["target"], match["target"])]
        end = match.end("target")
    return "".join([*parts, text[end:]])


def _masked(text: str) -> str:
    """Return a text of the same length without code."""
    shown = {number for number, _ in outside_code(text)}
    lines = [line if at in shown else " " * len(line) for at, line in enumerate(text.split("\n"), 1)]
    return _CODE.sub(lambda code: re.sub(r"[^\n]", "`", code[0]), "\n".join(lines))


def indented(text: str) -> str:
    """Return `text` with lists that Python-Markdown reads as CommonMark does.

    CommonMark lets the content of an item begin where its text begins. Python-Markdown wants four columns per level.
    """
    lines: list[str] = []
    columns: list[int] = []
    fence, shift, before = "", 0, ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if fence:
            fence = "" if found is not None and line.strip().startswith(fence) else fence
        elif line.strip():
            item = _ITEM.match(line)
            depth = len(line) - len(line.lstrip(" "))
            outer = [column for column in columns if column <= depth]
            own = depth - (outer[-1] if outer else 0)
            if item is not None and own < _INDENT:
                columns = [*outer, len(item[0])]
                own = 0
            elif not before.strip():
                columns = outer  # Without a blank line, the text continues a paragraph of an inner item.
            shift = len(outer) * _INDENT + own - depth
            fence = found[1] if found is not None else ""
        lines.append(_moved(line, shift))
        before = line
    return "\n".join(lines) + "\n"


def _moved(line: str, shift: int) -> str:
    """Return a line with `shift` more spaces in front, or with as many fewer as it has."""
    if not line.strip() or shift >= 0:
        return " " * shift + line if line.strip() else ""
    return line[min(-shift, len(line) - len(line.lstrip(" "))) :]
