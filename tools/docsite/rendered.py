"""HTML of the pages: text that Python-Markdown renders otherwise than GitHub, and hooks for styles and scripts."""

from __future__ import annotations

import html
import re

_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_CODE = re.compile(r"<code>(?P<text>[^<]*)</code>")
_PRINTED = re.compile(r"<(pre|p|li|td|th)\b[^>]*>.*?</\1>", re.DOTALL)
_RAW = re.compile(r"`{3}|~{3}|\\\|")
"""A fence or an escaped bar that the renderer did not read."""


def finished(text: str) -> str:
    """Return the HTML of a page with the forms of GitHub's renderer that Python-Markdown does not know."""
    return _CELL.sub(lambda cell: _bars(cell[0]), text)


def _bars(cell: str) -> str:
    r"""Return a cell of a table with `|` for each `\|` in code, as GitHub shows it."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), cell)


def faults(text: str) -> list[str]:
    """Return Markdown that a page shows as text: fences and escaped bars, with the text around them."""
    found = []
    for block in _PRINTED.finditer(text):
        plain = html.unescape(re.sub(r"<[^>]+>", "", block[0]))
        found += [plain[max(raw.start() - 30, 0) : raw.end() + 30] for raw in _RAW.finditer(plain)]
    return list(dict.fromkeys(found))
