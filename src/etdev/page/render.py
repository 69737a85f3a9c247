"""Rendering of a document as one HTML file that needs neither a network nor other files."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import asdict
from importlib.resources import files

from etdev.page.model import Document
from etdev.page.vendor import ECHARTS

STYLES = ("page.css", "graph.css", "diff.css")
SCRIPTS = (
    "format.js",
    "table.js",
    "lifetimes.js",
    "map.js",
    "zoom.js",
    "memory.js",
    "tensors.js",
    "chart.js",
    "sizes.js",
    "timeline.js",
    "graphdata.js",
    "graphlayout.js",
    "graphcolours.js",
    "graphdraw.js",
    "graphdetails.js",
    "graphviewport.js",
    "graph.js",
    "modules.js",
    "program.js",
    "diff.js",
    "page.js",
)
"""Scripts of the page, in order. A script may use definitions of earlier scripts."""

_UNSAFE = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
"""Maps a character that could end a script element to its escape. ``json.dumps`` escapes non-ASCII characters."""


def render(document: Document) -> str:
    """Return the HTML page of a document. Equal documents have equal pages.

    The texts of the document are in JSON, which browsers do not run. The scripts display them as text. The page's
    content security policy allows only the page's own scripts and styles, by their digests. It does not allow any
    request.
    """
    styles = [_asset(name) for name in STYLES]
    scripts = [ECHARTS.read(), *map(_asset, SCRIPTS)]
    parts = {
        "title": html.escape(document.title.encode("utf-8", "replace").decode()),
        "policy": html.escape(_policy(styles, scripts)),
        "styles": "".join(f"<style>{style}</style>\n" for style in styles),
        "data": embedded(document),
        "scripts": "".join(f"<script>{script}</script>\n" for script in scripts),
    }
    page = _asset("page.html")
    before, *pieces = page.split("{{")
    filled = [before]
    for piece in pieces:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def embedded(document: Document) -> str:
    """Return the document as JSON that is safe in a script element, even if its texts contain HTML."""
    return json.dumps(asdict(document), separators=(",", ":"), allow_nan=False).translate(_UNSAFE)


def _policy(styles: list[str], scripts: list[str]) -> str:
    """Return the page's content security policy. The policy allows only these styles and scripts."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_source, scripts))}",
            f"style-src {' '.join(map(_source, styles))}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _source(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _asset(name: str) -> str:
    return files("etdev.page").joinpath("assets", name).read_text(encoding="utf-8")
