"""The documentation site: it builds without a warning, and its pages ask no other server for anything."""

from __future__ import annotations

import html
import os
import posixpath
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docsite.markdown import anchors, indented, links, relinked
from page.browser import Browser

pytest.importorskip("mkdocs", reason="needs the dependency group `docs`")

from docsite import hooks, rendered

_LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""Attributes that a browser loads with the page."""
_PERSON = re.compile(r"^This page is for ")


def pages(repository: Path) -> list[Path]:
    return [
        *sorted((repository / "docs").glob("*.md")),
        *(repository / name for name in hooks.PAGES),
    ]


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a link or an anchor that is not there ends the build."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": str(repository / "tools"), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs).get(_LOADED.get(tag, ""))
        if found:
            self.loaded.append(found)


@pytest.mark.integration
def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    built = sorted(site.rglob("*.html"))
    assert len(built) >= 25
    for path in built:
        loaded = _Page(path.read_text(encoding="utf-8")).loaded
        assert loaded
        assert not [place for place in loaded if "//" in place], path.name
        if path.name != "404.html":  # Its addresses begin at the root of a server.
            missing = [place for place in loaded if not (path.parent / place.partition("?")[0]).exists()]
            assert not missing, path.name
    assert not [path for path in site.rglob("*.css") if re.search(r"url\(['\"]?https?:", path.read_text("utf-8"))]


def test_search_works_in_a_folder(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = ")
    assert (site / "assets" / "iframe-worker.js").is_file()
    assert 'src="assets/iframe-worker.js"' in (site / "index.html").read_text(encoding="utf-8")


def test_a_link_to_a_folder_leads_to_its_files(site: Path) -> None:
    assert 'href="source/examples/gpu.html"' in (site / "devices.html").read_text(encoding="utf-8")
    assert "partitioners" in (site / "source" / "examples" / "gpu.html").read_text(encoding="utf-8")


def test_a_link_with_the_name_of_a_file_has_the_title_of_the_page(site: Path) -> None:
    assert '<a href="planning.html#planners">Planners and memory banks</a>' in (site / "concepts.html").read_text(
        "utf-8"
    )
    assert "benchmarks/README.md" not in (site / "comparison.html").read_text("utf-8").replace("source/", "")


def test_a_nested_list_is_one_on_the_site(site: Path) -> None:
    assert re.search(
        r"<li><strong>Copies</strong>.*?<ul>\s*<li>After a write", (site / "devices.html").read_text(), re.DOTALL
    )


def test_links_hold_in_the_repository(repository: Path) -> None:
    """In the files as they are, with the anchors that GitHub makes."""
    wrong, number = [], 0
    for page in pages(repository):
        for link in links(page.read_text(encoding="utf-8")):
            path, _, anchor = link.target.partition("#")
            if "://" in path:
                continue
            number += 1
            place = (page.parent / posixpath.normpath(path)).resolve() if path else page
            known = place.exists() and (
                not anchor or (place.suffix == ".md" and anchor in anchors(place.read_text(encoding="utf-8")))
            )
            if not known:
                wrong.append(f"{page.name}:{link.line}: {link.target}")
    assert number > 150
    assert not wrong


@pytest.mark.parametrize(
    "page", sorted(path.name for path in (hooks.ROOT / "docs").glob("*.md") if path.name != "index.md")
)
def test_a_page_begins_with_its_readers(page: str) -> None:
    """Two sentences: who needs the page, and what they will be able to do. The home page begins with the benefit."""
    text = (hooks.ROOT / "docs" / page).read_text(encoding="utf-8")
    first = re.sub(r"<!--.*?-->\n*", "", text, flags=re.DOTALL).split("\n\n")[1].replace("\n", " ")
    assert _PERSON.match(first), first
    assert len(re.findall(r"[.:?](?: |$)", re.sub(r"`[^`]*`|\([^)]*\)", "", first))) == 2, first


def test_links_and_anchors_are_read() -> None:
    text = "# A `b` & c\n\n## A `b` & c\n\n[x](a.md#b), ![a\nb](c.svg) `[y](z.md)`\n\n```\n# no\n[n](n.md)\n```\n"
    assert anchors(text) == ["a-b--c", "a-b--c-1"]
    assert [(link.target, link.line) for link in links(text)] == [("a.md#b", 5), ("c.svg", 6)]
    assert relinked(text, {"a.md#b": "X", "z.md": "Y", "n.md": "Z"}) == text.replace("a.md#b", "X")


def test_lists_are_indented() -> None:
    text = "* a\n  b\n  * c\n    d\n\n      e\n\n1. f\n\n   ```\n   g\n   ```\n\nh\n\n    i\n"
    assert (
        indented(text)
        == "* a\n    b\n    * c\n        d\n\n          e\n\n1. f\n\n    ```\n    g\n    ```\n\nh\n\n    i\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. a\n\n   ```\n   b\n       c\n   ```\n\n2. d\n", "1. a\n\n    ```\n    b\n        c\n    ```\n\n2. d\n"),
        ("1. a\n\n       b\n", "1. a\n\n        b\n"),
        ("10. a\n\n    ```\n    b\n    ```\n", "10. a\n\n    ```\n    b\n    ```\n"),
        ("1. a\n   * b\n     c\n\n   d\n\ne\n\n    f\n", "1. a\n    * b\n        c\n\n    d\n\ne\n\n    f\n"),
        ("* a\nb\n* c\n", "* a\nb\n* c\n"),
        ("a\n\n    * b\n", "a\n\n    * b\n"),
    ],
)
def test_the_content_of_an_item_begins_four_columns_in(text: str, expected: str) -> None:
    assert indented(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<pre><span></span><code>```toml\na = 1\n```\n</code></pre>",
        "<p>```toml <code>a</code></p>",
        r"<li><code>A\|B</code></li>",
    ],
)
def test_markdown_that_a_page_shows_as_text_is_found(text: str) -> None:
    assert rendered.faults(text)


def test_a_bar_in_a_table_is_shown_without_its_backslash() -> None:
    cell = r"<td><code>A\|B</code> or <code>C</code></td>"
    assert rendered.finished(cell, hooks.ROOT / "docs") == (
        '<td><code class="whole">A|B</code> or <code class="whole">C</code></td>'
    )
    assert not rendered.faults(rendered.finished(cell, hooks.ROOT / "docs"))


def test_a_session_is_copied_without_prompts_and_output() -> None:
    block = '<div class="highlight"><pre><span></span><code>$ a \\\n    --b\nc\n$ d &quot;e&quot;\n</code></pre></div>'
    copied = re.search(r'data-copy="([^"]*)"', rendered.finished(block, hooks.ROOT / "docs"))
    assert copied is not None
    assert html.unescape(copied[1]) == 'a \\\n    --b\nd "e"'


def test_an_alert_is_a_box_on_the_site(site: Path) -> None:
    for page in ("android.html", "ios.html"):
        assert '<p class="admonition-title">Warning</p>' in (site / page).read_text(encoding="utf-8")


def test_a_drawing_has_the_colour_of_the_page(site: Path) -> None:
    text = (site / "concepts.html").read_text(encoding="utf-8")
    assert text.count('class="drawing"') == 6
    assert '<svg xmlns="http://www.w3.org/2000/svg" viewBox' in text
    assert not re.search(r'src="images/[^"]*\.svg"', text)
    marks = re.findall(r'<marker id="([^"]+)"', text)
    assert len(set(marks)) == len(marks)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<code>--set</code>", '<code class="whole">--set</code>'),
        (
            "<code>etdev build portable --set a.b=1</code>",
            '<code>etdev build portable <span class="whole">--set</span> a.b=1</code>',
        ),
        ("<pre><code>--set</code></pre>", "<pre><code>--set</code></pre>"),
    ],
)
def test_flags_are_not_broken(text: str, expected: str) -> None:
    assert rendered.finished(text, hooks.ROOT / "docs") == expected


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no Chromium with its driver: on Debian, install chromium and chromium-driver")
    with Browser(chromium, driver) as opened:
        yield opened


@pytest.mark.integration
@pytest.mark.nightly
def test_pages_fit_a_phone_and_ask_nobody(browser: Browser, site: Path) -> None:
    browser.driver.set_window_size(360, 740)
    metrics = {"width": 360, "height": 740, "mobile": True, "deviceScaleFactor": 1}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wide = []
    for page in sorted(path for path in site.rglob("*.html") if path.name != "404.html"):
        browser.driver.get(page.as_uri())
        if browser.run("return document.documentElement.scrollWidth") > 360:
            wide.append(page.name)
    assert not wide
    assert browser.problems() == []
    assert not [place for place in browser.requests() if not place.startswith((site.as_uri(), "data:", "blob:"))]


@pytest.mark.integration
@pytest.mark.nightly
def test_search_finds_a_word_without_a_server(browser: Browser, site: Path) -> None:
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.driver.set_window_size(1280, 900)
    browser.driver.get((site / "index.html").as_uri())
    browser.run("document.querySelector('input.md-search__input').focus()")
    browser.key("lower bound")
    deadline = time.monotonic() + 30
    while not browser.run("return document.querySelectorAll('.md-search-result__item').length"):
        assert time.monotonic() < deadline, "the search found nothing"
        time.sleep(0.05)
    assert "Planner and lower bound" in browser.run("return document.querySelector('.md-search-result').textContent")
