"""The graph of a program in headless Chromium: drawing, search, colours, folding, and the ways to the memory map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import etdev
from etdev.program import Blob, Program, write
from etdev.program import model as m
from inspection.report.builds import built_file
from page.browser import DESKTOP, PHONE, Browser, Screen, looks
from program.hand import tensor
from support.files import branches, chain, copies, counters, method, program, sin
from support.on_devices import two_devices

EVIL = "</script><img src=x onerror='evil = 1'><b>"
TWO_FRAMES = "new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"


def opened(browser: Browser, found: Program, folder: Path, screen: Screen = DESKTOP, *, dark: bool = False) -> Path:
    write(found, folder / "m.pte")
    page = etdev.report(folder / "m.pte")
    browser.open(page, screen, dark=dark)
    return page


def focus(browser: Browser) -> None:
    browser.run("document.querySelector('.graph-frame').focus()")


def details(browser: Browser) -> list[str]:
    return browser.text(".graph-details").splitlines()


def press(browser: Browser, label: str) -> None:
    browser.run(
        "[...document.querySelectorAll('#graph button')].find((one) => one.textContent === arguments[0]).click()", label
    )


def find(browser: Browser, wanted: str) -> str:
    """Search for a text; what is said of the matches."""
    browser.run(
        "const field = document.querySelector('#graph input');"
        "field.value = arguments[0]; field.dispatchEvent(new Event('input'));",
        wanted,
    )
    return browser.text("#graph [role=status]")


def colours(browser: Browser) -> set[str]:
    """The colours that the graph is drawn in."""
    found = browser.run(
        f"return (async () => {{ await {TWO_FRAMES};"
        "const canvas = document.querySelector('.graph-canvas canvas'); const { width, height } = canvas;"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, width, height); const seen = new Set();"
        "for (let at = 0; at < data.length; at += 4)"
        " if (data[at + 3] === 255) seen.add(`rgb(${data[at]}, ${data[at + 1]}, ${data[at + 2]})`);"
        "return [...seen]; })();"
    )
    return set(found)


def colour(browser: Browser, name: str) -> str:
    found: str = browser.run("return colour(arguments[0])", name)
    return found


@looks(phone=PHONE, desktop=DESKTOP)
@pytest.mark.parametrize("found", [branches, two_devices], ids=["branches", "devices"])
@pytest.mark.sampled(2)
@pytest.mark.integration
def test_is_drawn_without_a_request(browser: Browser, found: Any, screen: Screen, dark: bool, tmp_path: Path) -> None:
    page = opened(browser, found(), tmp_path, screen, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth") <= screen.width
    assert {colour(browser, "kernel"), colour(browser, "panel")} <= colours(browser)
    focus(browser)
    browser.key("+", "-", "0")
    assert browser.problems() == []
    assert set(browser.requests()) == {page.resolve().as_uri()}


@pytest.mark.integration
def test_the_keyboard_walks_through_the_instructions(browser: Browser, tmp_path: Path) -> None:
    from selenium.webdriver import Keys

    opened(browser, copies(), tmp_path)
    focus(browser)
    seen = []
    for key in (Keys.DOWN, Keys.DOWN, Keys.UP, Keys.END, Keys.HOME, Keys.LEFT, Keys.RIGHT):
        browser.key(key)
        seen.append(details(browser)[0])
    first, second, last = "aten::cos.out", "aten::view_copy.out", "aten::expand_copy.out"
    assert seen[:5] == [first, second, first, last, first]
    browser.key(Keys.ESCAPE)
    assert details(browser) == ["Select an instruction to see its operands, its source line and its memory."]
    browser.key("/")
    assert browser.run("return document.activeElement.matches('#graph input')")
    browser.key("copy")
    assert browser.text("#graph [role=status]") == "4 found"
    browser.key(Keys.ENTER)
    browser.key(Keys.ENTER)
    assert browser.text("#graph [role=status]") == "2 of 4"
    focus(browser)
    browser.key(Keys.ESCAPE)
    assert browser.text("#graph [role=status]") == "4 found"
    assert browser.problems() == []


@pytest.mark.integration
@pytest.mark.parametrize(
    ("extent", "view"),
    [
        ([-150, 150, 300], {"scale": 1, "x": 500, "y": 50}),
        ([-150, 150, 440], {"scale": 400 / 440, "x": 500, "y": 12}),
        ([-600, 600, 300], {"scale": 1000 / 1200, "x": 500, "y": 75}),
        ([-700, 700, 9000], {"scale": 1000 / 1400, "x": 500, "y": 12}),
        ([-900, 900, 9000], {"scale": 0.65, "x": 500, "y": 12}),
    ],
    ids=["small", "high", "wide", "long", "large"],
)
def test_a_graph_opens_whole_if_it_can_be_read(
    browser: Browser, tmp_path: Path, extent: list[int], view: dict[str, float]
) -> None:
    """A small graph was magnified until it filled the height, and its sides were cut off."""
    opened(browser, chain(2), tmp_path)
    found = browser.run(
        "const [left, right, bottom] = arguments[0]; const made = Object.create(GraphViewport.prototype);"
        "Object.assign(made, { surface: { clientWidth: 1000, clientHeight: 400 }, extent: { left, right, bottom },"
        " layout: { rows: [[{ x: 0 }]] }, paint() {}, view: {} }); made.begin(); return made.view;",
        extent,
    )
    assert found == pytest.approx(view)


@pytest.mark.integration
def test_an_instruction_says_what_it_reads_and_writes(browser: Browser, tmp_path: Path) -> None:
    from selenium.webdriver import Keys

    page = etdev.report(built_file(tmp_path, chain(2)))
    browser.open(page)
    focus(browser)
    browser.key(Keys.DOWN, Keys.DOWN)
    said = details(browser)
    assert said[0] == "aten::sin.out"
    for part in ("1, kernel", "model.py:12: x = x.sin() # 12", "cpu", "16 bytes", "Reads (1)", "value 1 float32 [4]"):
        assert part in said
    assert "buffer 1 on cpu at 16, 16 B" in said
    assert "#0 aten::sin.out memory map" in " ".join(said)
    press(browser, "#0 aten::sin.out")
    assert "0, kernel" in details(browser)
    press(browser, "input images")
    assert details(browser)[0] == "input images"


@pytest.mark.nightly
def test_a_tensor_leads_to_the_memory_map_and_an_instruction_back(browser: Browser, tmp_path: Path) -> None:
    from selenium.webdriver import Keys

    opened(browser, copies(), tmp_path)
    focus(browser)
    browser.key(Keys.END)
    press(browser, "memory map")
    assert browser.text(".tip").startswith("tensor\nvalue 7\n")
    assert browser.run("return document.activeElement.matches('.chart-frame')")
    browser.run(
        "document.querySelector('#memory details').open = true;"
        "[...document.querySelectorAll('#memory details td button')]"
        ".find((one) => one.textContent === 'aten::cat.out').click()"
    )
    assert browser.run("return document.activeElement.matches('.graph-frame')")
    assert details(browser)[0] == "aten::cat.out"


@pytest.mark.nightly
def test_a_tensor_in_another_buffer_changes_the_map(browser: Browser, tmp_path: Path) -> None:
    opened(browser, copies(), tmp_path)
    find(browser, "aten::add")
    browser.run("[...document.querySelectorAll('#graph button')].find((one) => one.title === 'Next match').click()")
    assert details(browser)[0] == "aten::add.out"
    press(browser, "memory map")  # Of the state, the first operand.
    facts = browser.text("#memory .facts")
    assert "buffer\n2 on cpu" in facts
    assert "lower bound\n" in facts
    assert browser.text(".tip").startswith("tensor\nvalue 1\n")


@pytest.mark.nightly
def test_the_pointer_selects_and_moves(browser: Browser, tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains

    opened(browser, chain(3), tmp_path)
    canvas = browser.driver.find_element("css selector", ".graph-canvas")
    browser.run("arguments[0].scrollIntoView({ block: 'center', behavior: 'instant' })", canvas)
    height = browser.run("return arguments[0].clientHeight", canvas)

    def click() -> None:
        # The chain has five nodes in a column: the input, three instructions, the output.
        to_second = -height // 2 + (height - 5 * 88) // 2 + 88 + 23
        ActionChains(browser.driver, duration=0).move_to_element_with_offset(canvas, 0, to_second).click().perform()

    click()
    assert details(browser)[:3] == ["aten::sin.out", "instruction", "0, kernel"]
    ActionChains(browser.driver, duration=0).drag_and_drop_by_offset(canvas, 0, 88).perform()
    click()
    assert details(browser)[0] == "input 0"
    assert browser.problems() == []


@pytest.mark.nightly
def test_colours_say_what_the_legend_says(browser: Browser, tmp_path: Path) -> None:
    opened(browser, two_devices(), tmp_path)
    names = browser.run("return [...document.querySelectorAll('#graph select option')].map((one) => one.textContent)")
    assert names == ["Kind", "Delegate", "Device", "Memory", "Bytes written", "Bytes in use"]
    for index, name in enumerate(names):
        browser.run(
            "const field = document.querySelector('#graph select');"
            "field.selectedIndex = arguments[0]; field.dispatchEvent(new Event('change'));",
            index,
        )
        shown = browser.run(
            "return [...document.querySelectorAll('#graph .legend .swatch')]"
            ".map((one) => getComputedStyle(one).backgroundColor)"
        )
        assert len(shown) > 1, name
        assert set(shown) & colours(browser), name
    assert browser.text("#graph .legend").splitlines()[0] == "none"


@pytest.mark.integration
def test_a_node_has_its_number_and_marks_the_peak(browser: Browser, tmp_path: Path) -> None:
    bounded = {"shape_dynamism": m.TensorShapeDynamism.DYNAMIC_BOUND}
    values = [tensor(4, at=16 * number, **bounded) for number in range(3)]
    opened(browser, program(method(values, [sin(0, 1), sin(1, 2)], outputs=(2,))), tmp_path)
    texts, peaks = browser.run(
        "const data = new GraphData(DOCUMENT.programs[0].methods[0]);"
        "const nodes = [0, 1].map((at) => ({ first: at, last: at, group: null }));"
        "return [nodes.map((node) => nodeTexts(data, node)), nodes.map((node) => data.atPeak(node))];"
    )
    assert texts == [["0 · sin.out", "float32 [4]"], ["1 · sin.out", "float32 [4]"]]
    assert peaks == [True, False]
    assert "Some sizes are dynamic: the graph has the largest." in browser.text("#graph")
    assert find(browser, "aten::sin") == "2 found"


@pytest.mark.nightly
def test_a_chain_starts_in_the_middle_of_a_phone(browser: Browser, tmp_path: Path) -> None:
    """Also if other instructions are next to its first one."""
    values = [tensor(4, at=16 * number) for number in range(8)]
    calls = [sin(0, 1), sin(0, 6), sin(0, 7), sin(0, 2), sin(2, 3), sin(3, 4), sin(4, 5)]
    opened(browser, program(method(values, calls, outputs=(5,))), tmp_path, PHONE)
    boxes = browser.run(
        f"return (async () => {{ await {TWO_FRAMES};"
        "const canvas = document.querySelector('.graph-canvas canvas'); const { width, height } = canvas;"
        "const { data } = canvas.getContext('2d').getImageData(width / 2 + 30, 0, 1, height);"
        "const seen = Array.from({ length: height }, (_, y) => data[4 * y + 3] > 0 &&"
        " `rgb(${data[4 * y]}, ${data[4 * y + 1]}, ${data[4 * y + 2]})` === colour('panel'));"
        "return seen.filter((here, y) => here && !seen[y - 1]).length; })();"
    )
    assert boxes >= 4


@pytest.mark.nightly
def test_the_graph_of_each_method_can_be_chosen(browser: Browser, tmp_path: Path) -> None:
    opened(browser, counters(buffer=2), tmp_path)
    browser.run(
        "const found = document.querySelector('#graph select');"
        "found.selectedIndex = 1; found.dispatchEvent(new Event('change'));"
    )
    assert "method second" in browser.run("return document.querySelector('.graph-frame').getAttribute('aria-label')")
    assert browser.run("return document.querySelector('#memory select').selectedIndex") == 1
    assert "Method second, 2 instructions" in browser.text("#memory")


@pytest.mark.integration
def test_names_of_a_program_are_texts(browser: Browser, tmp_path: Path) -> None:
    info = m.ExtraTensorInfo(fully_qualified_name=EVIL)
    values = [tensor(4, at=0), tensor(4, data=1, extra_tensor_info=info), tensor(4, at=16), m.String(EVIL)]
    plan = method(values, [m.KernelCall(0, (0, 1, 3, 2, 2))], outputs=(2,), operators=(m.Operator(EVIL),))
    data = m.SubsegmentOffsets(0, (0, 0))
    page = opened(browser, program(plan, segments=(m.Segment(0, Blob(bytes(16))),), constant_segment=data), tmp_path)
    focus(browser)
    browser.key("\ue010")  # End
    assert details(browser)[0] == EVIL
    assert browser.text(".graph-details").count(EVIL) == 3  # The operator, the weight and the string.
    assert find(browser, EVIL) in {"1 found", "1 of 1"}
    assert browser.run("return [typeof evil, document.querySelectorAll('main img, main b').length]") == ["undefined", 0]
    assert browser.problems() == []
    assert set(browser.requests()) == {page.resolve().as_uri()}


@pytest.mark.integration
@pytest.mark.nightly
def test_ten_thousand_instructions_are_collapsed_and_answer(browser: Browser, tmp_path: Path) -> None:
    """Each change takes a second at most on a quiet machine, where ``benchmarks/report.py`` measures it."""
    from selenium.webdriver import Keys

    opened(browser, chain(9_999), tmp_path)
    focus(browser)
    browser.key(Keys.HOME)
    assert details(browser)[0] == "instructions 0 to 99"
    browser.key(Keys.ENTER)
    assert "0, kernel" in details(browser)
    press(browser, "Collapse instructions 0 to 99")
    assert details(browser)[0] == "instructions 0 to 99"
    times = browser.run(
        "return (async () => {"
        "const section = document.getElementById('graph'); const times = {};"
        "const buttons = [...section.querySelectorAll('button')];"
        "const press = (name) => buttons.find((one) => one.textContent === name).click();"
        "const key = (name, shiftKey) => document.querySelector('.graph-frame')"
        ".dispatchEvent(new KeyboardEvent('keydown', { key: name, shiftKey }));"
        "const input = section.querySelector('input'); const colours = section.querySelector('select');"
        "const actions = { expand: () => press('Expand all'), whole: () => key('0'), zoom: () => key('+'),"
        " move: () => key('ArrowDown', true),"
        " find: () => { input.value = 'value 7'; input.dispatchEvent(new Event('input')); },"
        " colour: () => { colours.selectedIndex = 1; colours.dispatchEvent(new Event('change')); },"
        " select: () => key('End'), collapse: () => press('Collapse all') };"
        "for (const [name, action] of Object.entries(actions)) {"
        f" const start = performance.now(); action(); await {TWO_FRAMES}; times[name] = performance.now() - start; }}"
        "return times; })();"
    )
    assert {name: ms for name, ms in times.items() if ms > 2_000} == {}
    find(browser, "#9998")
    browser.run("[...document.querySelectorAll('#graph button')].find((one) => one.title === 'Next match').click()")
    assert "9,998, kernel" in details(browser)
    assert browser.problems() == []
