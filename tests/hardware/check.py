"""CUDA allocation verification on a real device, of programs that were built before. One command:

    python tests/hardware/check.py build/hardware

Needs Python, torch and etdev's base packages; no executorch, no pytest and no network. ``make_files.py`` builds the
programs. With ``--simulate`` it runs on simulated devices, which says nothing of a GPU. Where there is one GPU only, it
stands for both devices of the programs.
"""

from __future__ import annotations

import datetime
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from etdev.devices import Device, DeviceType
from etdev.program import Program, read
from etdev.runtime.allocator import Registry
from etdev.runtime.cuda import cuda_is_visible
from etdev.runtime.device_map import parse_device_map, registry_for
from etdev.runtime.replay import ReplayRuntime
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.allocations import Allocations, check_allocations

TOLERANCE = 1e-4
"""Of an output's largest magnitude."""
SIMULATED = "cuda:0=sim,cuda:1=sim"


@dataclass(frozen=True)
class Checked:
    """What was found of one program."""

    name: str
    memory: Allocations
    calls: int
    error: float
    """Largest, relative to the output's largest magnitude."""
    seconds: float
    """Of all calls."""
    problems: tuple[str, ...]


def check_files(files: Sequence[Path], registry: Registry) -> list[Checked]:
    """Each program: its memory on the devices, then its calls there."""
    found = []
    for file in files:
        program = read(file)
        memory = check_allocations(program, registry, alignment=16)
        before = {kind: registry.get(kind).counters.live_allocations for kind in registry.types()}
        with np.load(file.with_suffix(".npz"), allow_pickle=False) as arrays:
            calls, error, seconds, problems = _replay(program, dict(arrays), registry)
        after = {kind: registry.get(kind).counters.live_allocations for kind in registry.types()}
        leaks = [f"{after[kind] - before[kind]} allocations on {kind.name} are left" for kind in after]
        left = [text for text, kind in zip(leaks, after, strict=True) if after[kind] != before[kind]]
        found.append(Checked(file.stem, memory, calls, error, seconds, (*memory.problems, *problems, *left)))
    return found


def _replay(program: Program, arrays: dict[str, np.ndarray], registry: Registry) -> tuple[int, float, float, list[str]]:
    """How many calls, the largest relative error, seconds, and what is wrong."""
    count = sum(name.endswith(".in") for name in arrays)
    worst, seconds, problems = 0.0, 0.0, []
    with ReplayRuntime(registry=registry) as runtime:
        try:
            runtime.load(program)
            for number in range(count):
                began = time.perf_counter()
                outputs = runtime.call("forward", (torch.from_numpy(arrays[f"{number}.in"]),))
                seconds += time.perf_counter() - began
                for position, output in enumerate(outputs):
                    error = _error(output, torch.from_numpy(arrays[f"{number}.out.{position}"]))
                    worst = max(worst, error)
                    if not error <= TOLERANCE:
                        problems.append(f"call {number}, output {position} is off by {error:.3g} of its largest value")
        except ProgramFailureError as failure:
            problems.append(str(failure))
    return count, worst, seconds, problems


def _error(found: torch.Tensor, expected: torch.Tensor) -> float:
    if found.shape != expected.shape or not bool(found.isfinite().all()):
        return float("inf")
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-6))


def table(found: Iterable[Checked]) -> Iterator[str]:
    """A line per buffer and per program, in Markdown."""
    yield "| program | device | buffer | bytes | address | extents | written | seconds |"
    yield "|---|---|---|---|---|---|---|---|"
    found = list(found)
    for item in found:
        for buffer in item.memory.buffers:
            yield (
                f"| {item.name} | {buffer.device} | {buffer.index} | {buffer.size:,} | {buffer.memory}, aligned to "
                f"{buffer.alignment:,} | {buffer.extents} | {buffer.written:,} | {buffer.seconds:.4f} |"
            )
    yield ""
    yield "| program | calls | largest error | seconds | free before, during, after | answer |"
    yield "|---|---|---|---|---|---|"
    for item in found:
        free = "; ".join(
            f"{memory.device} {memory.free_before}, {memory.free_during}, {memory.free_after}"
            for memory in item.memory.devices
        )
        answer = "; ".join(item.problems) or "passed"
        yield f"| {item.name} | {item.calls} | {item.error:.2g} | {item.seconds:.3f} | {free} | {answer} |"


def real_registry() -> Registry:
    """CUDA devices, one of which stands for both if there is only one."""
    count = torch.cuda.device_count()
    return registry_for({Device(DeviceType.CUDA, index): f"cuda:{index % count}" for index in range(2)})


def describe_machine() -> str:
    """GPUs, driver, versions and date."""
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0].strip()
    except FileNotFoundError:
        driver = "unknown"
    today = datetime.datetime.now(datetime.UTC).date()
    versions = f"CUDA {torch.version.cuda}; torch {torch.__version__}; Python {platform.python_version()}"
    return f"{names}; driver {driver}; {versions}; {today}"


def main(arguments: Sequence[str]) -> int:
    """0 if everything holds, 1 if not, 3 if there is nothing to check with."""
    simulate = "--simulate" in arguments
    folder = Path(next((item for item in arguments if not item.startswith("-")), "build/hardware"))
    files = sorted(folder.glob("*.pte"))
    if not files:
        print(f"skipped: {folder} holds no programs; make_files.py builds them")
        return 3
    if not simulate and not cuda_is_visible():
        print("skipped: there is no CUDA device")
        return 3
    found = check_files(files, registry_for(parse_device_map(SIMULATED)) if simulate else real_registry())
    print("simulated devices" if simulate else describe_machine(), end="\n\n")
    print("\n".join(table(found)))
    return int(any(item.problems for item in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
