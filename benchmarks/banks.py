"""Models of the zoo in a fast and a slow memory bank: etdev's links against ExecuTorch's planner ``banked_greedy``.

Each model is built once, for the portable kernels. The fast bank is 1/8, 1/4 and 1/2 as large as the planned memory of
the link without banks. The slow bank just suffices for ``banked_greedy``, twice: on the tensors of etdev's link, and in
a plain export with ExecuTorch's own tensors. That planner fills the banks in order, so its plan for a slow bank without
a limit shows the size. A byte in the slow bank costs 4 times one in the fast bank.

In the tight series, both banks together are 1.00, 1.02 and 1.05 times as large as the memory without banks.

In the plain export, convolutions are single kernels. etdev computes them as products of matrices, which is faster and
needs less memory, but moves more bytes. So ExecuTorch's own file is also relinked into the same banks.

Ends with 1 if etdev does not fit where ExecuTorch's planner fits, if etdev moves more slow bytes with the same
instructions, or if a run differs.

    python benchmarks/banks.py [--only NAME ...] [--run] [--jobs N] [--fresh]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo_parts.in_banks import Found, Made

    from etdev.program import Program

MODELS = (
    "mobilenet-v2", "vit", "yolos", "segformer", "dpt", "bert", "llama-decode", "whisper", "clip", "unet-conditional",
)  # fmt: skip
"""One or two models of each area of the zoo; ``llama-decode`` has state."""
RESULTS = Path(__file__).resolve().parents[1] / "build" / "banks"
TOTALS = (100, 102, 105)
"""Sizes of both banks together in the tight series, in percent of the memory without banks."""
TITLES = (
    "model", "fast", "slow suffices for", "slow size, B", "etdev, slow B", "greedy, slow B", "plain, slow B",
    "plain relinked, slow B", "cost", "greedy", "plain", "bound", "gap", "seconds",
)  # fmt: skip


@dataclass
class Report:
    """Rows and counts of one model."""

    rows: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def main() -> int:
    """Print a row for each map, and the tight series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(MODELS), metavar="NAME", help="these models of the zoo")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="default: build/banks")
    parser.add_argument("--run", action="store_true", help="run each link in the stock and in the native runtime")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="models at the same time")
    parser.add_argument("--fresh", action="store_true", help="build models again that were built before")
    arguments = parser.parse_args()

    from zoo_parts.key import versions

    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(versions())}")
    print(f"\n| {' | '.join(TITLES)} |\n| --- | --- | --- |{' ---: |' * (len(TITLES) - 3)}")
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool:
        tasks = [
            pool.submit(measure, name, arguments.results / name, run=arguments.run, fresh=arguments.fresh)
            for name in arguments.only
        ]
        for task in tasks:
            report = task.result()
            print("\n".join(report.rows), flush=True)
            counts.update(report.counts)
            wrong += report.wrong
    _print_summary(counts, run=arguments.run)
    for text in wrong:
        print(f"wrong: {text}", file=sys.stderr)
    return 1 if wrong else 0


def _print_summary(counts: Counter[str], *, run: bool) -> None:
    print(f"\nOf {counts['maps']} maps, etdev fits {counts['etdev fits']}.")
    for other in ("greedy", "plain", "relinked"):
        fits, less, same, more = (counts[f"{other} {what}"] for what in ("fits", "more", "same", "less"))
        what = (
            "ExecuTorch's own plan fits {}; there, its file relinked"
            if other == "relinked"
            else f"`{other}` fits {{}}; there, etdev"
        )
        print(f"{what.format(fits)} moves fewer slow bytes in {less}, as many in {same}, and more in {more}.")
    print("\n| both banks together | links | etdev fits | proved impossible | greedy fits | plain fits |")
    print(f"| --- |{' ---: |' * 5}")
    for total in TOTALS:
        whats = ("links", "etdev", "impossible", "greedy", "plain")
        print(f"| {total / 100:.2f} | {' | '.join(str(counts[f'{total} {what}']) for what in whats)} |")
    if run:
        print(f"\n{counts['equal']} of {counts['ran']} links have the bits of the link without banks in both runtimes.")


def measure(name: str, folder: Path, *, run: bool, fresh: bool) -> Report:
    """Link a model for all maps."""
    from zoo_parts.in_banks import SHARES, greedy_need, link_in_banks, make

    from etdev.pipeline.project.quiet import quiet_libraries

    report = Report()
    folder.mkdir(parents=True, exist_ok=True)
    with quiet_libraries():
        made = make(name, folder, fresh=fresh)
        programs: list[tuple[str, Program]] = []
        for share in SHARES:
            fast, theirs = made.fast(share), made.plain[share]
            sizes = {"greedy": greedy_need(made, share).slow}
            if not isinstance(theirs, str):
                sizes["plain"] = theirs.slow
            for kind, slow in sizes.items():
                found = link_in_banks(made, fast, slow)
                _add(report, made, share, kind, slow, found)
                if found.linked:
                    programs.append((f"{name}, 1/{share}, {kind}", found.linked.program))
            for total in TOTALS:
                slow = made.peak * total // 100 // 16 * 16 - fast
                found = link_in_banks(made, fast, slow)
                _add_tight(report, made, share, total, slow, found)
                if found.linked:
                    programs.append((f"{name}, 1/{share}, {total} %", found.linked.program))
        if run:
            report.counts["ran"] = len(programs)
            for label, equal in _runs(made, programs, folder):
                report.counts["equal"] += equal
                if not equal:
                    report.wrong.append(f"{label}: other bits than without banks")
    return report


def _add(report: Report, made: Made, share: int, kind: str, slow: int, found: Found) -> None:
    from zoo_parts.in_banks import Use, relink_in_banks

    counts, label = report.counts, f"{made.name}, 1/{share}, slow bank for {kind}"
    plain = made.plain[share]
    others = {"greedy": found.greedy, "plain": plain if isinstance(plain, Use) and plain.slow <= slow else None}
    banks = found.linked.banks if found.linked else None
    counts["maps"] += 1
    counts["etdev fits"] += banks is not None
    moved = banks.banks[1].traffic if banks else None
    relinked = relink_in_banks(made, made.fast(share), slow)
    again = relinked.traffic[1] if relinked else None
    for name, ours, use in (
        ("greedy", moved, others["greedy"]),
        ("plain", moved, others["plain"]),
        ("relinked", again, others["plain"]),
    ):
        if use is None:
            continue
        counts[f"{name} fits"] += 1
        if ours is None or (ours > use.traffic[1] and name != "plain"):
            report.wrong.append(f"{label}, {name}: theirs moves {use.traffic[1]:,} slow bytes, etdev {_number(ours)}")
        elif ours > use.traffic[1]:
            counts[f"{name} less"] += 1
        else:
            counts[f"{name} {'same' if ours == use.traffic[1] else 'more'}"] += 1
    cells = [made.name, f"1/{share}", kind, f"{slow:,}", _number(moved)]
    cells += [_number(use.traffic[1] if use else None) for use in others.values()]
    cells += [_number(again), _number(int(banks.cost) if banks else None)]
    cells += [_number(use.cost if use else None) for use in others.values()]
    gap = f"{banks.cost / banks.lower_bound - 1:.1%}" if banks and banks.lower_bound else ""
    cells += [_number(int(banks.lower_bound) if banks else None), gap, f"{found.seconds:.1f}"]
    report.rows.append(f"| {' | '.join(cells)} |")


def _add_tight(report: Report, made: Made, share: int, total: int, slow: int, found: Found) -> None:
    from zoo_parts.in_banks import Use

    plain = made.plain[share]
    report.counts[f"{total} links"] += 1
    report.counts[f"{total} etdev"] += found.linked is not None
    report.counts[f"{total} impossible"] += found.proved
    report.counts[f"{total} greedy"] += found.greedy is not None
    report.counts[f"{total} plain"] += isinstance(plain, Use) and plain.slow <= slow
    if found.linked is None and found.greedy is not None:
        report.wrong.append(f"{made.name}, 1/{share}, {total} %: only greedy fits")


def _number(value: int | None) -> str:
    return "does not fit" if value is None else f"{value:,}"


def _runs(made: Made, programs: list[tuple[str, Program]], folder: Path) -> Iterator[tuple[str, bool]]:
    """Run the link without banks, then all others; yield whether the bits of each are the same in both runtimes."""
    from zoo_parts.outputs import outputs_of, same_bits

    from etdev.execution.native import open_native
    from etdev.linker import LinkOptions, link
    from etdev.program import write
    from etdev.runtime.stock import StockRuntime

    objects, sidecar = made.program()
    one = link(objects, LinkOptions(), sidecar).program
    file = folder / "run.pte"
    with StockRuntime() as stock, open_native(one) as native:
        write(one, file)
        wanted = outputs_of(file, made.name, stock)
        wanted_native = outputs_of(file, made.name, native)
        for label, program in programs:
            write(program, file)
            right = same_bits(outputs_of(file, made.name, stock), wanted)
            right = right and same_bits(outputs_of(file, made.name, native), wanted_native)
            yield label, right and not (native.called and native.called.damages)


if __name__ == "__main__":
    sys.exit(main())
