"""How fast a ``.pte`` is on this machine, and how much memory it takes: ``etdev bench``."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Literal

from etdev.pipeline.machine import Machine, describe_machine, peak_resident
from etdev.pipeline.progress import Progress, Silent, StageClock
from etdev.pipeline.result import Part
from etdev.pipeline.run import Asked, chosen_runtime, read_program
from etdev.pipeline.run_results import RuntimeName
from etdev.pipeline.run_workers import OnWorkers, WorkerOptions, keeps_state
from etdev.pipeline.verify.devices import unused
from etdev.pipeline.verify.subject import Runtime
from etdev.program.devices import named_devices
from etdev.program.footprint import planned_memory
from etdev.runtime.errors import RunError
from etdev.runtime.pool import outputs_of
from etdev.runtime.stock import ProgramFailureError, StockRuntime

_RARE = 100
"""Calls below which one in a hundred is the slowest one."""
_BUSY = 0.5
"""Load for each core from which other processes may be in the way."""


@dataclass(frozen=True)
class BenchOptions(Asked):
    """What is measured, and for how long."""

    warmup: int = 3
    """Calls before each measurement, on each worker."""
    calls: int = 20
    """At least so many are measured,"""
    seconds: float = 2.0
    """for at least so long."""
    workers: Sequence[int] = (1,)
    """Numbers of workers whose throughput is measured."""
    transport: str = "process"
    progress: Progress = field(default_factory=Silent)


class LatencyResult(Part):
    """Seconds of a call, of all that were measured. A percentile is the time of a call: the nearest rank."""

    calls: int
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float


class ThroughputResult(Part):
    """What so many workers do at once, each on a core of its own as long as there are cores."""

    workers: int
    calls: int
    seconds: float
    """From the first call to the end of the last."""
    calls_per_second: float
    factor: float | None
    """Over one worker; None if that was not measured."""


class MemoryResult(Part):
    """What the program takes."""

    planned: Mapping[str, int]
    """Bytes per device, as the file says: the tensors of all methods, without constants."""
    resident_before: int | None
    """Most bytes that the process which runs the program had in memory before it was loaded; None if not known here."""
    resident_peak: int | None
    """After all calls for the latency."""


class BenchResult(Part):
    """All that was measured, and where."""

    format: Literal[1] = 1
    file: str
    method: str
    runtime: RuntimeName
    reason: str | None
    """Why not the stock runtime, if it was not asked to run it."""
    notes: tuple[str, ...]
    """What the figures do not say."""
    warmup: int
    latency: LatencyResult
    way: float | None
    """Median of the seconds that inputs and outputs are on the way to the runtime's process and back, which the latency
    leaves out; None where the program runs in this process."""
    transport: str
    throughput: tuple[ThroughputResult, ...]
    memory: MemoryResult
    machine: Machine


def bench_file(file: Path, options: BenchOptions) -> BenchResult:
    """Measure a method of a program. The samples are taken in turn. Raises as :func:`~etdev.pipeline.run.run_file`."""
    program, plan, calls = read_program(file, options)
    machine = describe_machine()
    clock = StageClock(file.name, options.progress)
    with chosen_runtime(program, options.runtime, options.device_map) as (name, reason, runtime):
        process = runtime.process_id if isinstance(runtime, StockRuntime) else os.getpid()
        before = peak_resident(process)
        try:
            runtime.load(file)
            with clock.stage("latency"):
                latency, way = _latency(runtime, options, calls.samples)
            after = peak_resident(process)
            throughput: list[ThroughputResult] = []
            for count in options.workers:
                workers = WorkerOptions(count, options.transport)
                on_workers = OnWorkers(file, program, plan, name, options.device_map, workers, fresh=False)
                with clock.stage(f"{count} worker{'s' * (count != 1)}"):
                    throughput.append(_throughput(on_workers, count, options, calls.samples))
        except ProgramFailureError as error:
            raise RunError(f"the program failed: {error}", where=str(file)) from error
    alone = next((found.calls_per_second for found in throughput if found.workers == 1), None)
    superfluous = unused(named_devices(program), options.device_map)
    return BenchResult(
        file=str(file),
        method=options.method,
        runtime=name,
        reason=reason,
        notes=(
            *(() if superfluous is None else (superfluous,)),
            *_notes(name, options.method, latency.calls, machine, state=keeps_state(program, plan)),
        ),
        warmup=options.warmup,
        latency=latency,
        way=way,
        transport=options.transport,
        throughput=tuple(
            found if alone is None else found.model_copy(update={"factor": found.calls_per_second / alone})
            for found in throughput
        ),
        memory=MemoryResult(planned=planned_memory(program), resident_before=before, resident_peak=after),
        machine=machine,
    )


def _notes(runtime: RuntimeName, method: str, calls: int, machine: Machine, *, state: bool) -> Iterator[str]:
    if machine.load is not None and machine.load > machine.cores * _BUSY:
        yield f"the machine was busy before, with a load of {machine.load:.1f}: the times may be those of a slower one"
    if runtime == "replay":
        yield "the interpreter checks what it does; ExecuTorch's runtime takes other times"
    if state:
        yield f"method {method!r} keeps state: calls go on from those before, and each worker has a state of its own"
    if calls < _RARE:
        yield f"of fewer than {_RARE} calls, p99 is the slowest"


def _latency(
    runtime: Runtime, options: BenchOptions, samples: Sequence[tuple[Any, ...]]
) -> tuple[LatencyResult, float | None]:
    """Of calls one after the other, on all threads that the runtime takes; and the way to its process and back."""
    for sample in islice(cycle(samples), options.warmup):
        runtime.call(options.method, sample)
    times: list[float] = []
    ways: list[float] = []
    for sample in _enough(samples, options):
        began = time.perf_counter()
        runtime.call(options.method, sample)
        whole = time.perf_counter() - began
        times.append(runtime.seconds if isinstance(runtime, StockRuntime) else whole)
        ways.append(whole - times[-1])
    return summarize(times), median(ways) if isinstance(runtime, StockRuntime) else None


def summarize(times: Sequence[float]) -> LatencyResult:
    """The distribution of at least one time."""
    ordered = sorted(times)

    def percentile(percent: int) -> float:
        return ordered[math.ceil(len(ordered) * percent / 100) - 1]

    return LatencyResult(
        calls=len(ordered),
        min=ordered[0],
        p50=percentile(50),
        p95=percentile(95),
        p99=percentile(99),
        max=ordered[-1],
        mean=math.fsum(ordered) / len(ordered),
    )


def _throughput(
    on_workers: OnWorkers, count: int, options: BenchOptions, samples: Sequence[tuple[Any, ...]]
) -> ThroughputResult:
    with on_workers.opened(count, samples, pinned=True) as (_, pool):
        for future in [
            pool.call(options.method, sample, worker=worker)
            for sample in islice(cycle(samples), options.warmup)
            for worker in range(count)
        ]:
            outputs_of(future)
        began = time.perf_counter()
        made = sum(1 for _ in pool.map(options.method, _enough(samples, options)))
        seconds = time.perf_counter() - began
    return ThroughputResult(workers=count, calls=made, seconds=seconds, calls_per_second=made / seconds, factor=None)


def _enough(samples: Sequence[tuple[Any, ...]], options: BenchOptions) -> Iterator[tuple[Any, ...]]:
    """The samples in turn, until there are as many as are asked for and the time is over."""
    end = time.perf_counter() + options.seconds
    for number, sample in enumerate(cycle(samples)):
        if number >= options.calls and time.perf_counter() >= end:
            return
        yield sample
