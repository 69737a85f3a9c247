"""Orders of instructions: planned memory with the order of the exported model, and with the one that the link finds.

Five U-shaped and multi-branch models (order_project), with ExecuTorch's lowering, with etdev's, and with XNNPACK; and
the zoo's models. Object programs stay in the folder, and the next run links them again. The bound is for all orders of
the tensors that share bytes in the original order; more sharing in a new order can go below it. Seconds are processor
time of a link with the search, and of one without it.

    python benchmarks/order.py [--models NAME ...] [--backends NAME ...] [--folder PATH]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING

import zoo_parts  # noqa: F401 - lets the zoo's modules be imported

if TYPE_CHECKING:
    from etdev.linker import Linked, LinkOptions
    from etdev.program import Program
    from etdev.program.sidecar import Sidecar

HERE = Path(__file__).resolve().parent
PROJECT = HERE / "order_project"
BRANCHES = ("u-net", "u-net++", "inception", "pyramid", "hrnet")
LOWERINGS = ("stock", "portable", "xnnpack")
BACKENDS = ("portable", "xnnpack")


@dataclass(frozen=True)
class Row:
    """Figures of one program."""

    model: str
    target: str
    before: int
    after: int
    bound: int
    moved: int
    plain: float
    """Seconds of a link without the search."""
    searched: float

    def cells(self) -> str:
        """Cells of the table."""
        ratio = f"{self.after / self.before:.3f}" if self.before else "-"
        times = f"{self.plain:.2f} | {self.searched:.2f}"
        sizes = f"{self.before:,} | {self.bound:,} | {self.after:,}"
        return f"| {self.model} | {self.target} | {sizes} | {ratio} | {self.moved} | {times} |"


def objects(arguments: argparse.Namespace) -> Iterator[tuple[str, str, Path]]:
    """Model, target and object program, built if it is missing."""
    from architectures import ARCHITECTURES
    from zoo_parts.steps import build_step

    import etdev

    zoo = [item.name for item in ARCHITECTURES]
    for name in arguments.models or [*BRANCHES, *zoo]:
        for target in LOWERINGS if name in BRANCHES else arguments.backends:
            folder = arguments.folder / name
            found = next((folder / target).glob("*.object.pte"), None)
            try:
                if found is None and name in BRANCHES:
                    overrides = [
                        f"project.out={json.dumps(str(folder))}",
                        f"model.kwargs={{ name = {json.dumps(name)} }}",
                    ]
                    etdev.build(PROJECT / "etdev.toml", targets=[target], verify=False, overrides=overrides, environ={})
                elif found is None:
                    build_step(name, target, [], folder)
            except etdev.EtdevError as error:
                print(f"| {name} | {target} | not built: {error.message} |")
                continue
            yield name, target, found or next((folder / target).glob("*.object.pte"))


def measure(model: str, target: str, path: Path) -> Row:
    """Link an object program with the search and without it."""
    from etdev.linker import LinkOptions
    from etdev.program import read
    from etdev.program.footprint import planned_memory
    from etdev.program.sidecar import read_sidecar

    program, sidecar = read(path), read_sidecar(path.with_suffix(".json"))
    plain, before = timed(program, LinkOptions(reorder=False), sidecar)
    searched, after = timed(program, LinkOptions(), sidecar)
    sizes = [sum(planned_memory(done.program).values()) for done in (before, after)]
    moved = sum(method.order.moved for method in after.methods if method.order is not None)
    return Row(model, target, *sizes, bound_of(program, sidecar) or sizes[0], moved, plain, searched)


def timed(program: Program, options: LinkOptions, sidecar: Sidecar) -> tuple[float, Linked]:
    """Link; return the seconds too."""
    from etdev.linker import link

    start = time.process_time()
    done = link(program, options, sidecar)
    return time.process_time() - start, done


def bound_of(program: Program, sidecar: Sidecar) -> int:
    """Bytes that every order needs for the tensors that share bytes in the original order; 0 without a choice."""
    from etdev.linker import LinkOptions
    from etdev.linker.layout import padding
    from etdev.linker.order.problem import lower_bound
    from etdev.linker.order.reorder import RegionMemory, straight_regions
    from etdev.linker.passes import AFTER_ORDER, BEFORE_ORDER, run_more, run_passes
    from etdev.linker.start import start

    options = LinkOptions()
    before = run_passes(start(program, range(len(program.execution_plan)), options, sidecar), options, BEFORE_ORDER)
    done = run_more(before, options, AFTER_ORDER)
    found = 0
    for method, linked in zip(before.work.methods, done.work.methods, strict=True):
        memory = RegionMemory(method, linked.memory, options.alignment)
        for region in straight_regions(method):
            problem = memory.with_dependencies(memory.problem(*region), *region)
            found = max(found, lower_bound(problem) + padding(method.plan))
    return found


def main() -> int:
    """Print a row for each program, and the geometric mean of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="of the five or of the zoo; default: all")
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help="for the zoo's models")
    parser.add_argument("--folder", type=Path, default=HERE.parent / "build" / "order", help="default: build/order")
    arguments = parser.parse_args()

    from etdev.pipeline.project.quiet import quiet_libraries

    print(f"{platform.machine()}, Python {platform.python_version()}\n")
    print("| model | target | original order, B | bound, B | found, B | ratio | moved | s without | s with |")
    print("|---|---|---|---|---|---|---|---|---|")
    rows = []
    with quiet_libraries():
        for name, target, path in objects(arguments):
            rows.append(measure(name, target, path))
            print(rows[-1].cells(), flush=True)
    for title, chosen in (
        ("five", [row for row in rows if row.model in BRANCHES]),
        ("zoo", [row for row in rows if row.model not in BRANCHES]),
    ):
        ratios = [row.after / row.before for row in chosen if row.before]
        if ratios:
            mean = exp(sum(map(log, ratios)) / len(ratios))
            below = sum(ratio < 1 for ratio in ratios)
            seconds = sum(row.searched for row in chosen) / max(sum(row.plain for row in chosen), 1e-9)
            figures = f"geometric mean {mean:.3f}, {below} of {len(ratios)} below 1, worst {max(ratios):.3f}"
            print(f"\n{title}: {figures}; links take {seconds:.2f} times the time")
    return int(any(row.after > row.before for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
