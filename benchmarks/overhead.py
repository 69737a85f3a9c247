"""What a build with etdev costs, over the same steps by hand: processor time and memory of the build, at real sizes.

Each side runs in fresh processes with one thread, and the sides alternate. A process makes the model, exports, lowers,
emits, and writes the file. etdev's processes verify only with `--verify`. The host process of the C++ runtime is
compiled before, as it is once per machine. Processor time is user and system time of the
process and its children, from its start to its end. Memory is the largest resident set. Prints a row per model and
backend: medians by hand, then the median of the pairs' ratios with the least and the largest.

    python benchmarks/overhead.py [--only NAME ...] [--backend NAME ...] [--pairs N] [--verify] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import NamedTuple

from zoo_parts.key import versions
from zoo_parts.result import BACKENDS

ROW = "{:18} {:9} {:>9} {:>22} {:>9} {:>22}"


class Cost(NamedTuple):
    """Cost of one process."""

    seconds: float
    """Processor time, user and system, with children."""
    memory: int
    """Largest resident set of the process, or of one of its children if that is larger."""


def by_hand(model: str, backend: str, folder: Path) -> None:
    """Export, lower, emit and write as ExecuTorch's documentation does it."""
    from zoo_parts import plain

    with (folder / "plain.pte").open("wb") as file:
        plain.lower(plain.export(model), backend).to_executorch().write_to_file(file)


def by_etdev(model: str, backend: str, folder: Path, *, verify: bool) -> None:
    """Build the same with etdev, through its Python API."""
    from zoo_parts import PROJECT
    from zoo_parts.steps import declarations

    import etdev

    overrides = declarations(model, folder)
    etdev.build(PROJECT / "etdev.toml", targets=[backend], verify=verify, overrides=overrides, environ={})


def measure(side: str, model: str, backend: str) -> Cost:
    """Return the cost of one side in a process of its own; raises RuntimeError if the process fails."""
    command = [sys.executable, __file__, "--only", model, "--backend", backend, "--side", side]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        # One thread: with more, idle ones that spin would count. Byte code is cached, as it is after the first run.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": f"{folder}/cache"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        process = subprocess.Popen([*command, "--folder", folder], env=environment, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            text = errors.read().decode(errors="replace").split()
            raise RuntimeError(f"{model}, {backend}, {side}: exit code {process.returncode}: {' '.join(text)[-500:]}")
        return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def compare(model: str, backend: str, side: str, pairs: int) -> dict[str, list[Cost]]:
    """Measure both sides in turn, and return the costs of each."""
    costs: dict[str, list[Cost]] = {"hand": [], side: []}
    for pair in range(pairs):
        for each in costs if pair % 2 == 0 else reversed(costs):
            costs[each].append(measure(each, model, backend))
    return costs


def ratios(hand: Sequence[Cost], etdev: Sequence[Cost], part: Callable[[Cost], float]) -> list[float]:
    """Return the ratio of each pair, etdev over by hand."""
    return [part(b) / part(a) for a, b in zip(hand, etdev, strict=True)]


def row(model: str, backend: str, hand: Sequence[Cost], etdev: Sequence[Cost]) -> str:
    """Return a row of the table."""
    time, memory = ratios(hand, etdev, lambda cost: cost.seconds), ratios(hand, etdev, lambda cost: cost.memory)
    seconds, size = median(cost.seconds for cost in hand), median(cost.memory for cost in hand)
    return ROW.format(model, backend, f"{seconds:.1f} s", spread(time), f"{size / 2**20:,.0f} MiB", spread(memory))


def spread(values: Sequence[float]) -> str:
    """Return the median, the least and the largest."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> int:
    """Run the pairs and print the ratios."""
    from architectures import BY_NAME, REAL_SIZES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [item.name for item in REAL_SIZES]
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), default=names, metavar="NAME", help="these models")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=BACKENDS, metavar="NAME", help="these")
    parser.add_argument("--pairs", type=int, default=3, help="processes of each side (default: 3)")
    parser.add_argument("--verify", action="store_true", help="etdev verifies its files, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the costs of all processes to this file")
    parser.add_argument("--side", choices=("hand", "etdev", "verified"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side == "hand":
        by_hand(arguments.only[0], arguments.backend[0], arguments.folder)
        return 0
    if arguments.side:
        by_etdev(arguments.only[0], arguments.backend[0], arguments.folder, verify=arguments.side == "verified")
        return 0
    side = "verified" if arguments.verify else "etdev"
    if arguments.verify:
        from etdev.runtime.native import host_executable

        os.environ["ETDEV_NATIVE_HOST"] = str(host_executable())
    found: dict[str, dict[str, dict[str, list[Cost]]]] = {}
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(versions())}")
    print(ROW.format("model", "backend", "by hand", f"time, {side}", "by hand", f"memory, {side}"))
    for backend in arguments.backend:
        for model in arguments.only:
            costs = compare(model, backend, side, arguments.pairs)
            found.setdefault(backend, {})[model] = costs
            print(row(model, backend, *costs.values()), flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(found, indent=1))
    for backend, models in found.items():
        means = [
            geometric_mean(median(ratios(*costs.values(), part)) for costs in models.values())
            for part in (lambda cost: cost.seconds, lambda cost: cost.memory)
        ]
        print(f"{backend}: geometric means {means[0]:.2f} of the time and {means[1]:.2f} of the memory")
    return 0


if __name__ == "__main__":
    sys.exit(main())
