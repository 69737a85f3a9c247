"""The sizes of modules in headless Chromium, and what the graph knows of modules."""

from __future__ import annotations

from pathlib import Path

import pytest

import etdev
from inspection.report.builds import built_file
from page.browser import DESKTOP, PHONE, Browser, Screen
from support.files import chain

EVIL = "<img src=x onerror='evil = 1'>"
ROWS = (
    "return [...document.querySelectorAll('#modules tbody tr')]"
    ".map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
)
MODULES = {0: "encoder.0", 1: "encoder.1", 2: "encoder.1", 3: "head"}


@pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.sampled(1)
@pytest.mark.integration
def test_modules_are_sorted_and_drawn(browser: Browser, screen: Screen, tmp_path: Path) -> None:
    page = etdev.report(built_file(tmp_path, chain(4), modules=MODULES))
    browser.open(page, screen)
    assert browser.run(ROWS) == [
        ["the whole model", "64", "100 %", "16", "4"],
        ["encoder", "48", "75 %", "16", "3"],
        ["encoder.1", "32", "50 %", "0", "2"],
        ["encoder.0", "16", "25 %", "16", "1"],
        ["head", "16", "25 %", "0", "1"],
        ["no known module", "0", "", "16", "0"],
    ]
    note = browser.run("return document.querySelector('#modules .faint').innerText")
    assert note.endswith('The whole model and "no known module" together are the method.')
    assert browser.run("return document.querySelector('#modules canvas').width") > 200
    assert browser.run("return document.querySelector('#modules .chart').getAttribute('aria-label')") == (
        "Modules by bytes written: encoder.1 32 B, encoder.0 16 B, head 16 B. The table below contains the same facts."
    )
    browser.run(
        "const field = document.querySelector('#modules select');"
        "field.selectedIndex = 1; field.dispatchEvent(new Event('change'));"
    )
    assert browser.run(ROWS)[1] == ["encoder", "48", "16", "100 %", "3"]
    assert browser.run("return document.documentElement.scrollWidth") <= screen.width
    assert browser.problems() == []
    assert set(browser.requests()) == {page.resolve().as_uri()}


@pytest.mark.integration
def test_modules_with_more_than_half_of_the_bytes_are_divided(browser: Browser, tmp_path: Path) -> None:
    """Otherwise, all areas have one color if the model has one module at the top."""
    paths = {0: "net.body.0", 1: "net.body.1", 2: "net.body.1", 3: "net.body", 4: "net.head"}
    browser.open(etdev.report(built_file(tmp_path, chain(5), modules=paths)))
    areas = browser.run(
        "const { data } = echarts.getInstanceByDom(document.querySelector('#modules .chart')).getOption().series[0];"
        "return data.filter(({ value }) => value).map(({ name, value, itemStyle }) => [name, value, itemStyle.color]);"
    )
    assert [area[:2] for area in areas] == [
        ["net.body.0", 16],
        ["net.body.1", 32],
        ["net.body: itself", 16],
        ["net.head", 16],
    ]
    assert len({color for *_, color in areas}) == 4


@pytest.mark.integration
def test_a_bar_is_a_share_of_the_whole(browser: Browser, tmp_path: Path) -> None:
    browser.open(etdev.report(built_file(tmp_path, chain(4), modules=MODULES)))
    browser.run(
        "const field = document.querySelector('#modules select');"
        "field.selectedIndex = 1; field.dispatchEvent(new Event('change'));"
    )
    heads = browser.run("return [...document.querySelectorAll('#modules th')].map((one) => one.innerText)")
    assert heads == ["module", "bytes written", "bytes at the peak", "share of bytes at the peak", "instructions"]
    shares = browser.run(
        "return [...document.querySelectorAll('#modules .share')].map((one) => [one.innerText,"
        " (one.querySelector('.bar')?.getBoundingClientRect().width ?? 0) / one.getBoundingClientRect().width]);"
    )
    assert shares[0] == ["100 %", 1]
    assert shares[-1] == ["0 %", 0]


@pytest.mark.integration
def test_a_module_leads_to_its_first_instruction(browser: Browser, tmp_path: Path) -> None:
    browser.open(etdev.report(built_file(tmp_path, chain(4), modules=MODULES)))
    browser.run(
        "[...document.querySelectorAll('#modules button')].find((one) => one.textContent === 'encoder.1').click()"
    )
    assert browser.text(".graph-details").splitlines()[:5] == [
        "aten::sin.out",
        "instruction",
        "1, kernel",
        "module",
        "encoder.1",
    ]


@pytest.mark.nightly
def test_a_large_method_is_collapsed_by_module(browser: Browser, tmp_path: Path) -> None:
    paths = {position: f"layers.{position // 100}.part{position // 25 % 4}" for position in range(400)}
    browser.open(etdev.report(built_file(tmp_path, chain(400), modules=paths)))
    focus = "document.querySelector('.graph-frame').focus()"
    browser.run(focus)
    seen = []
    for _ in range(5):
        browser.key("\ue015")  # Down.
        seen.append(browser.text(".graph-details h3"))
    assert seen == ["layers.0", "layers.1", "layers.2", "layers.3", "input images"]
    browser.key("\ue013", "\ue007")  # Up, and Enter: expand the last layer.
    assert browser.text(".graph-details h3") == "layers.3.part0"
    assert "instructions\n25: 300 to 324" in browser.text(".graph-details")
    assert browser.problems() == []


@pytest.mark.integration
def test_pages_without_modules_say_so(browser: Browser, tmp_path: Path) -> None:
    browser.open(etdev.report(built_file(tmp_path, chain(2))))
    assert browser.text("#modules").splitlines()[-1] == (
        "Modules of the model are not known: the file and the build's notes have no names of modules."
    )


@pytest.mark.integration
def test_names_of_modules_are_texts(browser: Browser, tmp_path: Path) -> None:
    browser.open(etdev.report(built_file(tmp_path, chain(2), modules={0: EVIL, 1: f"{EVIL}.b"})))
    assert [row[0] for row in browser.run(ROWS)[:3]] == ["the whole model", EVIL, f"{EVIL}.b"]
    assert browser.run("return [typeof evil, document.querySelectorAll('main img').length]") == ["undefined", 0]
    assert browser.problems() == []


@pytest.mark.integration
@pytest.mark.nightly
def test_thousands_of_modules_answer_at_once(browser: Browser, tmp_path: Path) -> None:
    """Each change takes a tenth of this on a quiet machine. Small modules share an area."""
    paths = {at: f"layers.{at // 30}.block{at // 10 % 3}.op{at % 10}" for at in range(3_000)}
    browser.open(etdev.report(built_file(tmp_path, chain(3_000), modules=paths)))
    took = browser.run(
        "const start = performance.now(); const field = document.querySelector('#modules select');"
        "field.selectedIndex = 1; field.dispatchEvent(new Event('change')); return performance.now() - start;"
    )
    assert took < 1_000
    nodes = browser.run(
        "const field = document.querySelector('#modules select'); field.selectedIndex = 0;"
        "field.dispatchEvent(new Event('change'));"
        "const { data } = echarts.getInstanceByDom(document.querySelector('#modules .chart')).getOption().series[0];"
        "const count = (node) => 1 + (node.children ?? []).reduce((sum, child) => sum + count(child), 0);"
        "return [data.reduce((sum, node) => sum + count(node), 0), data[0].children[0].children[0].name];"
    )
    assert nodes[0] < 900
    assert nodes[1] == "10 smaller"
    assert browser.problems() == []
