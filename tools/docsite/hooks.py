"""Hooks of MkDocs: pages from outside of ``docs/``, and links that hold in the repository and on the site."""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docsite import rendered
from docsite.markdown import indented, links, relinked

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "readme.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Paths in the repository of pages outside of ``docs/``, and their names on the site."""
_FILE_NAME = re.compile(r"\[(?P<name>[\w./-]+\.md)\]\((?P<target>[^()\s]+)")
"""A link that has the name of a file as its text, which on the site is the title of the page."""
_ASSETS = {"assets/iframe-worker.js": "vendor/iframe-worker.js", "assets/site.css": "site.css"}
_SHOWN = {
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".py": "python",
    ".md": "markdown",
    ".cc": "cpp",
    ".h": "cpp",
}
"""Suffixes of the files of a folder that its page shows, and their language."""
_META: dict[str, dict[str, Any]] = {
    "index.md": {"hide": ["navigation"]},
    "start.md": {"hide": ["navigation"]},
    "faq.md": {"hide": ["navigation"]},
    "comparison.md": {"hide": ["navigation"]},
    "find-memory.md": {"search": {"boost": 4}},
    "config.md": {"search": {"boost": 0.5}},
    "json.md": {"search": {"boost": 0.5}},
}
"""Front matter of pages: GitHub would show it as a table. Navigation that names only the page itself is hidden."""
_log = logging.getLogger("mkdocs.hooks.docsite")


def on_files(files: Files, /, *, config: MkDocsConfig) -> Files:
    """Add the pages outside of ``docs/``, and a page of each file and folder that a page links to."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text(encoding="utf-8")))
    for uri, asset in _ASSETS.items():
        files.append(File.generated(config, uri, abs_src_path=str(Path(__file__).parent / "assets" / asset)))
    linked = {
        path for file in files.documentation_pages() for path in _targets(file.content_string, origin(file.src_uri))
    }
    for path in sorted(linked):
        if site_uri(path) == source_uri(path):
            files.append(File.generated(config, source_uri(path), content=_source(ROOT / path, path)))
    return files


def on_page_markdown(text: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links within the site, and with lists that Python-Markdown reads."""
    own = page.file.src_uri
    page.meta.update(_META.get(own, {}))
    titled = _FILE_NAME.sub(lambda link: f"[{_title(link['target'], own) or link['name']}]({link['target']}", text)
    return indented(relinked(titled, {link.target: _on_site(link.target, own) for link in links(titled)}))


def on_page_content(text: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page as GitHub renders it. Markdown that is left in it is a warning, which ends a strict build."""
    if page.file.src_uri.startswith("source/"):
        return text
    done = rendered.finished(text, ROOT / "docs")
    for fault in rendered.faults(done):
        _log.warning("%s: the page shows Markdown as text: %r", page.file.src_uri, fault)
    return done


def _title(target: str, own: str) -> str | None:
    """Return the heading of the page that a link names; None if it is not a page."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin(own)), target.partition("#")[0]))
    place = ROOT / path
    heading = re.search(r"^# (.+)$", place.read_text(encoding="utf-8"), re.MULTILINE) if place.is_file() else None
    return None if heading is None or site_uri(path) == source_uri(path) else heading[1]


def origin(uri: str) -> str:
    """Return the path in the repository of a page of the site."""
    return next((name for name, own in PAGES.items() if own == uri), f"docs/{uri}")


def site_uri(path: str) -> str:
    """Return the page of the site that shows a path of the repository."""
    if path in PAGES:
        return PAGES[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else source_uri(path)


def source_uri(path: str) -> str:
    """Return the page for a file or folder that is not a page of its own."""
    return f"source/{path}.md"


def _on_site(target: str, own: str) -> str:
    path, hash_, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:") or own.startswith("source/"):
        return target
    uri = site_uri(posixpath.normpath(posixpath.join(posixpath.dirname(origin(own)), path)))
    return posixpath.relpath(uri, posixpath.dirname(own) or ".") + hash_ + anchor


def _targets(text: str, own: str) -> set[str]:
    """Return the paths in the repository that a page links to."""
    paths = {link.target.partition("#")[0] for link in links(text) if "://" not in link.target}
    found = {posixpath.normpath(posixpath.join(posixpath.dirname(own), path)) for path in paths if path}
    return {path for path in found if (ROOT / path).exists()}


def _source(place: Path, path: str) -> str:
    """Return a page with the text of a file, or of the files of a folder."""
    listed = sorted(file for file in place.iterdir() if file.suffix in _SHOWN) if place.is_dir() else [place]
    parts = [f"# {path}\n\nThis page shows a part of the repository as it is.\n"]
    for file in listed:
        title = f"## {file.name}\n\n" if place.is_dir() else ""
        text = file.read_text(encoding="utf-8")
        parts.append(f"{title}``````{_SHOWN.get(file.suffix, 'text')}\n{text.rstrip()}\n``````\n")
    return "\n".join(parts)
