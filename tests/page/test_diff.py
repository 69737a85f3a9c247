"""The page of ``etdev diff`` in headless Chromium."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etdev.inspection.report import diff_page
from etdev.linker import link
from etdev.program import Program, write
from etdev.program import model as m
from page.browser import DESKTOP, PHONE, Browser, Screen, looks
from support.files import chain, copies, counters, delegated

EVIL = "<img src=x onerror='evil = 1'>"
MINUS, NONE = "\u2212", "\u2013"
CHOOSE = (
    "const found = [...document.querySelectorAll('label')]"
    ".find((one) => one.firstChild.textContent === arguments[0]).querySelector('select');"
    "found.selectedIndex = arguments[1]; found.dispatchEvent(new Event('change'));"
)


def opened(
    browser: Browser, a: Program, b: Program, folder: Path, screen: Screen = DESKTOP, *, dark: bool = False
) -> Path:
    write(a, folder / "a.pte")
    write(b, folder / "b.pte")
    page = folder / "diff.html"
    page.write_text(diff_page(folder / "a.pte", folder / "b.pte"), encoding="utf-8")
    browser.open(page, screen, dark=dark)
    return page


def rows(browser: Browser, title: str) -> list[list[str]]:
    """The rows of the table below a heading."""
    found: list[list[str]] = browser.run(
        "let found = [...document.querySelectorAll('h2, h3')].find((one) => one.textContent === arguments[0]);"
        "while (!found.querySelector('tbody')) found = found.nextElementSibling;"
        "return [...found.querySelector('tbody').rows]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText.trim()));",
        title,
    )
    return found


@looks(phone=PHONE, desktop=DESKTOP)
@pytest.mark.sampled(1)
@pytest.mark.integration
def test_both_maps_are_drawn_without_a_request(browser: Browser, screen: Screen, dark: bool, tmp_path: Path) -> None:
    page = opened(browser, copies(), link(copies()).program, tmp_path, screen, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth") <= screen.width
    drawn = browser.run(
        "return [...document.querySelectorAll('.side .chart canvas')].map((canvas) => {"
        "const { width, height } = canvas; const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);"
        "return data.some(Boolean); });"
    )
    assert drawn == [True, True]
    tops = browser.run("return [...document.querySelectorAll('.side')].map((one) => one.getBoundingClientRect().top)")
    assert (tops[0] == tops[1]) is (screen is DESKTOP)
    assert browser.problems() == []
    assert set(browser.requests()) == {page.resolve().as_uri()}


@pytest.mark.integration
def test_figures_and_changes_are_listed(browser: Browser, tmp_path: Path) -> None:
    opened(browser, chain(3), chain(2), tmp_path)
    assert rows(browser, "Figures")[-1] == [
        "planned memory, cpu",
        "64 bytes",
        "48 bytes",
        f"{MINUS}16 bytes ({MINUS}25 %)",
    ]
    assert ["instructions", "3", "2", f"{MINUS}1 ({MINUS}33 %)"] in rows(browser, "Methods")
    assert rows(browser, "Instructions") == [["only in A", "2", NONE, "aten::sin.out"]]
    assert "2 the same, 1 only in A, 0 only in B" in browser.text("main")
    browser.run(CHOOSE, "Show", 1)
    assert [row[0] for row in rows(browser, "Instructions")] == ["the same", "the same", "only in A"]
    assert "Weights and other data are the same." in browser.text("#weights")


@pytest.mark.nightly
def test_maps_have_the_same_scale(browser: Browser, tmp_path: Path) -> None:
    extents = (
        "return [...document.querySelectorAll('.chart')].map((one) => echarts.getInstanceByDom(one))"
        ".filter((one) => one?.getOption().dataZoom?.length).map((one) => one.getOption().yAxis[0].max)"
    )
    opened(browser, chain(3), chain(2), tmp_path)
    assert browser.run(extents) == [64, 64]
    browser.run(CHOOSE, "Page", 2)
    assert browser.run(extents) == [48]  # Alone, a program has its own scale.
    browser.run(CHOOSE, "Page", 0)
    assert browser.run(extents) == [64, 64]


@pytest.mark.integration
def test_maps_have_the_same_legend_and_height(browser: Browser, tmp_path: Path) -> None:
    opened(browser, delegated(), chain(2), tmp_path)
    legends, tops = browser.run(
        "const all = (selector) => [...document.querySelectorAll(`.side ${selector}`)];"
        "return [all('.legend').slice(0, 2).map((one) => one.innerText),"
        " all('.chart').map((one) => one.getBoundingClientRect().top)];"
    )
    assert legends[0] == legends[1]
    assert {"computed by a kernel", "computed by a delegate"} <= set(legends[0].splitlines())
    assert tops[0] == tops[1]
    assert "Memory inside delegates is not counted." in browser.text(".tiles")


@pytest.mark.integration
def test_a_moved_tensor_is_shown_in_both_maps(browser: Browser, tmp_path: Path) -> None:
    (plan,) = chain(2).execution_plan
    moved = tuple(
        replace(value, allocation_info=m.AllocationDetails(1, 32 - value.allocation_info.memory_offset))
        if isinstance(value, m.Tensor) and value.allocation_info is not None
        else value
        for value in plan.values
    )
    opened(browser, chain(2), replace(chain(2), execution_plan=(replace(plan, values=moved),)), tmp_path)
    assert [row[:4] for row in rows(browser, "Moved tensors")] == [
        ["input 0", "16", "buffer 1 at 0", "buffer 1 at 32"],
        ["output 0", "16", "buffer 1 at 32", "buffer 1 at 0"],
    ]
    browser.run(
        "[...document.querySelectorAll('#methods button')].findLast((one) => one.textContent === 'output 0').click()"
    )
    tips = browser.run("return [...document.querySelectorAll('.tip')].map((one) => one.innerText)")
    assert ["output 0" in tip for tip in tips] == [True, True]


@pytest.mark.integration
def test_each_program_has_its_page(browser: Browser, tmp_path: Path) -> None:
    opened(browser, counters(), delegated(), tmp_path)
    assert (
        browser.text("main ul")
        == "Method first is only in A.\nMethod second is only in A.\nMethod forward is only in B."
    )
    options = "return [...document.querySelector('header select').options].map((one) => one.textContent)"
    assert browser.run(options) == ["Comparison", "A: a.pte", "B: b.pte"]
    browser.run(CHOOSE, "Page", 2)
    assert "XnnpackBackend" in browser.run("return document.querySelector('main').textContent")
    assert browser.run("return document.querySelector('#graph canvas') !== null")
    assert browser.problems() == []


@pytest.mark.integration
def test_names_of_programs_are_texts(browser: Browser, tmp_path: Path) -> None:
    (plan,) = chain(2).execution_plan
    evil = replace(
        chain(2), execution_plan=(replace(plan, name=EVIL), replace(plan, operators=(m.Operator(EVIL),) * 3))
    )
    other = replace(
        chain(3), execution_plan=(replace(chain(3).execution_plan[0], name="other"), *chain(3).execution_plan)
    )
    page = opened(browser, evil, other, tmp_path)
    assert browser.text("main").count(EVIL) >= 2
    assert browser.run("return [typeof evil, document.querySelectorAll('main img').length]") == ["undefined", 0]
    assert browser.problems() == []
    assert set(browser.requests()) == {page.resolve().as_uri()}


@pytest.mark.integration
@pytest.mark.nightly
def test_thousands_of_instructions_are_listed_at_once(browser: Browser, tmp_path: Path) -> None:
    opened(browser, chain(3_000), chain(2_700), tmp_path)
    assert "2,700 the same, 300 only in A, 0 only in B" in browser.text("main")
    took = browser.run(f"const start = performance.now(); {CHOOSE} return performance.now() - start;", "Show", 1)
    assert took < 1_000
    assert browser.problems() == []


_GRAPHS = "document.querySelectorAll('.sides .graph-frame')"


def details(browser: Browser) -> list[str]:
    found: list[str] = browser.run(
        "return [...document.querySelectorAll('.sides .graph-details')].map((one) => one.innerText.split('\\n')[0])"
    )
    return found


@looks(phone=PHONE, desktop=DESKTOP)
@pytest.mark.sampled(1)
@pytest.mark.integration
def test_graphs_are_drawn_next_to_each_other(browser: Browser, screen: Screen, dark: bool, tmp_path: Path) -> None:
    opened(browser, chain(4), chain(2), tmp_path, screen, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth") <= screen.width
    places = browser.run(
        f"return [...{_GRAPHS}].map((one) => one.getBoundingClientRect()).map((one) => [one.top, one.width])"
    )
    assert len(places) == 2
    assert (places[0][0] == places[1][0]) is (screen is DESKTOP)
    assert min(width for _, width in places) > 250
    assert browser.problems() == []
    legends = browser.run("return [...document.querySelectorAll('.sides .legend')].map((one) => one.innerText)")
    assert [text.split("\n") for text in legends[-2:]] == [["in both", "only in A"], ["in both", "only in B"]]


@pytest.mark.nightly
def test_a_selected_instruction_is_shown_in_both_graphs(browser: Browser, tmp_path: Path) -> None:
    opened(browser, chain(4), chain(2), tmp_path)
    press = (
        f"{_GRAPHS}[arguments[0]].dispatchEvent(new KeyboardEvent('keydown', {{ key: arguments[1], bubbles: true }}))"
    )
    for side in (0, 1):
        browser.run(press, side, "Home")
        browser.run(press, side, "ArrowDown")
        one, other = details(browser)
        assert one == other
        assert "aten::" in one
    browser.run(press, 0, "End")
    one, other = details(browser)
    assert "aten::" in one
    assert "aten::" not in other
