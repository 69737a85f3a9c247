"""``etdev inspect``: what a ``.pte`` holds."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from etdev.cli.common import OutputOption, VerboseOption
from etdev.cli.output import TEXT, paint, parse_outputs, print_error
from etdev.cli.text import columns, count, line, lines, printable
from etdev.errors import ExitCode
from etdev.units import format_size

if TYPE_CHECKING:
    from etdev.pipeline.inspect import Argument, CompileSpecInfo, DelegateInfo, MethodInfo, ProgramInfo, SegmentInfo
    from etdev.pipeline.memory import BufferUse, StateUse

_ORIGINS = {
    "planned": "in planned memory",
    "caller": "in memory that the caller brings",
    "constant": "a constant of the file",
    "alias": "wherever it was computed",
}
_SECTIONS = {
    "flatbuffer": "flatbuffer",
    "constants": "constants",
    "initial_state": "initial state",
    "delegates": "delegates",
    "named_data": "named data",
    "other": "padding and unused",
}


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte from any toolchain.", show_default=False)],
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Say what a .pte holds: methods, memory, operators, delegates, weights.

    Needs neither torch nor executorch, and runs nothing of the file. With -v also each segment. Formats of --output:
    text, json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    outputs.refuse(file)
    from etdev.pipeline.inspect import inspect

    found = inspect(file)
    outputs.write({TEXT: lambda: render(found, verbose=verbose), "json": found.to_json})
    if found.unknown_fields:
        print_error(
            f"the file has what this version of etdev does not know: {', '.join(found.unknown_fields)}",
            where=found.file,
            hint="what is said of it may be incomplete, and `etdev relink` refuses it; use a newer etdev",
            label="warning",
        )
    return ExitCode.DONE


def render(found: ProgramInfo, stream: TextIO | None = None, *, verbose: bool = False) -> str:
    """A block for the file, then one for each method."""
    stream = stream or sys.stdout
    blocks = [_file_lines(found, stream, verbose=verbose), *(_method_lines(method, stream) for method in found.methods)]
    return "\n\n".join("\n".join(block) for block in blocks)


def _file_lines(found: ProgramInfo, stream: TextIO, *, verbose: bool) -> Iterator[str]:
    heading = paint(printable(found.file), "bright_white", stream=stream)
    header = "no extended header" if found.header_bytes is None else f"header of {found.header_bytes} bytes"
    yield f"{heading}  {format_size(found.size)} ({found.size:,} bytes, schema {found.schema_version}, {header})"
    yield line("methods", ", ".join(printable(method.name) for method in found.methods) or "none")
    yield from lines("memory", columns([(device, f"{size:,} bytes") for device, size in found.memory.items()]))
    sizes = [(name, size) for name, size in asdict(found.sections).items() if size]
    yield from lines("file", columns([(_SECTIONS[name], f"{size:,} bytes") for name, size in sizes]))
    if verbose:
        yield from lines("segments", columns([_segment_row(segment) for segment in found.segments]))
        rows = [(printable(item.key), f"{item.size:,} bytes", f"segment {item.segment}") for item in found.named_data]
        yield from lines("named data", columns(rows))
    if found.external_data:
        names = ", ".join(map(printable, found.external_data))
        yield line("external", f"the data of {names} is in another file")


def _segment_row(segment: SegmentInfo) -> tuple[str, ...]:
    holds = " and ".join(_SECTIONS[kind] for kind in segment.holds) or "nothing refers to it"
    return str(segment.index), f"{segment.size:,} bytes", f"at {segment.offset:,}", holds


def _method_lines(method: MethodInfo, stream: TextIO) -> Iterator[str]:
    heading = paint(printable(method.name), "bright_white", stream=stream)
    yield f"{heading}  {count(method.instructions, 'instruction')}"
    yield from lines("inputs", columns([_argument_row(*item) for item in enumerate(method.inputs)]))
    yield from lines("outputs", columns([_argument_row(*item) for item in enumerate(method.outputs)]))
    yield from lines("memory", columns([_buffer_row(buffer) for buffer in method.buffers]))
    if method.memory_unknown is not None:
        yield line("unknown", f"lower bounds and state: {printable(method.memory_unknown)}")
    yield from lines("state", columns([_state_row(state) for state in method.state]))
    if method.copies.h2d_bytes or method.copies.d2h_bytes:
        yield line("copies", f"{method.copies.h2d_bytes:,} bytes to devices, {method.copies.d2h_bytes:,} bytes back")
    yield from lines("delegates", columns(list(_delegate_rows(method.delegates))))
    rows = [(printable(name), f"x{calls}") for name, calls in method.operators.items()]
    yield from lines("operators", columns(rows))


def _argument_row(position: int, argument: Argument) -> tuple[str, ...]:
    where = _ORIGINS.get(argument.memory or "", "")
    device = f" on {argument.device}" if argument.device not in (None, "cpu") else ""
    return str(position), printable(str(argument)), where + device


def _buffer_row(buffer: BufferUse) -> tuple[str, ...]:
    bound = buffer.lower_bound
    if bound is None:
        least = ""
    elif bound == buffer.size:
        least = "no plan needs less"
    else:
        least = f"at least {bound:,} are needed"
    return f"buffer {buffer.index}", buffer.device, f"{buffer.size:,} bytes", least


def _state_row(state: StateUse) -> tuple[str, ...]:
    kind = "shared by methods" if state.shared else "private"
    initial = "initial value in the file" if state.initialized else "zeros at first"
    place = f"at {state.offset:,} of buffer {state.buffer}"
    return printable(state.name), f"{state.size:,} bytes", place, f"{kind}, {initial}"


def _delegate_rows(delegates: Iterable[DelegateInfo]) -> Iterator[tuple[str, ...]]:
    """One row for all parts that a backend got with the same settings."""
    groups: dict[tuple[str, tuple[CompileSpecInfo, ...]], list[DelegateInfo]] = defaultdict(list)
    for delegate in delegates:
        groups[delegate.id, delegate.compile_specs].append(delegate)
    for (name, specs), parts in groups.items():
        calls = count(sum(part.calls for part in parts), "call")
        blobs = f"{sum(part.blob_bytes for part in parts):,} bytes"
        yield printable(name), calls, blobs, ", ".join(map(_spec, specs))


def _spec(spec: CompileSpecInfo) -> str:
    value = f"({spec.size:,} bytes)" if spec.text is None else spec.text
    return printable(f"{spec.key}={value}")
