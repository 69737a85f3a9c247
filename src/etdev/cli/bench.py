"""The command ``etdev bench``, which measures the speed and memory of a ``.pte`` on this machine."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from etdev.cli.calls import (
    RUNTIME_PHRASES,
    InputsOption,
    MethodOption,
    NativeLibraryOption,
    OneTargetOption,
    ProgramArgument,
    RandomOption,
    RuntimeOption,
    SeedOption,
    TransportOption,
    check_runtime,
    check_transport,
    find_program,
    is_worker_count,
    named_program,
    native_libraries,
    refuse_unused_profile,
)
from etdev.cli.common import (
    ConfigOption,
    DataOption,
    DeviceMapOption,
    OutputOption,
    ProfileOption,
    QuietOption,
    complete_target,
)
from etdev.cli.rendering.output import TEXT, note, paint, parse_outputs
from etdev.cli.rendering.text import columns, count, line, lines, printable
from etdev.config.limits import MOST_WORKERS
from etdev.errors import UsageError
from etdev.units import format_duration, format_size

if TYPE_CHECKING:
    from etdev.execution.bench import Against, AgainstResult, BenchResult, MemoryResult
    from etdev.execution.run_results import RuntimeName
    from etdev.execution.throughput import ThroughputResult
    from etdev.pipeline.project.machine import Machine
    from etdev.pipeline.results.result import LatencyResult

_LONGEST = 86_400
_MOST_THREADS = 1_024
_CALLS, _SECONDS = 20, 2.0
_SHOWN_VERSIONS = ("torch", "executorch", "etdev")


def bench(
    program: ProgramArgument = None,
    target: OneTargetOption = None,
    inputs: InputsOption = None,
    random: RandomOption = False,
    seed: SeedOption = 0,
    method: MethodOption = "forward",
    data: DataOption = None,
    runtime: RuntimeOption = None,
    native_library: NativeLibraryOption = None,
    device_map: DeviceMapOption = None,
    warmup: Annotated[
        int, typer.Option(metavar="N", help="Number of calls before each measurement, to warm up.", min=0)
    ] = 3,
    calls: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help=f"Minimum number of calls to measure. Default: {_CALLS}, for at least {_SECONDS:g} s.",
            min=1,
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Minimum duration of a measurement in seconds, also if --calls is set.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Numbers of workers for the throughput, such as 1,2,4. Default: 1 and the number of cores.",
            show_default=False,
        ),
    ] = None,
    transport: TransportOption = None,
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of threads of the stock runtime for the latency. Default: the runtime's own.",
            min=1,
            max=_MOST_THREADS,
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|TARGET",
            help="Another .pte or built target to compare the latency with. The calls of both programs alternate. "
            "Workers are measured only with --workers.",
            autocompletion=complete_target,
            show_default=False,
        ),
    ] = None,
    against_data: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A data file of the program of --against. Repeatable.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> int:
    """Measure a method of a .pte on this machine: latency, throughput of workers, memory.

    With --against, compare two programs. Figures that cannot be measured are marked as unknown. Without --input or
    --random, a target is called with the samples in the config, so code of the project runs. Formats of --output: text,
    json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    found = named_program(program, target, config, data, profile=profile, alone=against is None)
    outputs.refuse(found.file, *found.data)
    chosen = check_runtime(runtime)
    other = _against(against, against_data, config, profile, chosen)
    if other is not None:
        refuse_unused_profile(profile, found, other)
        outputs.refuse(other.file, *other.data)
    counts = () if workers is None and other is not None else _workers(workers)
    time = _seconds(seconds)
    from etdev.cli.rendering.build_progress import shown_progress
    from etdev.execution.bench import BenchOptions, bench_file
    from etdev.execution.timing import Thoroughness
    from etdev.pipeline.project.options import check_device_map

    with shown_progress(quiet=quiet) as progress:
        result = bench_file(
            found.file,
            BenchOptions(
                method=method,
                inputs=tuple(inputs or ()),
                random=random,
                seed=seed,
                runtime=chosen,
                device_map=check_device_map(device_map),
                data=found.data,
                libraries=native_libraries(native_library, chosen, found.project),
                project=found.project,
                thoroughness=Thoroughness(
                    warmup=warmup,
                    calls=calls or (_CALLS if time is None else 1),
                    seconds=time if time is not None else 0 if calls else _SECONDS,
                ),
                workers=counts,
                transport=check_transport(transport),
                threads=threads,
                against=other,
                progress=progress,
                notify=lambda text: note(text, quiet=quiet),
            ),
        )
    outputs.write({TEXT: lambda: render(result), "json": lambda: result.model_dump_json(indent=2)})
    return 0


def _against(
    name: str | None,
    data: Sequence[Path] | None,
    config: Path | None,
    profile: str | None,
    runtime: RuntimeName | None,
) -> Against | None:
    """Return the program of ``--against``; None without this option."""
    if name is None:
        if data:
            raise UsageError("there is no other program", where="--against-data", hint="add `--against FILE`")
        return None
    from etdev.execution.bench import Against

    try:
        found = find_program(name, config, data, profile=profile)
    except UsageError as error:
        raise UsageError(error.message, where="--against", hint=error.hint) from error
    libraries = native_libraries(None, runtime, found.project)
    return Against(found.file, found.data, libraries, found.project)


def _seconds(given: float | None) -> float | None:
    if given is not None and not (math.isfinite(given) and 0 < given <= _LONGEST):
        raise UsageError(
            f"a measurement cannot take {given:g} s",
            where="--seconds",
            hint=f"use a number of seconds above 0, and at most {_LONGEST:,}",
        )
    return given


def _workers(text: str | None) -> tuple[int, ...]:
    """Return the numbers of workers in a text such as ``1,2,4``. Without a text, return 1 and the number of cores."""
    if text is None:
        from etdev.pipeline.project.machine import usable_cores

        return tuple(sorted({1, usable_cores()}))
    parts = [part.strip() for part in text.split(",")]
    wrong = next((part for part in parts if not is_worker_count(part)), None)
    if wrong is not None:
        raise UsageError(
            f"{wrong!r} is not a number of workers",
            where="--workers",
            hint=f"use numbers from 1 to {MOST_WORKERS}, separated by commas",
        )
    return tuple(dict.fromkeys(map(int, parts)))


def render(result: BenchResult, stream: TextIO | None = None) -> str:
    """Return the result as text: a heading, the measurements and the machine."""
    stream = stream or sys.stdout
    heading = paint(printable(result.file), stream=stream)
    how = RUNTIME_PHRASES[result.runtime]
    blocks = [f"{heading}  {printable(result.method)}, {how}"]
    if result.reason is not None:
        blocks.append(line("why", printable(result.reason)))
    if result.inputs is not None:
        blocks.append(line("inputs", printable(result.inputs)))
    blocks += lines(
        "latency",
        [
            _percentiles(result.latency),
            (
                f"of {count(result.latency.calls, 'call')}, after {count(result.warmup, 'call')} to warm up; "
                f"{'one after the other' if result.against is None else 'in turn with the other program'}"
                f"{_on_threads(result.threads)}"
            ),
        ],
    )
    if result.way is not None:
        blocks.append(
            line("", f"not included: {format_duration(result.way)} to the runtime's process and back (median)")
        )
    if result.throughput:
        blocks += lines("workers", [*columns([_worker(found) for found in result.throughput]), _what(result)])
    blocks += lines("memory", _memory(result.memory, result.runtime))
    if result.against is not None:
        blocks += lines("against", _other(result.against, result))
    blocks += lines("machine", _machine(result.machine))
    blocks += lines("note", [printable(note) for note in result.notes])
    return "\n".join(blocks)


def _percentiles(latency: LatencyResult) -> str:
    names = ("min", "p50", "p95", "p99", "max", "mean")
    return ", ".join(f"{name} {format_duration(getattr(latency, name))}" for name in names)


def _other(other: AgainstResult, result: BenchResult) -> Iterator[str]:
    yield printable(other.file) + ("" if other.inputs == result.inputs else f", {printable(other.inputs or 'inputs')}")
    yield _percentiles(other.latency)
    yield from _memory(other.memory, result.runtime)
    ratio = other.ratio
    rounds = f"middle half of {count(ratio.rounds, 'round')}: {ratio.low:.3g} to {ratio.high:.3g}"
    from etdev.execution.comparison import LEAST_COMPARED

    if ratio.rounds < LEAST_COMPARED:
        yield f"too few rounds to compare ({ratio.rounds}): use more --calls or --seconds"
        return
    doubt = "; no clear difference" if ratio.low <= 1 <= ratio.high else ""
    yield f"{printable(result.file)} takes {ratio.median:.3g} times as long ({rounds}){doubt}"


def _on_threads(threads: int | None) -> str:
    return "" if threads is None else f", on {count(threads, 'thread')}"


def _worker(found: ThroughputResult) -> tuple[str, ...]:
    over = "" if found.factor is None or found.workers == 1 else f"{found.factor:.2f} times one worker"
    if found.no_factor is not None:
        over = f"not comparable: {found.no_factor}"
    made = f"{count(found.calls, 'call')} in {format_duration(found.seconds)}"
    return str(found.workers), f"{found.calls_per_second:,.1f} calls a second", made, over


def _what(result: BenchResult) -> str:
    kind = {"process": "processes", "thread": "threads", "ray": "actors of Ray"}.get(
        result.transport, f"of the transport {result.transport!r}"
    )
    return f"workers are {kind}; each uses one core"


def _memory(memory: MemoryResult, runtime: RuntimeName) -> Iterator[str]:
    planned = ", ".join(f"{printable(device)} {format_size(size)}" for device, size in memory.planned.items())
    yield f"file {format_size(memory.file)}, planned {planned}"
    outside = memory.outside
    if outside is not None:
        heap = "not counted here" if outside.heap is None else format_size(outside.heap)
        pools = f"method pool {format_size(outside.method_pool)}, temporary pool {format_size(outside.temporary_pool)}"
        yield f"{pools}, heap {heap}"
    before, peak = memory.resident_before, memory.resident_peak
    whose = "the runtime's process" if runtime != "replay" else "etdev's own process"
    if before is None or peak is None:
        yield f"resident: unknown for {whose}"
    else:
        added = format_size(max(peak - before, 0))
        yield (
            f"resident {added} more than before loading: {format_size(peak)} at most, {format_size(before)} before, "
            f"in {whose}"
        )


def _machine(machine: Machine) -> Iterator[str]:
    load = "load unknown" if machine.load is None else f"load {machine.load:.1f} before"
    yield f"{printable(machine.cpu or 'CPU not known')}, {count(machine.cores, 'core')}, {load}"
    yield machine.system
    versions = [f"{name} {machine.versions.get(name, 'not installed')}" for name in _SHOWN_VERSIONS]
    yield ", ".join([f"Python {machine.versions['python']}", *versions])
