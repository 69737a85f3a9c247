"""Processor time of two files in the stock runtime, in pairs: ``python -m zoo_parts.latency MODEL FIRST SECOND PAIRS``.

Both are loaded in one process of one thread, and called in turn, each being the first of every other
pair, so that whatever else the machine does meets both. Prints a JSON object: the times of both in seconds.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

from etdev import compat

PAIRS = 21
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Of torch's matrix multiplication, which the runtime's optimized kernels call; the runtime's own pool is set apart.

With more, its threads wait for each other busily: on a machine that does other things too, one call of the same file
took 0.02 s, the next 6 s.
"""
_SHORTEST = 0.02
"""Seconds that are timed at least; a faster program is called several times."""
_LONGEST = 120.0
"""Seconds that all pairs may take; of slower programs fewer pairs are timed, and three at least."""


def time_pairs(name: str, first: Path, second: Path, pairs: int = PAIRS) -> tuple[list[float], list[float]]:
    """Seconds per call of the two files, pair by pair. Raises :class:`RuntimeError` if they do not run."""
    command = [sys.executable, "-m", "zoo_parts.latency", name, str(first), str(second), str(pairs)]
    place, environment = Path(__file__).parent.parent, os.environ | ONE_THREAD
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["first"], found["second"]


def ratio_bounds(ratios: Sequence[float]) -> tuple[float, float]:
    """The one-sided 95 % bounds, lower and upper, of the median that the ratios are drawn from.

    An order statistic: the number of ratios below the median is binomial, whatever their distribution
    (W. J. Conover, Practical Nonparametric Statistics, 3.2).
    """
    from math import comb

    ordered = sorted(ratios)
    below, weight, total = 0, 0, 2 ** len(ordered)
    while below < len(ordered) // 2 and (weight + comb(len(ordered), below)) / total <= 0.05:
        weight += comb(len(ordered), below)
        below += 1
    if not below:
        return 0.0, float("inf")
    return ordered[below - 1], ordered[-below]


def _time(call: Callable[[], Any], repeats: int) -> float:
    begin = process_time()
    for _ in range(repeats):
        call()
    return (process_time() - begin) / repeats


def _load(library: Any, file: str, inputs: Sequence[Any]) -> tuple[Callable[[], Any], Any]:
    """What calls the file's method, and what has to live as long."""
    program = library._load_program(file)
    method = program.load_method("forward")
    return lambda: method(inputs), program


def main() -> None:
    """Entry of the process that measures."""
    import torch  # noqa: F401 - the runtime is linked against its libraries
    from architectures import BY_NAME, random_inputs

    library = importlib.import_module(compat.runtime_module())
    import zoo_parts  # noqa: F401 - makes the project's modules importable

    library._unsafe_reset_threadpool(1)
    name, *files, pairs = sys.argv[1:]
    inputs = random_inputs(BY_NAME[name], 0)
    calls, alive = zip(*(_load(library, file, inputs) for file in files), strict=True)
    repeats, seconds = [], 0.0
    for call in calls:
        first = _time(call, 1)  # Packs weights, and touches memory.
        again = first if first > 1 else _time(call, 1)
        repeats.append(max(1, round(_SHORTEST / max(again, 1e-6))))
        seconds += again * repeats[-1]
    times: tuple[list[float], list[float]] = ([], [])
    gc.disable()
    for pair in range(min(int(pairs), max(3, int(_LONGEST / seconds)))):
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            times[which].append(_time(calls[which], repeats[which]))
    del alive
    print(json.dumps({"first": times[0], "second": times[1]}))


if __name__ == "__main__":
    main()
