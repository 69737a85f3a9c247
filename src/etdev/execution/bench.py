"""Measurement of a ``.pte``'s speed and memory on this machine, for ``etdev bench``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from etdev.errors import UsageError
from etdev.execution.availability import describe_unused
from etdev.execution.call_inputs import Calls
from etdev.execution.native import open_native
from etdev.execution.run import CallSpec, chosen_runtime, program_failed, read_program
from etdev.execution.run_results import RuntimeName
from etdev.execution.throughput import ThroughputResult, batch_size, compare, measure_throughput
from etdev.execution.timing import Thoroughness, measure_latency
from etdev.execution.workers import OnWorkers, WorkerOptions, keeps_state
from etdev.pipeline.project.machine import Machine, describe_load, describe_machine, peak_resident
from etdev.pipeline.project.progress import Progress, Silent, StageClock
from etdev.pipeline.results.result import LatencyResult, Part
from etdev.pipeline.results.result_parts import MemoryOutside
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.program.footprint import planned_memory
from etdev.runtime.native import NativeRuntime
from etdev.runtime.native.measure import measure_memory
from etdev.runtime.stock import ProgramFailureError, StockRuntime

_RARE = 100
"""Minimum number of calls for p99. With fewer calls, p99 is the time of the slowest call."""


@dataclass(frozen=True)
class BenchOptions(CallSpec):
    """Options of ``etdev bench``: the method, the inputs, the number of calls and the workers."""

    thoroughness: Thoroughness = field(default_factory=Thoroughness)
    workers: Sequence[int] = (1,)
    """Numbers of workers to measure; the throughput is measured once for each number."""
    transport: str = "process"
    threads: int | None = None
    """Number of threads of the stock runtime's pool for the latency; None for the runtime's default."""
    progress: Progress = field(default_factory=Silent)


class MemoryResult(Part):
    """Memory of the program, and resident memory of the process that runs the program."""

    planned: Mapping[str, int]
    """Maps a device to the size in bytes of its planned buffers."""
    resident_before: int | None
    """Peak resident bytes of the runtime's process before the program is loaded; None if unknown."""
    outside: MemoryOutside | None = None
    """Memory of the method outside of its planned buffers; None for runtimes other than the native one."""
    resident_peak: int | None
    """Peak resident bytes of the runtime's process after the latency measurement; None if unknown."""


class BenchResult(Part):
    """All measurements, with a description of the machine."""

    format: Literal[1] = 1
    file: str
    method: str
    runtime: RuntimeName
    reason: str | None
    """Reason why etdev chose the replay; None for another runtime or if the user chose the replay."""
    inputs: str | None
    """Description of the origin of the inputs; None if the user passed them."""
    notes: tuple[str, ...]
    """Notes on the reliability of the figures."""
    warmup: int
    threads: int | None
    """Number of threads of the runtime's pool during the latency measurement; None if unknown."""
    latency: LatencyResult
    way: float | None
    """Median seconds to send inputs to the runtime's process and to receive outputs. The latency excludes this time.

    None if the program runs in this process.
    """
    transport: str
    throughput: tuple[ThroughputResult, ...]
    memory: MemoryResult
    machine: Machine


def bench_file(file: Path, options: BenchOptions) -> BenchResult:
    """Measure the speed and memory of a method of a program. The calls cycle through the samples.

    Raises the errors of :func:`~etdev.execution.run.run_file`.
    """
    program, plan, calls = read_program(file, options)
    machine = describe_machine()
    clock = StageClock(file.name, options.progress)
    with chosen_runtime(program, options, watch=False) as (name, reason, runtime):
        process = runtime.process_id if isinstance(runtime, StockRuntime | NativeRuntime) else os.getpid()
        before = peak_resident(process)
        threads = _set_threads(runtime, options.threads)
        try:
            runtime.load(file, data=options.data)
            with clock.stage("latency"):
                latency, way = measure_latency(runtime, options.method, calls.samples, options.thoroughness)
            after = peak_resident(process)
            outside = _outside(file, program, calls, options) if name == "native" else None
            throughput: list[ThroughputResult] = []
            for count in options.workers:
                workers = WorkerOptions(count, options.transport)
                on_workers = OnWorkers(
                    file,
                    program,
                    plan,
                    name,
                    options.device_map,
                    workers,
                    fresh=False,
                    data=options.data,
                    libraries=options.libraries,
                )
                with clock.stage(f"{count} worker{'s' * (count != 1)}"):
                    batch = batch_size(latency.mean, count, options.thoroughness)
                    throughput.append(measure_throughput(on_workers, count, calls.samples, options.thoroughness, batch))
        except ProgramFailureError as error:
            raise program_failed(error, file, plan, options) from error
    return BenchResult(
        file=str(file),
        method=options.method,
        runtime=name,
        reason=reason,
        inputs=calls.source,
        notes=(
            *describe_unused(named_devices(program), options.device_map),
            *_notes(name, options.method, latency.calls, machine, state=keeps_state(program, plan)),
        ),
        warmup=options.thoroughness.warmup,
        threads=threads,
        latency=latency,
        way=way,
        transport=options.transport,
        throughput=compare(throughput, machine),
        memory=MemoryResult(
            planned=planned_memory(program), outside=outside, resident_before=before, resident_peak=after
        ),
        machine=machine,
    )


def _set_threads(runtime: object, count: int | None) -> int | None:
    """Set the number of threads of the runtime's pool, unless it is None. Return the number, None if unknown.

    Raises :class:`~etdev.errors.UsageError` if the number cannot be set.
    """
    if isinstance(runtime, StockRuntime):
        return runtime.set_threads(count)
    if count is not None:
        raise UsageError(
            "only the stock runtime has a number of threads that can be set",
            where="--threads",
            hint="omit --threads, or choose the stock runtime (--runtime stock) if it can run the program",
        )
    return None


def _outside(file: Path, program: Program, calls: Calls, options: BenchOptions) -> MemoryOutside:
    """Start another native runtime, make the first call, and return the memory outside of the planned buffers."""
    with open_native(program, options.device_map, libraries=options.libraries, watch=False) as runtime:
        found = measure_memory(runtime, program, file, [(options.method, calls.samples[0])], data=options.data)
    figures = found[options.method]
    return MemoryOutside(options.method, figures.method_pool, figures.temporary_pool, figures.heap)


def _notes(runtime: RuntimeName, method: str, calls: int, machine: Machine, *, state: bool) -> Iterator[str]:
    if busy := describe_load(machine):
        yield busy
    if runtime == "replay":
        yield "the interpreter checks each step, so the times in ExecuTorch's runtime are different"
    if state:
        yield (
            f"method {method!r} keeps state: each call continues from the state of the previous call, and each "
            "worker has its own state"
        )
    if calls < _RARE:
        yield f"with fewer than {_RARE} calls, p99 is the slowest call"
