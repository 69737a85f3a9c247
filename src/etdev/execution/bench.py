"""Measurement of a ``.pte``'s speed and memory on this machine, for ``etdev bench``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from etdev.errors import MissingRequirementError, UsageError
from etdev.execution.availability import describe_unused
from etdev.execution.call_inputs import Calls
from etdev.execution.comparison import RatioResult, measure_in_turn
from etdev.execution.native import open_native
from etdev.execution.run import CallSpec, chosen_runtime, program_failed, read_program
from etdev.execution.run_results import RuntimeName
from etdev.execution.runtimes import Runtime
from etdev.execution.throughput import ThroughputResult, batch_size, compare, measure_throughput
from etdev.execution.timing import Thoroughness, is_separate, measure_latency, timed_call
from etdev.execution.workers import OnWorkers, WorkerOptions, keeps_state
from etdev.pipeline.project import Project
from etdev.pipeline.project.machine import Machine, describe_load, describe_machine, peak_resident
from etdev.pipeline.project.progress import Progress, Silent, StageClock
from etdev.pipeline.results.result import LatencyResult, Part
from etdev.pipeline.results.result_parts import MemoryOutside
from etdev.program import Program
from etdev.program import model as m
from etdev.program.devices import named_devices
from etdev.program.footprint import planned_memory
from etdev.runtime.native import NativeRuntime
from etdev.runtime.native.measure import measure_memory
from etdev.runtime.stock import ProgramFailureError, StockRuntime

_RARE = 100
"""Minimum number of calls for p99. With fewer calls, p99 is the time of the slowest call."""


@dataclass(frozen=True)
class Against:
    """The other program of a comparison."""

    file: Path
    data: tuple[Path, ...] = ()
    libraries: tuple[Path, ...] = ()
    project: Project | None = None
    """Project of the other program's target; None if the user selected a file."""


@dataclass(frozen=True)
class BenchOptions(CallSpec):
    """Options of ``etdev bench``: the method, the inputs, the number of calls and the workers."""

    thoroughness: Thoroughness = field(default_factory=Thoroughness)
    workers: Sequence[int] = (1,)
    """Numbers of workers to measure; the throughput is measured once for each number."""
    transport: str = "process"
    threads: int | None = None
    """Number of threads of the stock runtime's pool for the latency; None for the runtime's default."""
    against: Against | None = None
    """Program to compare with; None to measure one program."""
    progress: Progress = field(default_factory=Silent)


class MemoryResult(Part):
    """Memory of the program, and resident memory of the process that runs the program."""

    file: int
    """Size in bytes of the ``.pte`` and its data files."""
    planned: Mapping[str, int]
    """Maps a device to the size in bytes of its planned buffers."""
    resident_before: int | None
    """Peak resident bytes of the runtime's process before the program is loaded; None if unknown."""
    outside: MemoryOutside | None = None
    """Memory of the method outside of its planned buffers; None for runtimes other than the native one."""
    resident_peak: int | None
    """Peak resident bytes of the runtime's process after the latency measurement; None if unknown."""


class AgainstResult(Part):
    """Measurements of the other program, whose calls alternate with those of the first program."""

    file: str
    inputs: str | None
    latency: LatencyResult
    ratio: RatioResult
    """Latency of the first program, divided by the latency of this one."""
    memory: MemoryResult


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
    against: AgainstResult | None = None
    """Measurements of another program; None if there is no other program."""
    transport: str
    throughput: tuple[ThroughputResult, ...]
    memory: MemoryResult
    machine: Machine


def bench_file(file: Path, options: BenchOptions) -> BenchResult:
    """Measure the speed and memory of a method of a program. The calls cycle through the samples.

    With ``options.against``, the calls for the latency alternate with calls of that program.

    Raises the errors of :func:`~etdev.execution.run.run_file`. Raises :class:`~etdev.errors.UsageError` if the programs
    have different numbers of samples.
    """
    machine = describe_machine()
    clock = StageClock(file.name, options.progress)
    with ExitStack() as stack:
        subject = stack.enter_context(_opened(file, options))
        other = None if options.against is None else _open_other(stack, subject, options.against)
        threads = _set_threads(subject.runtime, options.threads)
        if other is not None:
            _set_threads(other.runtime, options.threads)
        with clock.stage("latency"):
            if other is None:
                with subject.failures():
                    subject.load()
                    latency, way = measure_latency(
                        subject.runtime, options.method, subject.calls.samples, options.thoroughness
                    )
                against = None
            else:
                latency, way, against = _compared(subject, other)
        memory = subject.memory(alone=other is None)
        throughput = [_on_workers(subject, count, latency, clock) for count in options.workers]
    return BenchResult(
        file=str(file),
        method=options.method,
        runtime=subject.name,
        reason=subject.reason,
        inputs=subject.calls.source,
        notes=(
            *describe_unused(named_devices(subject.program), options.device_map),
            *_notes(subject, latency.calls, machine),
        ),
        warmup=options.thoroughness.warmup,
        threads=threads,
        latency=latency,
        way=way,
        against=against,
        transport=options.transport,
        throughput=compare(throughput, machine),
        memory=memory,
        machine=machine,
    )


@dataclass(frozen=True)
class _Subject:
    """A program to measure, with its runtime and the inputs of its calls."""

    file: Path
    options: BenchOptions
    program: Program
    plan: m.ExecutionPlan
    calls: Calls
    name: RuntimeName
    reason: str | None
    runtime: Runtime
    resident_before: int | None

    def load(self) -> None:
        self.runtime.load(self.file, data=self.options.data)

    def call(self, sample: tuple[Any, ...]) -> tuple[float, float]:
        """Make a call. Return the seconds of the call, and the seconds of the transfer."""
        with self.failures():
            return timed_call(self.runtime, self.options.method, sample)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Raise :class:`~etdev.runtime.errors.RunError` if the program fails in this block."""
        try:
            yield
        except ProgramFailureError as error:
            raise program_failed(error, self.file, self.plan, self.options) from error

    def memory(self, *, alone: bool) -> MemoryResult:
        """Return the memory of the program. Without ``alone``, the replay's process also runs another program."""
        known = alone or is_separate(self.runtime)
        with self.failures():
            outside = _outside(self.file, self.program, self.calls, self.options) if self.name == "native" else None
        return MemoryResult(
            file=sum(path.stat().st_size for path in (self.file, *self.options.data)),
            planned=planned_memory(self.program),
            outside=outside,
            resident_before=self.resident_before if known else None,
            resident_peak=peak_resident(_process(self.runtime)) if known else None,
        )


@contextmanager
def _opened(file: Path, options: BenchOptions) -> Iterator[_Subject]:
    program, plan, calls = read_program(file, options)
    with chosen_runtime(program, options, watch=False) as (name, reason, runtime):
        before = peak_resident(_process(runtime))
        yield _Subject(file, options, program, plan, calls, name, reason, runtime, before)


def _open_other(stack: ExitStack, subject: _Subject, against: Against) -> _Subject:
    """Open the other program in a runtime of the same kind. Samples of a config are used for both programs."""
    options = replace(
        subject.options,
        runtime=subject.name,
        data=against.data,
        libraries=against.libraries or subject.options.libraries,
        project=against.project or subject.options.project,
    )
    try:
        other = stack.enter_context(_opened(against.file, options))
    except MissingRequirementError as error:
        hint = error.hint
        if subject.options.runtime is None and subject.name == "stock":
            hint = "use `--runtime replay` to measure both with the interpreter"
        raise MissingRequirementError(f"{against.file}: {error.message}", where="--against", hint=hint) from error
    except UsageError as error:
        hint = None if error.hint is None else error.hint.replace("--data ", "--against-data ")
        raise UsageError(f"{against.file}: {error.message}", where="--against", hint=hint) from error
    numbers = len(subject.calls.samples), len(other.calls.samples)
    if numbers[0] != numbers[1]:
        raise UsageError(
            f"{subject.file} has {numbers[0]:,} samples, but {against.file} has {numbers[1]:,}",
            where="--against",
            hint="pass the inputs with `--input`, or use `--random`",
        )
    return other


def _compared(subject: _Subject, other: _Subject) -> tuple[LatencyResult, float | None, AgainstResult]:
    """Measure both programs in turn. Return the latency and the transfer time of the first, and the comparison."""
    for each in (subject, other):
        with each.failures():
            each.load()
    found = measure_in_turn(
        (subject.call, other.call), (subject.calls.samples, other.calls.samples), subject.options.thoroughness
    )
    against = AgainstResult(
        file=str(other.file),
        inputs=other.calls.source,
        latency=found.latencies[1],
        ratio=found.ratio,
        memory=other.memory(alone=False),
    )
    return found.latencies[0], found.ways[0] if is_separate(subject.runtime) else None, against


def _on_workers(subject: _Subject, count: int, latency: LatencyResult, clock: StageClock) -> ThroughputResult:
    """Measure the throughput of ``count`` workers."""
    options = subject.options
    on_workers = OnWorkers(
        subject.file,
        subject.program,
        subject.plan,
        subject.name,
        options.device_map,
        WorkerOptions(count, options.transport),
        fresh=False,
        data=options.data,
        libraries=options.libraries,
    )
    batch = batch_size(latency.mean, count, options.thoroughness)
    with clock.stage(f"{count} worker{'s' * (count != 1)}"), subject.failures():
        return measure_throughput(on_workers, count, subject.calls.samples, options.thoroughness, batch)


def _process(runtime: Runtime) -> int:
    """Return the id of the process that runs programs of this runtime."""
    return runtime.process_id if isinstance(runtime, StockRuntime | NativeRuntime) else os.getpid()


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


def _notes(subject: _Subject, calls: int, machine: Machine) -> Iterator[str]:
    if busy := describe_load(machine):
        yield busy
    if subject.name == "replay":
        yield "the interpreter checks each step, so the times in ExecuTorch's runtime are different"
    if keeps_state(subject.program, subject.plan):
        yield (
            f"method {subject.plan.name!r} keeps state: each call continues from the state of the previous call, and "
            "each worker has its own state"
        )
    if calls < _RARE:
        yield f"with fewer than {_RARE} calls, p99 is the slowest call"
