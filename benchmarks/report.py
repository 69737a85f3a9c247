"""What the page of `etdev report` costs: bytes, time to make it, time until it answers in headless Chromium.

The programs have as many tensors as `--tensors` says: a chain, each tensor in use for two instructions, and one in
which all are in use to the end. Times are of a browser that is open already, the median of `--rounds`: until the page
has drawn itself, until a tensor under the pointer is described, and for each key that goes to another tensor. Then the
graph is expanded, moved, zoomed, shown as a whole, searched, coloured and walked through: each time is until the next
frame after the change is drawn, with all instructions expanded. The last table is about the page of `etdev diff` of two
chains. Ends with 1 if a limit is passed, with 3 if there is no
Chromium with its driver.

    python benchmarks/report.py [--tensors N ...] [--rounds N] [--size BYTES] [--seconds S]
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import etdev
from etdev.inspection.report import diff_page
from etdev.program import Program, write
from etdev.program import model as m
from page.browser import Browser
from program.hand import tensor
from support.files import chain, method, program, sin

_KEYS = 20


def held(length: int) -> Program:
    """A chain whose tensors are all outputs."""
    values = [tensor(4, at=16 * index) for index in range(length + 1)]
    calls = [sin(index, index + 1) for index in range(length)]
    return program(method(values, calls, outputs=range(length + 1)))


def wide(length: int) -> Program:
    """Sums of earlier results: the one before, and one up to a hundred before."""
    values = [tensor(4, at=16 * index) for index in range(length + 1)]
    calls = [
        m.KernelCall(0, (index, max(index - index * 37 % 100, 0), length + 1, index + 1, index + 1))
        for index in range(length)
    ]
    return program(method([*values, m.Int(1)], calls, outputs=(length,)))


PROGRAMS: dict[str, Callable[[int], Program]] = {"chain": chain, "held": held, "wide": wide}


def measure(browser: Browser, page: Path) -> tuple[float, float, float]:
    """Seconds until the page is drawn, until the pointer is answered, and for a key."""
    from selenium.webdriver import Keys

    start = time.perf_counter()
    browser.open(page)
    assert browser.run("return document.documentElement.dataset.ready") == "yes"
    drawn = time.perf_counter()
    browser.move(".chart canvas", 0.5, 0.36)
    browser.run("return document.querySelector('.tip').innerText")
    answered = time.perf_counter()
    browser.run("document.querySelector('.chart-frame').focus()")
    pressed = time.perf_counter()
    browser.key(*[Keys.RIGHT] * _KEYS)
    assert browser.text(".tip")
    return drawn - start, answered - start, (time.perf_counter() - pressed) / _KEYS


_DRAWN = """
return (async () => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  const section = document.getElementById("graph");
  const button = (name) => [...section.querySelectorAll("button")].find((one) => one.textContent === name);
  const key = (key, shiftKey) =>
    section.querySelector(".graph-frame").dispatchEvent(new KeyboardEvent("keydown", { key, shiftKey }));
  const input = section.querySelector("input");
  const colours = section.querySelector("select");
  const actions = {
    expand: () => button("Expand all")?.click(),
    move: () => key("ArrowDown", true),
    zoom: () => key("-"),
    whole: () => key("0"),
    "move whole": () => key("ArrowRight", true),
    find: () => {
      input.value = arguments[0];
      input.dispatchEvent(new Event("input"));
    },
    colour: () => {
      colours.selectedIndex = colours.options.length - 1;
      colours.dispatchEvent(new Event("change"));
    },
    select: () => key("End"),
    "next match": () => button("↓").click(),
  };
  section.scrollIntoView({ behavior: "instant" });
  await frame();
  const times = {};
  for (const [name, action] of Object.entries(actions)) {
    const start = performance.now();
    action();
    await frame();
    times[name] = performance.now() - start;
  }
  return Object.entries(times);
})();
"""


def measure_graph(browser: Browser) -> dict[str, float]:
    """Milliseconds until each change of the graph is drawn."""
    return dict(browser.run(_DRAWN, "value 77"))


def compare(browser: Browser, folder: Path, count: int) -> str:
    """A row about the page that compares a chain with one that is a tenth shorter."""
    files = [folder / f"{name}.pte" for name in ("long", "short")]
    for file, length in zip(files, (count - 1, count - count // 10), strict=True):
        write(chain(length), file)
    start = time.perf_counter()
    page = folder / "diff.html"
    page.write_text(diff_page(*files), encoding="utf-8")
    made = time.perf_counter()
    browser.open(page)
    assert browser.run("return document.documentElement.dataset.ready") == "yes"
    drawn = time.perf_counter() - made
    return f"| {count:,} | {page.stat().st_size:,} | {made - start:.2f} | {drawn:.2f} |"


def main() -> int:
    """Measure, print a table, and judge it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=6_000_000, help="fail above so many bytes")
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="fail if the pointer or a change of the graph takes longer"
    )
    arguments = parser.parse_args()
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        print("there is no Chromium with its driver", file=sys.stderr)
        return 3
    failed, limit = False, arguments.seconds
    with tempfile.TemporaryDirectory() as folder, Browser(chromium, driver) as browser:
        version = browser.driver.capabilities["browserVersion"]
        print(f"{platform.platform()}, {os.cpu_count()} cores, Chromium {version}")
        print("| program | tensors | page, bytes | to make it, s | drawn, s | pointer answered, s | a key, ms |")
        print("|---|--:|--:|--:|--:|--:|--:|")
        graphs: dict[str, dict[str, float]] = {}
        for name, make in PROGRAMS.items():
            for count in arguments.tensors:
                file = Path(folder) / f"{name}{count}.pte"
                write(make(count - 1), file)
                start = time.perf_counter()
                page = etdev.report(file)
                made = time.perf_counter() - start
                rounds, changes = [], []
                for _ in range(arguments.rounds):
                    rounds.append(measure(browser, page))
                    changes.append(measure_graph(browser))
                drawn, answered, key = map(statistics.median, zip(*rounds, strict=True))
                medians = {change: statistics.median(one[change] for one in changes) for change in changes[0]}
                graphs[f"{name} | {count:,}"] = medians
                size = page.stat().st_size
                failed |= size > arguments.size or max(answered, *(ms / 1000 for ms in medians.values())) > limit
                print(
                    f"| {name} | {count:,} | {size:,} | {made:.2f} | {drawn:.2f} | {answered:.2f} | {key * 1000:.0f} |"
                )
        print()
        print(f"| program | instructions | {', ms | '.join(next(iter(graphs.values())))}, ms |")
        print("|---|--:|" + "--:|" * len(next(iter(graphs.values()))))
        for name, medians in graphs.items():
            print(f"| {name} | {' | '.join(f'{ms:.0f}' for ms in medians.values())} |")
        print()
        print("| compared | page, bytes | to make it, s | drawn, s |")
        print("|--:|--:|--:|--:|")
        for count in arguments.tensors:
            print(compare(browser, Path(folder), count))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
