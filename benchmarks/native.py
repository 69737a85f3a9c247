"""Models of the zoo in ExecuTorch's C++ runtime, against the stock Python runtime and against what the process counts.

Each model is built by etdev for the host and called twice on one state in both runtimes. All outputs have to be equal
bit by bit. Then a process loads the program and calls it with nothing else in it, and counts what it allocates:
planned buffers, pools, heap. `budget.ram` has to be within 5 % of that. Ends with 1 if any of that is not so.

    python benchmarks/native.py [--only NAME ...] [--backend NAME ...]
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from zoo_parts.key import versions
from zoo_parts.steps import build_step

BACKENDS = ("portable", "xnnpack", "openvino")
SHARE = 0.05
"""Largest difference of `budget.ram` from the count."""
ROW = "{:22} {:9} {:7} {:>12} {:>9} {:>9} {:>11} {:>12} {:>12} {:>7}  {}"


def main() -> int:
    """Print a row per model and backend."""
    from architectures import BY_NAME

    from etdev.pipeline.project.quiet import quiet_libraries

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), default=list(BY_NAME), metavar="NAME", help="these")
    parser.add_argument(
        "--backend",
        nargs="+",
        choices=BACKENDS,
        default=BACKENDS[:2],
        metavar="NAME",
        help="default: the first two of portable, xnnpack, openvino",
    )
    arguments = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {', '.join(versions())}")
    titles = ("planned", "method", "temp", "heap", "ram", "counted", "off", "trouble")
    print(ROW.format("model", "backend", "bits", *titles))
    good = total = 0
    for name in arguments.only:
        for backend in arguments.backend:
            with tempfile.TemporaryDirectory() as folder, quiet_libraries():
                right, row = _measure(name, backend, Path(folder))
            print(row, flush=True)
            good, total = good + right, total + 1
    print(f"\n{good} of {total} programs are equal in both runtimes, with a ram within {SHARE:.0%} of the count.")
    return 0 if good == total else 1


def _measure(name: str, backend: str, folder: Path) -> tuple[bool, str]:
    from architectures import BY_NAME, random_inputs

    from etdev.errors import EtdevError
    from etdev.execution.native import open_native
    from etdev.program import read
    from etdev.program.footprint import planned_memory
    from etdev.runtime.native.measure import measure_memory
    from etdev.runtime.stock import ProgramFailureError, StockRuntime

    calls = [random_inputs(BY_NAME[name], call) for call in range(2)]
    try:
        file = build_step(name, backend, [], folder).path
        program = read(file)
        with open_native(program) as native, StockRuntime() as stock:
            native.load(file)
            stock.load(file)
            equal = all(_same(native.call("forward", each), stock.call("forward", each)) for each in calls)
            damages = native.called.damages if native.called else ()
        with open_native(program, watch=False) as native:
            outside = measure_memory(native, program, file, [("forward", calls[0])])["forward"]
        planned = planned_memory(program)["cpu"]
        ram = planned + outside.method_pool + outside.temporary_pool + (outside.heap or 0)
        with open_native(program, watch=False) as native:
            native.load(file)
            native.call("forward", calls[0])
            counted = _counted(native)
    except (EtdevError, ProgramFailureError) as error:
        return False, f"{name:22} {backend:9} {' '.join(str(error).split())}"
    off = abs(ram - counted) / counted if counted else 0.0
    trouble = "; ".join(damages) or ("" if off <= SHARE else "ram is off")
    numbers = (planned, outside.method_pool, outside.temporary_pool, outside.heap or 0, ram, counted)
    row = ROW.format(name, backend, "equal" if equal else "DIFFER", *(f"{n:,}" for n in numbers), f"{off:.1%}", trouble)
    return equal and not trouble, row


def _same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    from etdev.verification.compare import same_bits

    return len(found) == len(expected) and all(map(same_bits, found, expected))


def _counted(native: Any) -> int:
    """Bytes that the process has allocated for one method: its buffers and pools, and the heap at its peak."""
    opened, called = native.opened["forward"], native.called
    buffers = sum(buffer.size for buffer in opened.buffers)
    heap = max(opened.heap_peak, opened.heap + called.heap_peak)
    return int(buffers + called.method_pool + called.temporary_pool + heap)


if __name__ == "__main__":
    sys.exit(main())
