"""HTML of the pages: forms that GitHub renders and Python-Markdown does not, and marks for styles and scripts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_CODE = re.compile(r"<code>(?P<text>[^<]*)</code>")
_OUTSIDE = re.compile(r"(<pre\b.*?</pre>|<svg\b.*?</svg>)", re.DOTALL)
_FLAG = re.compile(r"(?<![\w-])--?\w[\w-]*")
_SHORT = 24
"""Characters of code that one line of a phone always has room for."""
_SESSION = re.compile(r'<div class="highlight">(?P<block><pre><span></span><code>(?P<text>\$ [^<]*)</code>)')
_ALERT = re.compile(r"<blockquote>\s*<p>\[!(?P<kind>NOTE|TIP|WARNING)\]\s*(?P<text>.*?)</blockquote>", re.DOTALL)
_BUTTON = re.compile(r'<p><strong><a href="(?P<target>[^"]+)">(?P<text>[^<]+)</a></strong></p>')
_KEYS = re.compile(r"<table>\s*<thead>\s*<tr>\s*<th>key</th>\s*<th>type</th>.*?</table>", re.DOTALL)
_DRAWING = re.compile(r'<img alt="(?P<alt>[^"]*)" src="(?P<source>images/[\w-]+\.svg)" ?/?>')
_PRINTED = re.compile(r"<(pre|p|li|td|th)\b[^>]*>.*?</\1>", re.DOTALL)
_RAW = re.compile(r"`{3}|~{3}|\\\||\[!\w+\]")
"""Markdown that the renderer did not read: a fence, an escaped bar, or the mark of an alert."""


def finished(text: str, docs: Path) -> str:
    """Return the HTML of a page as the site shows it. `docs` is the folder with its images."""
    text = _CELL.sub(lambda cell: _bars(cell[0]), text)
    text = _ALERT.sub(_alert, text)
    text = _BUTTON.sub(r'<p><a class="md-button md-button--primary" href="\g<target>">\g<text></a></p>', text)
    text = _SESSION.sub(_session, text)
    text = _KEYS.sub(lambda table: f'<div class="keys">{table[0]}</div>', text)
    text = "".join(part if at % 2 else _CODE.sub(_whole, part) for at, part in enumerate(_OUTSIDE.split(text)))
    return _DRAWING.sub(lambda image: _drawing(docs / image["source"], image["alt"]), text)


def _bars(cell: str) -> str:
    r"""Return a cell of a table with `|` for each `\|` in code, as GitHub shows it."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), cell)


def _alert(quote: re.Match[str]) -> str:
    """Return a box for an alert of GitHub, `> [!WARNING]`."""
    kind = quote["kind"].lower()
    title = f'<p class="admonition-title">{kind.capitalize()}</p>'
    return f'<div class="admonition {kind}">\n{title}\n<p>{quote["text"]}</div>'


def _session(block: re.Match[str]) -> str:
    """Return a block with a session in a shell whose button copies the commands alone."""
    commands = "\n".join(_commands(html.unescape(block["text"])))
    return f'<div class="highlight" data-copy="{html.escape(commands)}">{block["block"]}'


def _commands(session: str) -> Iterator[str]:
    """Return the commands of a session without prompts, each with the lines that continue it."""
    inside = False
    for line in session.splitlines():
        if line.startswith("$ ") or inside:
            yield line.removeprefix("$ ")
            inside = line.endswith("\\")


def _whole(code: re.Match[str]) -> str:
    """Return code in a text that breaks neither in a flag nor, if it is short, anywhere else."""
    if len(html.unescape(code["text"])) <= _SHORT:
        return f'<code class="whole">{code["text"]}</code>'
    flags = _FLAG.sub(r'<span class="whole">\g<0></span>', code["text"])
    return f"<code>{flags}</code>"


def _drawing(path: Path, alt: str) -> str:
    """Return a drawing as a part of the page, so that it has the colour of the page's text."""
    text = re.sub(r"<style>.*?</style>\n?", "", path.read_text(encoding="utf-8"), flags=re.DOTALL).strip()
    text = re.sub(r'(?<=id=")|(?<=url\(#)', f"{path.stem}-", text)
    text = re.sub(r"<title>.*?</title>\n?", f"<title>{alt}</title>\n", text, count=1, flags=re.DOTALL)
    return re.sub(r'^(<svg [^>]*?) color="[^"]*"', r'\1 class="drawing" data-search-exclude=""', text)


def faults(text: str) -> list[str]:
    """Return Markdown that a page shows as text, each with the text around it."""
    found = []
    for block in _PRINTED.finditer(text):
        plain = html.unescape(re.sub(r"<[^>]+>", "", block[0]))
        found += [plain[max(raw.start() - 30, 0) : raw.end() + 30] for raw in _RAW.finditer(plain)]
    return list(dict.fromkeys(found))
