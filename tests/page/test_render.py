"""The HTML file by itself: nothing outside of it, nothing of it that a program can turn into markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.page import Document, render
from etdev.page.model import ProgramPage, Section
from etdev.page.render import SCRIPTS, STYLES, embedded
from etdev.page.vendor import ECHARTS

ASSETS = files("etdev.page").joinpath("assets")
EVIL = "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'><!--\u2028&amp;{{scripts}}"


def document(name: str = "m.pte") -> Document:
    page = ProgramPage(
        name, name, 1, "", None, None, ((name, name),), {name: 1}, None, (Section(name, 1, ((name, 1, name),)),)
    )
    return Document(name, "etdev", (page,), (name,), {name: name}, (name,))


class _Reader(HTMLParser):
    """Elements with their attributes, and what is in scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.contents: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.cdata_elem is not None:
            self.contents.append((self.elements[-1][0], data))


def read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader


def policy(page: str) -> dict[str, list[str]]:
    (found,) = [at["content"] for tag, at in read(page).elements if at.get("http-equiv") == "Content-Security-Policy"]
    assert found is not None
    return {name: sources for name, *sources in (directive.split() for directive in found.split(";"))}


def digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def test_nothing_is_fetched() -> None:
    elements = read(render(document())).elements
    assert not [tag for tag, _ in elements if tag in {"link", "img", "iframe", "object", "embed", "base", "form"}]
    assert not [at for _, at in elements if at.keys() & {"src", "srcset", "action", "data", "style"}]
    assert [at["href"] for _, at in elements if "href" in at] == ["#content"]


def test_the_policy_lets_run_what_is_in_the_page_and_nothing_else() -> None:
    page = render(document())
    found = policy(page)
    contents = read(page).contents
    assert found["default-src"] == ["'none'"]
    scripts = [ECHARTS.read(), *(ASSETS.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)]
    assert found["script-src"] == [digest(script) for script in scripts]
    assert found["style-src"] == [digest(ASSETS.joinpath(name).read_text(encoding="utf-8")) for name in STYLES]
    for source in (*found["script-src"], *found["style-src"]):
        assert source in {digest(content) for _, content in contents}
    assert "unsafe" not in str(found)


@pytest.mark.parametrize("text", [EVIL, "{{data}}", "\ud800", '"\\', "</title><script>"])
def test_texts_of_a_program_are_no_markup(text: str) -> None:
    tame, evil = read(render(document())), read(render(document(text)))
    assert [tag for tag, _ in evil.elements] == [tag for tag, _ in tame.elements]
    (stored,) = [content for _, content in evil.contents if content.startswith('{"title":')]
    assert json.loads(stored)["texts"] == [text]


@given(text=st.text())
def test_embedded_json_says_the_same_and_ends_no_element(text: str) -> None:
    found = embedded(document(text))
    assert json.loads(found)["texts"] == [text]
    assert not re.search(r"[<>&]|[^\x00-\x7f]", found)


def test_equal_documents_give_equal_pages() -> None:
    assert render(document()) == render(document())


def test_scripts_make_no_markup_of_texts() -> None:
    for name in SCRIPTS:
        script = ASSETS.joinpath(name).read_text(encoding="utf-8")
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|https?://", script
        )
        assert (name, found) == (name, [])


def test_the_vendored_library_is_the_published_one() -> None:
    """The digest is that of the file in the package ``echarts`` 6.1.0 of the npm registry."""
    assert hashlib.sha256(ECHARTS.read().encode()).hexdigest() == ECHARTS.sha256
    assert f'version="{ECHARTS.version}"' in ECHARTS.read()
    for name in ECHARTS.licences:
        assert ASSETS.joinpath("vendor", name).read_text(encoding="utf-8")


def test_every_asset_is_used() -> None:
    vendored = {ECHARTS.file.rpartition("/")[2], *ECHARTS.licences}
    assert {item.name for item in ASSETS.joinpath("vendor").iterdir()} == vendored
    assert {item.name for item in ASSETS.iterdir() if item.is_file()} == {*SCRIPTS, *STYLES, "page.html"}
