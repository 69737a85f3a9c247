"""How fast a ``.pte`` is on this machine, and how much memory it takes: ``etdev bench``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal

from etdev.pipeline.latency import Thoroughness, enough, measure_latency
from etdev.pipeline.machine import Machine, describe_load, describe_machine, peak_resident
from etdev.pipeline.progress import Progress, Silent, StageClock
from etdev.pipeline.result import LatencyResult, Part
from etdev.pipeline.run import Asked, chosen_runtime, program_failed, read_program
from etdev.pipeline.run_results import RuntimeName
from etdev.pipeline.run_workers import OnWorkers, WorkerOptions, keeps_state
from etdev.pipeline.verify.devices import unused
from etdev.program.devices import named_devices
from etdev.program.footprint import planned_memory
from etdev.runtime.pool import outputs_of
from etdev.runtime.stock import ProgramFailureError, StockRuntime

_RARE = 100
"""Calls below which one in a hundred is the slowest one."""


@dataclass(frozen=True)
class BenchOptions(Asked):
    """What is measured, and for how long."""

    thoroughness: Thoroughness = field(default_factory=Thoroughness)
    workers: Sequence[int] = (1,)
    """Numbers of workers whose throughput is measured."""
    transport: str = "process"
    progress: Progress = field(default_factory=Silent)


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
    inputs: str | None
    """What the inputs come from, in words; None if they were given."""
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
            runtime.load(file, data=options.data)
            with clock.stage("latency"):
                latency, way = measure_latency(runtime, options.method, calls.samples, options.thoroughness)
            after = peak_resident(process)
            throughput: list[ThroughputResult] = []
            for count in options.workers:
                workers = WorkerOptions(count, options.transport)
                on_workers = OnWorkers(
                    file, program, plan, name, options.device_map, workers, fresh=False, data=options.data
                )
                with clock.stage(f"{count} worker{'s' * (count != 1)}"):
                    throughput.append(_throughput(on_workers, count, options, calls.samples))
        except ProgramFailureError as error:
            raise program_failed(error, file, plan, options) from error
    alone = next((found.calls_per_second for found in throughput if found.workers == 1), None)
    superfluous = unused(named_devices(program), options.device_map)
    return BenchResult(
        file=str(file),
        method=options.method,
        runtime=name,
        reason=reason,
        inputs=calls.source,
        notes=(
            *(() if superfluous is None else (superfluous,)),
            *_notes(name, options.method, latency.calls, machine, state=keeps_state(program, plan)),
        ),
        warmup=options.thoroughness.warmup,
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
    if busy := describe_load(machine):
        yield busy
    if runtime == "replay":
        yield "the interpreter checks what it does; ExecuTorch's runtime takes other times"
    if state:
        yield f"method {method!r} keeps state: calls go on from those before, and each worker has a state of its own"
    if calls < _RARE:
        yield f"of fewer than {_RARE} calls, p99 is the slowest"


def _throughput(
    on_workers: OnWorkers, count: int, options: BenchOptions, samples: Sequence[tuple[Any, ...]]
) -> ThroughputResult:
    with on_workers.opened(count, samples, pinned=True) as (_, pool):
        for future in [
            pool.call(options.method, sample, worker=worker)
            for sample in islice(cycle(samples), options.thoroughness.warmup)
            for worker in range(count)
        ]:
            outputs_of(future)
        began = time.perf_counter()
        made = sum(1 for _ in pool.map(options.method, enough(samples, options.thoroughness)))
        seconds = time.perf_counter() - began
    return ThroughputResult(workers=count, calls=made, seconds=seconds, calls_per_second=made / seconds, factor=None)
