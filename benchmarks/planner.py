"""How small and how fast memory plans are: ``best`` beside ExecuTorch's order and the lower bound.

``python benchmarks/planner.py [--largest N] [--plain] [--seeds N | --programs FILE.pte ...]`` plans

* the published instances in the folder that ``ETDEV_SHARED`` names (``data/planner`` in it; ``../shared`` next to the
  repository by default), each of MiniMalloc's with the capacity in its name and once without. They are skipped, and it
  is said so, if there are none;
* graphs of 100 to 1,000,000 tensors, made up like those of transformers and of convolutional networks, without any
  order, and with tensors in use for long beside short ones. **Their generator is frozen**: it is not to be changed when
  the planner is. All but the last kind were written before the planner was tuned;
* and, instead of both, N graphs of the last kind with 10,000 tensors each, or what the linker asks for when it links
  the programs of some files again.

Times are the processor's for ``make_plan`` alone: they include the bound and the check of the result, and neither
reading nor imports. With numba (``pip install 'etdev[fast]'``) its code is compiled before the clock starts; what that
takes is a line of its own. ``--plain`` runs without. Growth is the time over n log n, relative to 1,000 tensors.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from etdev.planner import Buffer, Plan, Problem, kernel, make_plan, restarts
from etdev.planner.csvfile import read_buffers

ROOT = Path(__file__).resolve().parents[1]
SIZES = (100, 1_000, 10_000, 50_000, 200_000, 1_000_000)
MOST_GREEDY = 10_000
"""Tensors that ExecuTorch's order is tried for, at most: beyond, it takes minutes."""
ALIGNMENT = 16

Row = tuple[int, int, int]
"""(size in bytes, first instant, first instant at which it is free again)"""


def transformer(count: int) -> list[Row]:
    """Blocks of attention and feed-forward on a residual stream, each with a cache that is kept, and two masks."""
    draws = Random(count)
    tokens, heads = 16 * draws.randint(2, 32), draws.choice([4, 8, 16])
    width = 64 * draws.randint(4, 24)
    stream, hidden, scores = 4 * tokens * width, 4 * tokens * width * 4, 4 * tokens * tokens * heads
    graph = _Graph(count)
    masks = [graph.add(4 * tokens * tokens), graph.add(4 * tokens * 64)]
    residual = graph.add(stream)
    while graph.room():
        norm = graph.add(stream, residual)
        query, key, value = (graph.add(stream, norm) for _ in range(3))
        turned = [graph.add(stream, part, masks[1]) for part in (query, key)]
        cache = graph.add(2 * stream // draws.choice([1, 2, 4]), turned[1], value)
        graph.keep(cache)
        product = graph.add(scores, *turned, cache)
        weights = graph.add(scores, graph.add(scores, product, masks[0]))
        mixed = graph.add(stream, weights, cache)
        residual = graph.add(stream, residual, graph.add(stream, mixed))
        inner = graph.add(stream, residual)
        gate, up = graph.add(hidden, inner), graph.add(hidden, inner)
        down = graph.add(stream, graph.add(hidden, gate, up))
        residual = graph.add(stream, residual, down)
        if draws.random() < 0.1:
            graph.add(4 * draws.randint(1, 4 * width), residual)
    return graph.rows()


def convolutions(count: int) -> list[Row]:
    """Stages of residual blocks, each with smaller images and more channels; some skip far ahead, as in a U-Net."""
    draws = Random(count)
    graph = _Graph(count)
    side, channels = 224, draws.choice([16, 24, 32])
    block_count = max(count // 60, 1)
    last = graph.add(4 * 3 * side * side)
    far: list[int] = []
    while graph.room():
        size = 4 * channels * side * side
        for _ in range(draws.randint(1, block_count)):
            wide = draws.choice([1, 2, 4, 6])
            first = graph.add(size * wide, last)
            second = graph.add(size * wide, first)
            pooled = graph.add(4 * channels * wide, second)
            scaled = graph.add(size * wide, second, graph.add(4 * channels * wide, pooled))
            narrow = graph.add(size, scaled)
            last = graph.add(size, last, narrow)
        if draws.random() < 0.5:
            far.append(last)
        elif far:
            last = graph.add(size, last, far.pop(draws.randrange(len(far))))
        if side > 7:
            side = side // 2
            channels = min(2 * channels, 512)
        else:
            side, channels = draws.choice([(224, 16), (112, 32), (56, 64)])
        last = graph.add(4 * channels * side * side, last)
    return graph.rows()


def scattered(count: int) -> list[Row]:
    """No graph at all: sizes and lifetimes of every order of magnitude, anywhere; a few to the end."""
    draws = Random(count)
    rows = []
    for _ in range(count):
        start = draws.randrange(count)
        life = 1 + int(draws.expovariate(1 / 8))
        if draws.random() < 0.02:
            life = draws.randint(1, max(count // 20, 1))
        rows.append((4 * draws.randint(1, 1 << draws.randint(2, 18)), start, min(start + life, count)))
    return rows


def mixed(count: int, seed: int = 0) -> list[Row]:
    """Sixty sizes over five orders of magnitude; three of ten tensors are in use for long, the others are short."""
    draws = Random(7919 + count + 1_000_003 * seed)
    sizes = [512 * max(1, int(draws.lognormvariate(4, 2.5))) for _ in range(60)]
    rows = []
    for _ in range(count):
        start = draws.randrange(count)
        life = draws.randint(count // 50, count // 2) if draws.random() < 0.3 else 1 + int(draws.expovariate(1 / 6))
        rows.append((draws.choice(sizes), start, min(start + life, count)))
    return rows


class _Graph:
    """Tensors in the order in which they are computed; each is in use until the last one that is computed from it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._sizes: list[int] = []
        self._ends: list[int] = []
        self._kept: list[int] = []

    def room(self) -> bool:
        return len(self._sizes) < self._count

    def add(self, size: int, *sources: int) -> int:
        """One instruction; its tensor."""
        instant = len(self._sizes)
        self._sizes.append(size)
        self._ends.append(instant + 1)
        for source in sources:
            self._ends[source] = instant + 1
        return instant

    def keep(self, tensor: int) -> None:
        """In use during the whole program."""
        self._kept.append(tensor)

    def rows(self) -> list[Row]:
        """The first ``count`` of them."""
        end = len(self._sizes)
        kept = set(self._kept)
        rows = [
            (size, 0 if tensor in kept else tensor, end if tensor in kept else self._ends[tensor])
            for tensor, size in enumerate(self._sizes)
        ]
        return rows[: self._count]


GRAPHS: dict[str, Callable[[int], list[Row]]] = {
    "transformer": transformer,
    "convolutions": convolutions,
    "scattered": scattered,
    "mixed": mixed,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1], metavar="N", help="tensors of the largest graph")
    parser.add_argument("--plain", action="store_true", help="do not use numba")
    parser.add_argument("--only", choices=["published", "graphs"], help="only these")
    parser.add_argument("--seeds", type=int, metavar="N", help="plan N graphs of the last kind, nothing else")
    parser.add_argument("--programs", nargs="+", type=Path, metavar="FILE", help="plan these, nothing else")
    parser.add_argument("--graph", nargs=2, metavar=("KIND", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        restarts._PLAIN_STEPS = sys.maxsize
    ready = "plain" if options.plain else warm_up()
    if options.programs:
        programs(options.programs)
        return 0
    if options.seeds:
        seeds(options.seeds)
        return 0
    if options.graph:
        print(graph_row(options.graph[0], int(options.graph[1])))
        return 0
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {ready}\n")
    if options.only != "graphs":
        published()
    if options.only != "published":
        graphs(options.largest, plain=options.plain)
    return 0


def warm_up() -> str:
    """Compile, or read what was compiled before."""
    begin = time.perf_counter()
    runner = kernel.compiled_runner()
    if runner is None:
        return "no numba"
    limit, restarts._PLAIN_STEPS = restarts._PLAIN_STEPS, -1
    make_plan(Problem(tuple(Buffer(size, start, start + 2, 1) for start, size in enumerate((3, 5, 4, 6, 2, 5, 3)))))
    make_plan(Problem((Buffer(8, 0, 1, 1, 8), Buffer(12, 0, 1, 1))))
    restarts._PLAIN_STEPS = limit
    return f"numba, ready after {time.perf_counter() - begin:.1f} s"


def published() -> None:
    """Plan what others have published."""
    folder = Path(os.environ.get("ETDEV_SHARED", ROOT.parent / "shared")) / "data" / "planner"
    files = sorted(folder.glob("*.csv"))
    if not files:
        print(f"published instances: skipped, there are none in {folder}: set ETDEV_SHARED\n")
        return
    print("| instance | buffers | capacity | bound, B | greedy | best | says | seconds |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |")
    for file in files:
        buffers = tuple(read_buffers(file.read_text(encoding="utf-8").splitlines()))
        stated = file.stem.rpartition(".")[2]
        for capacity in (int(stated), None) if stated.isdigit() else (None,):
            problem = Problem(buffers, capacity)
            greedy = ratio(make_plan(problem, "greedy")) if len(buffers) <= MOST_GREEDY else "-"
            plan, seconds = timed(problem)
            row = f"| {file.stem.partition('.')[0]} | {len(buffers):,} | {capacity or '-'} | {plan.lower_bound:,} |"
            print(f"{row} {greedy} | {ratio(plan)} | {says(problem, plan)} | {seconds:.3f} |", flush=True)
    print()


def programs(files: Sequence[Path]) -> None:
    """Link files again, and time the plan of each that took longest."""
    from etdev.linker import LinkOptions, link_foreign
    from etdev.program import read

    print("| file | plans | buffers | bound, B | best | says | ms |\n| --- | ---: | ---: | ---: | ---: | --- | ---: |")
    longest = []
    for file in files:
        found: list[tuple[float, Problem, Plan]] = []

        def plan(problem: Problem, found: list[tuple[float, Problem, Plan]] = found) -> Sequence[int]:
            made, seconds = timed(problem)
            found.append((seconds, problem, made))
            return made.offsets

        link_foreign(read(file), LinkOptions(planner=plan, planner_name="best"))
        seconds, problem, made = max(found, key=lambda item: item[0])
        longest.append(seconds)
        row = f"| {file} | {len(found)} | {len(problem.buffers):,} | {made.lower_bound:,} | {ratio(made)}"
        print(f"{row} | {says(problem, made)} | {1000 * seconds:.1f} |", flush=True)
    print(f"\nmedian {1000 * statistics.median(longest):.1f} ms, at most {1000 * max(longest):.1f} ms")


def graphs(largest: int, *, plain: bool) -> None:
    """Plan graphs that are made up, each in a process of its own for its memory."""
    print("| graph | tensors | bound, B | greedy | best | says | seconds | growth | memory, MiB |")
    print("| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |")
    for kind in GRAPHS:
        unit = 0.0
        for count in (count for count in SIZES if count <= largest):
            command = [sys.executable, __file__, "--graph", kind, str(count), *(["--plain"] if plain else [])]
            row, seconds, memory = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(";")
            pace = float(seconds) / (count * math.log(count))
            unit = pace if count == 1_000 else unit
            growth = f"{pace / unit:.2f}" if unit else "-"
            print(f"{row} {float(seconds):.3f} | {growth} | {memory.strip()} |", flush=True)


def seeds(count: int) -> None:
    """Plan graphs of 10,000 tensors, with long and short lifetimes, from several seeds."""
    print("| seed | bound, B | best | says | seconds |\n| ---: | ---: | ---: | --- | ---: |")
    found, spent = [], []
    for seed in range(count):
        problem = Problem(tuple(Buffer(size, start, end, ALIGNMENT) for size, start, end in mixed(10_000, seed)))
        plan, seconds = timed(problem)
        found.append(plan.size / plan.lower_bound)
        spent.append(seconds)
        print(f"| {seed} | {plan.lower_bound:,} | {ratio(plan)} | {says(problem, plan)} | {seconds:.1f} |", flush=True)
    for name, values, digits in (("best", found, 4), ("seconds", spent, 1)):
        print(f"{name}: median {statistics.median(values):.{digits}f}, at most {max(values):.{digits}f}")


def graph_row(kind: str, count: int) -> str:
    """Most of a row of the table, seconds, and MiB that the process had at most."""
    problem = Problem(tuple(Buffer(size, start, end, ALIGNMENT) for size, start, end in GRAPHS[kind](count)))
    plan, seconds = timed(problem)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    greedy = ratio(make_plan(problem, "greedy")) if count <= MOST_GREEDY else "-"
    row = f"| {kind} | {count:,} | {plan.lower_bound:,} | {greedy} | {ratio(plan)} | {says(problem, plan)} |"
    return f"{row};{seconds};{memory}"


def timed(problem: Problem) -> tuple[Plan, float]:
    """A plan, and the seconds of this process's work that it took."""
    begin = time.process_time()
    plan = make_plan(problem)
    return plan, time.process_time() - begin


def ratio(plan: Plan) -> str:
    """A plan's size over the lower bound."""
    return f"{plan.size / max(plan.lower_bound, 1):.4f}"


def says(problem: Problem, plan: Plan) -> str:
    """What is known of a plan."""
    if plan.optimal:
        return "optimal"
    return "fits" if problem.capacity is not None and plan.size <= problem.capacity else "gap"


if __name__ == "__main__":
    sys.exit(main())
