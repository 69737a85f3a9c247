"""The command ``etdev run``, which calls a method of a ``.pte`` and shows the outputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
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
    is_worker_count,
    named_program,
    native_libraries,
)
from etdev.cli.common import ConfigOption, DataOption, DeviceMapOption, OutputOption, ProfileOption, QuietOption
from etdev.cli.rendering.output import TEXT, note, paint, parse_outputs
from etdev.cli.rendering.text import columns, count, line, lines, printable
from etdev.config.limits import MOST_WORKERS
from etdev.errors import UsageError
from etdev.units import format_duration, format_size

if TYPE_CHECKING:
    from etdev.execution.run_results import OutputResult, RunResult, WorkerResult
    from etdev.execution.workers import WorkerOptions

_PER_DEVICE = "devices"
_SHOWN = 8
"""Maximum number of calls whose outputs are shown separately."""


def run(
    program: ProgramArgument = None,
    target: OneTargetOption = None,
    inputs: InputsOption = None,
    random: RandomOption = False,
    seed: SeedOption = 0,
    method: MethodOption = "forward",
    data: DataOption = None,
    repeat: Annotated[
        int, typer.Option(metavar="N", help="Number of times to make the calls.", min=1, max=100_000)
    ] = 1,
    runtime: RuntimeOption = None,
    native_library: NativeLibraryOption = None,
    device_map: DeviceMapOption = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Start each call from initial state, not from the state of the previous call."),
    ] = False,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|devices",
            help="Make the calls on N workers in parallel, each with the whole program; or use one worker for "
            "each device of the program.",
            show_default=False,
        ),
    ] = None,
    transport: TransportOption = None,
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Join this Ray cluster instead of starting one here.", show_default=False),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write each output to this folder as .npy, with the outputs for a data set in one file. Missing "
            "folders are made.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> int:
    """Call a method of a .pte, and show the shape, figures and digest of each output.

    Without --input or --random, a target is called with the samples in the config, so code of the project runs. Refuses
    input files that may run code when they are read (.pt, .pkl). Formats of --output: text, json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    found = named_program(program, target, config, data, profile=profile)
    outputs.refuse(found.file, *found.data)
    chosen = check_runtime(runtime)
    from etdev.cli.rendering.build_progress import shown_calls
    from etdev.execution.run import RunOptions, no_progress, run_file
    from etdev.pipeline.project.options import check_device_map

    options = RunOptions(
        method=method,
        inputs=tuple(inputs or ()),
        random=random,
        seed=seed,
        repeat=repeat,
        runtime=chosen,
        device_map=check_device_map(device_map),
        data=found.data,
        libraries=native_libraries(native_library, chosen, found.project),
        project=found.project,
        save=save,
        fresh=fresh,
        workers=_workers(workers, transport, ray_address),
        progress=no_progress if quiet else shown_calls,
        notify=lambda text: note(text, quiet=quiet),
    )
    result = run_file(found.file, options)
    outputs.write({TEXT: lambda: render(result), "json": lambda: result.model_dump_json(indent=2)})
    return 0


def _workers(count: str | None, transport: str | None, ray_address: str | None) -> WorkerOptions | None:
    from etdev.execution.workers import WorkerOptions

    if ray_address is not None and transport != "ray":
        raise UsageError(
            "only workers of the transport `ray` can join a Ray cluster",
            where="--ray-address",
            hint="add `--transport ray`",
        )
    if count is None:
        if transport is not None:
            raise UsageError("the number of workers is missing", where="--transport", hint="add `--workers 2`")
        return None
    chosen = check_transport(transport)
    if count != _PER_DEVICE and not is_worker_count(count):
        raise UsageError(
            f"{count!r} is not a number of workers",
            where="--workers",
            hint=f"use a number from 1 to {MOST_WORKERS}, or `{_PER_DEVICE}`",
        )
    number = None if count == _PER_DEVICE else int(count)
    return WorkerOptions(number, chosen, ray_address)


def render(result: RunResult, stream: TextIO | None = None) -> str:
    """Return a heading, and the outputs of each call."""
    stream = stream or sys.stdout
    heading = paint(printable(result.file), stream=stream)
    how = RUNTIME_PHRASES[result.runtime]
    blocks = [f"{heading}  {printable(result.method)}, {how}"]
    if result.reason is not None:
        blocks.append(line("why", printable(result.reason)))
    if result.inputs is not None:
        blocks.append(line("inputs", printable(result.inputs)))
    blocks += lines("note", result.notes)
    shown = result.calls if len(result.calls) <= _SHOWN else result.calls[:1]
    for number, call in enumerate(shown):
        label = f"call {number}" if len(result.calls) > 1 else "outputs"
        blocks += lines(label, columns([_row(item) for item in call.outputs]) or ["none"])
    if len(shown) < len(result.calls):
        blocks.append(
            line("more", f"{count(len(result.calls) - len(shown), 'more call')}; `--output json` has all of them")
        )
    saved = dict.fromkeys(printable(item.saved) for call in result.calls for item in call.outputs if item.saved)
    blocks += lines("saved", [*saved] if len(saved) <= _SHOWN else [f"{len(saved):,} files"])
    blocks += lines("workers", columns([_worker(found) for found in result.workers]))
    blocks.append(line("time", "; ".join(_times(result))))
    return "\n".join(blocks)


def _worker(found: WorkerResult) -> tuple[str, ...]:
    copied = f"{format_size(found.bytes_to)} copied to it, {format_size(found.bytes_from)} copied back"
    there = f"{format_size(found.bytes_avoided)} already there" if found.bytes_avoided else ""
    moved = found.bytes_to or found.bytes_from or found.bytes_avoided
    return str(found.worker), found.memory, count(found.tasks, "task"), copied if moved else "", there


def _row(item: OutputResult) -> tuple[str, ...]:
    label = f"{item.position}  {printable(item.name)}" if item.name is not None else str(item.position)
    if item.value is not None:
        return label, item.type, printable(item.value)
    shape = f"{item.dtype} {list(item.shape or ())}"
    return label, shape, _figures(item), f"sha256 {item.digest}"


def _figures(item: OutputResult) -> str:
    if item.smallest is None and not item.strange:
        return "no elements"
    if item.values is not None:
        return f"values {', '.join(str(value).lower() for value in item.values)}"
    if item.smallest is None:
        return "NaN or infinite" if item.strange == 1 else f"all {count(item.strange, 'element')} NaN or infinite"
    mean = "" if item.mean is None else f", mean {item.mean:.6g}"
    strange = f", {count(item.strange, 'element')} NaN or infinite" if item.strange else ""
    return f"min {item.smallest:.6g}, max {item.largest:.6g}{mean}{strange}"


def _times(result: RunResult) -> Iterator[str]:
    seconds = [call.seconds for call in result.calls]
    yield format_duration(seconds[0]) + (" for the first call" if len(seconds) > 1 else "")
    if len(seconds) > 1:
        after = f"later calls (median of {len(seconds) - 1:,})" if len(seconds) > 2 else "the second call"
        yield f"{format_duration(median(seconds[1:]))} for {after}"
    if len(seconds) > _SHOWN:
        yield f"{format_duration(result.seconds)} for all, {len(seconds) / result.seconds:,.1f} calls a second"
