"""The page in headless Chromium: it opens without an error or a request, and answers pointer, keys and screens."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

import etdev
from etdev.page import Document, render
from etdev.page.model import ProgramPage
from etdev.pipeline.results.result import CheckResult
from etdev.program import Program, write
from etdev.program import model as m
from etdev.units import format_size
from inspection.report.builds import built_file, two_files
from page.browser import DESKTOP, LARGE, PHONE, Browser, Screen, looks
from program.hand import tensor
from support.files import banked, chain, copies, counters, delegated, method, program, sin
from support.on_devices import two_devices
from support.reports import bank_report
from support.speed import usual_seconds

EVIL = "</script><script>evil = 1</script><img src=x onerror='evil = 1'>{{data}}<b>"
FRAME = ".chart-frame"


def page_of(found: Program, folder: Path) -> Path:
    write(found, folder / "m.pte")
    return etdev.report(folder / "m.pte")


def check(browser: Browser, page: Path) -> None:
    """It drew itself, complained of nothing, and fetched nothing but itself."""
    assert browser.run("return document.documentElement.dataset.ready") == "yes"
    assert browser.problems() == []
    assert set(browser.requests()) == {page.resolve().as_uri()}


@looks(phone=PHONE, desktop=DESKTOP, **{"4k": LARGE})
@pytest.mark.parametrize("found", [copies, two_devices], ids=["copies", "devices"])
@pytest.mark.sampled(2)
@pytest.mark.integration
def test_opens_on_any_screen(browser: Browser, found: Any, screen: Screen, dark: bool, tmp_path: Path) -> None:
    page = page_of(found(), tmp_path)
    browser.open(page, screen, dark=dark)
    check(browser, page)
    assert browser.run("return document.documentElement.scrollWidth") <= screen.width
    width, height, inked = browser.run(
        "const canvas = document.querySelector('.chart canvas'); const { width, height } = canvas;"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);"
        "return [width, height, data.some((part) => part > 0)];"
    )
    assert width > 200 * screen.scale
    assert height > 200 * screen.scale
    assert inked


def contrast(browser: Browser, text: str, ground: str) -> float:
    """As WCAG defines it; 4.5 is what text needs."""
    channels = browser.run(
        "return [arguments[0], arguments[1]].map((name) => { const context = document.createElement('canvas')"
        ".getContext('2d'); context.fillStyle = colour(name); context.fillRect(0, 0, 1, 1);"
        "return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3); });",
        text,
        ground,
    )
    linear = [
        [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]
        for rgb in channels
    ]
    dark, light = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in linear)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.sampled(1)
@pytest.mark.integration
def test_both_files_of_a_program_are_drawn(browser: Browser, screen: Screen, tmp_path: Path) -> None:
    file, data = two_files(tmp_path)
    browser.open(etdev.report(file), screen)
    check(browser, file.with_suffix(".html"))
    assert browser.run("return document.documentElement.scrollWidth") <= screen.width
    files = (
        "const files = [...document.querySelectorAll('section')].find((one) => one.querySelector('h2')?.textContent"
        " === arguments[0]);"
    )
    titles, drawn, text = browser.run(
        f"{files} return [[...files.querySelectorAll('h3')].map((one) => one.textContent),"
        "files.querySelectorAll('.chart canvas').length, files.textContent];",
        "Files",
    )
    assert [title.partition(",")[0] for title in titles] == ["tiny.pte", "w.ptd"]
    assert drawn == 2
    assert "layer.weight" in text
    assert "looked up by delegates" in text

    data.unlink()
    browser.open(etdev.report(file), screen)
    check(browser, file.with_suffix(".html"))
    assert "External weights are not shown: there is no w.ptd next to the file." in browser.run(
        f"{files} return files.textContent;", "File"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.nightly
def test_texts_can_be_read_in_both_themes(browser: Browser, dark: bool, tmp_path: Path) -> None:
    browser.open(page_of(copies(), tmp_path), dark=dark)
    for text in ("text", "faint", "accent", "good", "bad", "doubt"):
        for ground in ("page", "panel"):
            assert contrast(browser, text, ground) >= 4.5, (text, ground)
    for area in (
        "kernel",
        "delegate",
        "input",
        "state",
        "transfer",
        "alias",
        *(f"hue-{number}" for number in range(8)),
    ):
        assert contrast(browser, area, "page") >= 4.5, area  # A name in an area has the colour of the page.


@pytest.mark.nightly
def test_a_build_without_checks_is_not_verified(browser: Browser, tmp_path: Path) -> None:
    off = tuple(CheckResult(name=name, status="not run", summary="it was turned off") for name in ("bytes", "plan"))
    page = etdev.report(built_file(tmp_path, chain(2), status="built", checks=off))
    browser.open(page)
    assert browser.text(".tile .not-run") == "built but not run"
    assert browser.text("#verification p") == "No check ran: it was turned off (2 checks)."
    assert browser.run("return document.querySelectorAll('#verification table').length") == 0
    passed = CheckResult(name="plan", status="passed", summary="1 method")
    browser.open(etdev.report(built_file(tmp_path, chain(2), status="built", checks=(off[0], passed))))
    assert browser.text(".tile .not-run") == "built but not run"
    for name, said, kind in (
        ("runtime", "good", "passed"),
        ("native", "good in the C++ runtime", "passed"),
        ("replay", "good in the replay", "not-run"),
    ):
        ran = CheckResult(name=name, status="passed", summary="1 sample")
        browser.open(etdev.report(built_file(tmp_path, chain(2), status="built", checks=(off[0], ran))))
        assert browser.text(f".tile .{kind}") == said
    assert browser.run("return document.querySelectorAll('#verification tbody tr').length") == 2


@pytest.mark.integration
def test_drawings_are_described_while_the_list_of_controls_is_closed(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(chain(2), tmp_path))
    described = browser.run(
        "return [...document.querySelectorAll('[role=application]')].map((one) =>"
        " document.getElementById(one.getAttribute('aria-describedby'))).map((text) =>"
        " [text.textContent, text.closest('details') === null]);"
    )
    assert len(described) == 2
    for text, outside in described:
        assert text.startswith("Keys: ")
        assert outside


@pytest.mark.integration
def test_sizes_are_rounded_as_in_all_other_outputs(browser: Browser, tmp_path: Path) -> None:
    """A tile had 41.3 KiB and a check 41.2 KiB for 42,240 bytes."""
    browser.open(page_of(chain(2), tmp_path))
    numbers = [0, 1, 1023, 1024, 1029, 1034, 10235, 42_240, 42_752, 102_348, 102_349, 102_656, 1_047_552, 1_363_149]
    numbers += [random.Random(1).randrange(2**40) for _ in range(500)] + [128 * at for at in range(1, 900)]
    assert browser.run("return arguments[0].map(size)", numbers) == list(map(format_size, numbers))


@pytest.mark.nightly
def test_a_map_says_where_the_peak_is_and_where_time_ends(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(chain(12), tmp_path))
    words, last, instants = browser.run(
        "const chart = echarts.getInstanceByDom(document.querySelector('.chart'));"
        "const words = chart.getZr().storage.getDisplayList().map((one) => one.style.text).filter(Boolean);"
        "return [words, chart.getOption().series[2].data.at(-1), DOCUMENT.programs[0].methods[0].instants];"
    )
    assert "peak: instruction 0, 32 B" in words
    assert {"in", "out"} <= set(words)
    assert last == [instants - 1, 16]  # The outputs stay in use until time ends.


@pytest.mark.integration
def test_the_line_of_the_peak_is_in_front_of_wide_tensors(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(chain(2), tmp_path))
    widths = browser.run(
        "const buffer = { peak: { instant: 5 }, tensors: { start: [5, 0, 6, 4], end: [6, 9, 7, 5] } };"
        "return [0, 1, 2, 3].map((row) => leastWidth(buffer, row));"
    )
    assert widths == [8, 8, 1, 1]
    order = browser.run(
        "const { series } = echarts.getInstanceByDom(document.querySelector('.chart')).getOption();"
        "const layer = (id) => series.find((one) => one.id === id).z;"
        "return [layer('peak') > layer('storages'), layer('peak') > layer('tensors')];"
    )
    assert order == [True, True]


@pytest.mark.integration
def test_a_name_is_in_the_part_of_a_tensor_that_is_not_covered(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(chain(2), tmp_path))
    ends = browser.run(
        "const tensors = { value: [0, 1, 2, 3], offset: [0, 0, 8, 0], size: [16, 16, 8, 16],"
        " start: [0, 2, 3, 3], end: [3, 5, 5, 5] };"
        "return tensors.value.map((_, row) => visibleEnd({ tensors }, row));"
    )
    assert ends == [2, 3, 5, 3]  # The last one is below the third, which begins with it.


@pytest.mark.nightly
def test_the_peak_names_modules_and_lines_below_each_tensor(browser: Browser, tmp_path: Path) -> None:
    browser.open(etdev.report(built_file(tmp_path, chain(2), modules={0: "encoder.0"})), PHONE)
    under, captions, width = browser.run(
        "const found = [...document.querySelectorAll('#memory tr.under div')];"
        "return [found.map((one) => one.innerText), document.querySelectorAll('.scroll .caption, caption').length,"
        " Math.max(...found.map((one) => one.getBoundingClientRect().right))];"
    )
    assert "encoder.0 · model.py:11: x = x.sin() # 11" in [" ".join(text.split()) for text in under]
    assert captions == 0
    assert width <= PHONE.width


@pytest.mark.nightly
def test_the_theme_can_be_turned(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(copies(), tmp_path))
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(ground)
    browser.run("document.querySelector('header button').click()")
    assert browser.run(ground) != light
    assert browser.text("header button") == "Light"
    browser.run("document.querySelector('header button').click()")
    assert browser.run(ground) == light
    assert browser.problems() == []


@pytest.mark.integration
def test_the_pointer_is_answered(browser: Browser, tmp_path: Path) -> None:
    """What is known of a tensor stands next to it, also where its lines come from."""
    browser.open(etdev.report(built_file(tmp_path, chain(2))))
    browser.move(".chart canvas", 0.45, 0.3)
    said = browser.text(".tip")
    for part in (
        "value 1",
        "aten::sin.out",
        "float32 [4]",
        "16 bytes",
        "model.py:11: x = x.sin()",
        "its operand is used",
    ):
        assert part in said
    assert browser.run("return getComputedStyle(document.querySelector('.marker')).display") == "block"
    browser.move(".chart canvas", 0.45, 0.72)
    assert "in use" in browser.text(".tip")
    browser.move("h1", 0.5, 0.5)
    assert browser.text(".tip") == ""


@pytest.mark.integration
def test_the_keyboard_walks_through_the_tensors(browser: Browser, tmp_path: Path) -> None:
    from selenium.webdriver import Keys

    browser.open(page_of(copies(), tmp_path))
    browser.run("document.querySelector('.controls select').focus()")
    for _ in range(20):
        if browser.run("return document.activeElement.matches('.chart-frame')"):
            break
        browser.key(Keys.TAB)
    assert browser.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    seen = []
    for key in (Keys.RIGHT, Keys.RIGHT, Keys.RIGHT, Keys.LEFT, Keys.UP, Keys.DOWN, Keys.END, Keys.HOME, "p"):
        browser.key(key)
        seen.append(browser.text(".tip").partition("\nop\n")[0].removeprefix("tensor\n"))
    first = "input 0, value 0"
    assert seen == [
        first,
        "value 2",
        "value 3",
        "value 2",
        "value 3",
        "value 2",
        "output 0, value 8",
        first,
        "output 0, value 8",
    ]
    before = browser.run("return document.querySelector('.marker').offsetWidth")
    browser.key("+")
    browser.key("+")
    assert browser.run("return document.querySelector('.marker').offsetWidth") > before
    browser.key("0")
    assert browser.run("return document.querySelector('.marker').offsetWidth") == before
    browser.key(Keys.ESCAPE)
    assert browser.text(".tip") == ""
    assert browser.problems() == []


@pytest.mark.nightly
def test_tables_say_the_same_and_lead_to_the_map(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(copies(), tmp_path))
    browser.run("document.querySelector('table button.plain').click()")
    assert "output 0, value 8" in browser.text(".tip")
    browser.run("[...document.querySelectorAll('details')].forEach((one) => { one.open = true; })")
    assert browser.run("return document.querySelectorAll('details table')[0].tBodies[0].rows.length") == 8


@pytest.mark.nightly
def test_long_tables_are_sorted_searched_and_turned(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(chain(120), tmp_path))
    browser.run("document.querySelector('details:has(table)').open = true")
    cells = (
        "const rows = document.querySelector('details table').tBodies[0].rows;"
        "return [...rows].map((row) => row.cells[0].innerText)"
    )
    press = "[...document.querySelectorAll('details button')].find((one) => one.innerText === arguments[0]).click()"
    assert browser.run(cells)[:2] == ["input 0", "value 1"]
    assert len(browser.run(cells)) == 50
    browser.run(press, "Next")
    assert browser.run(cells)[0] == "value 50"
    assert "51 to 100 of 121" in browser.text("details:has(table)")
    browser.run(press, "offset")
    assert browser.run(cells)[:2] == ["output 0", "value 119"]
    assert browser.run("return document.querySelectorAll('details th[aria-sort=descending]').length") == 1
    browser.run(press, "offset")
    assert browser.run(cells)[0] == "input 0"
    find = "const field = document.querySelector('details input'); field.value = arguments[0];"
    browser.run(f"{find} field.dispatchEvent(new Event('input'));", "VALUE 11")
    assert browser.run(cells) == ["value 11", *(f"value {number}" for number in range(110, 120))]
    browser.run(f"{find} field.dispatchEvent(new Event('input'));", "nothing like it")
    assert browser.run(cells) == []
    assert browser.problems() == []


@pytest.mark.nightly
def test_methods_and_buffers_can_be_chosen(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(counters(buffer=2), tmp_path))
    choose = (
        "const found = document.querySelectorAll('main select')[arguments[0]];"
        "found.selectedIndex = 1; found.dispatchEvent(new Event('change'));"
    )
    browser.run(choose, 0)
    assert "Method second" in browser.text("main")
    browser.run(choose, 1)
    assert browser.run("return document.querySelectorAll('.chart-frame').length") == 1
    assert "kept between calls" in browser.text(".legend")
    assert browser.problems() == []


@pytest.mark.integration
def test_names_of_a_program_are_shown_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    """Of the file, methods, operators, tensors, delegates and named data; and on a page of nothing but such names."""
    named = tensor(4, at=0, extra_tensor_info=m.ExtraTensorInfo(fully_qualified_name=EVIL))
    plan = method([named, tensor(4, at=16)], [sin(0, 1)], name=EVIL, operators=(m.Operator(EVIL),) * 2)
    spec = m.CompileSpec(EVIL, EVIL.encode())
    part = m.BackendDelegate(EVIL, m.BackendDelegateDataReference(m.DataLocation.SEGMENT, 1), (spec,))
    called = method([tensor(4, at=0), tensor(4, at=16)], [m.DelegateCall(0, (0, 1))], name="b", delegates=(part,))
    page = page_of(program(plan, called, segments=delegated().segments, named_data=(m.NamedData(EVIL, 1),)), tmp_path)
    only = ProgramPage(EVIL, EVIL, 1, EVIL, EVIL, EVIL, ((EVIL, EVIL),), {EVIL: 1}, EVIL, notes=(EVIL,))
    other = tmp_path / "other.html"
    other.write_text(render(Document(EVIL, EVIL, (only, only), (EVIL,), {EVIL: EVIL}, (EVIL,))), encoding="utf-8")
    for file in (page, other):
        browser.open(file)
        if file == page:
            browser.run("document.querySelector('.chart-frame').focus()")
            browser.key("p")
            browser.run("[...document.querySelectorAll('details')].forEach((one) => { one.open = true; })")
        check(browser, file)
        assert EVIL in browser.text("main")
        assert browser.run(
            "return [typeof evil, document.querySelectorAll('main img, main b, main script').length]"
        ) == ["undefined", 0]


@pytest.mark.nightly
def test_it_can_be_printed(browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of(copies(), tmp_path), dark=True)
    assert browser.printed().startswith(b"%PDF-")
    assert browser.problems() == []


@pytest.mark.integration
@pytest.mark.nightly
def test_ten_thousand_tensors_open_and_answer(browser: Browser, tmp_path: Path) -> None:
    """Twice what it may take, where ``benchmarks/report.py`` holds it to that."""
    from selenium.webdriver import Keys

    page = page_of(chain(9_999), tmp_path)

    def opened() -> float:
        start = time.perf_counter()
        browser.open(page)
        browser.move(".chart canvas", 0.5, 0.3)
        browser.run("document.querySelector('.chart-frame').focus()")
        browser.key("p")
        assert "tensor" in browser.text(".tip")
        return time.perf_counter() - start

    assert usual_seconds(opened, 4, most=2) < 4
    browser.key(Keys.END, *"+++++++++")
    drawn, expected = browser.run(
        "const marker = document.querySelector('.marker').getBoundingClientRect();"
        "const canvas = document.querySelector('.chart canvas'); const { left, top } = canvas.getBoundingClientRect();"
        "const [x, y] = [(marker.left + marker.right) / 2 - left, marker.top + 3 - top];"
        "const at = canvas.getContext('2d').getImageData(x, y, 1, 1).data;"
        "return [`rgb(${[...at].slice(0, 3).join(', ')})`, colour('kernel')];"
    )
    assert drawn == expected
    check(browser, page)


@pytest.mark.nightly
def test_maps_of_banks_show_their_capacity(browser: Browser, tmp_path: Path) -> None:
    page = etdev.report(built_file(tmp_path, banked(8, 16), banks=bank_report(48, 64)))
    browser.open(page)
    check(browser, page)
    names = browser.run("return [...document.querySelectorAll('#memory select option')].map((one) => one.innerText)")
    assert names == ["1, slow, cpu, 48 B", "2, fast, cpu, 64 B"]
    shown = (
        "const { yAxis, series } = echarts.getInstanceByDom(document.querySelector('.chart')).getOption();"
        "return [yAxis[0].max, series[2].markLine.data.map((line) => [line.label.formatter, line.yAxis])];"
    )
    extent, lines = browser.run(shown)
    assert extent == 48
    assert "bank" not in dict(lines)
    assert "slow: 1.2 % of 4.00 KiB (4,096 bytes) used by this method" in browser.text("main")
    browser.run(
        "const found = document.querySelector('main select');"
        "found.selectedIndex = 1; found.dispatchEvent(new Event('change'));"
    )
    extent, lines = browser.run(shown)
    assert extent == 128
    assert dict(lines)["bank"] == 128
    assert browser.run("return document.querySelector('.chart-frame').getAttribute('aria-label')").startswith(
        "Memory map of bank fast, buffer 2 on cpu: "
    )
    assert browser.problems() == []
