"""The command ``etdev inspect``, which shows the content of a ``.pte``."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from etdev.cli.calls import OneTargetOption, ProgramArgument, named_program
from etdev.cli.common import ConfigOption, OutputOption, ProfileOption, VerboseOption
from etdev.cli.rendering.chart import chart_lines
from etdev.cli.rendering.output import TEXT, paint, parse_outputs, print_error
from etdev.cli.rendering.text import bound_text, code_place, columns, count, line, lines, printable, some
from etdev.errors import ExitCode
from etdev.units import format_size

if TYPE_CHECKING:
    from etdev.program.analysis.storage import MethodMemory
    from etdev.program.info import (
        Argument,
        BufferInfo,
        CompileSpecInfo,
        CopyCalls,
        DelegateInfo,
        MethodInfo,
        OutputInPlace,
        Peak,
        ProgramInfo,
        SegmentInfo,
        StateInfo,
        TensorInUse,
    )

_ORIGINS = {
    "planned": "in planned memory",
    "caller": "in memory of the caller",
    "constant": "a constant of the file",
    "alias": "in memory of another tensor",
}
_COPY_KINDS = {
    "views": "only the shape changes",
    "slices": "parts of a tensor",
    "cat": "several tensors in one",
    "write_back": "new content of a buffer",
    "order": "another order in memory",
    "repeat": "content expanded to another shape, or repeated",
}
_LISTED_TENSORS = 5
"""Maximum number of tensors to list for each peak. The largest tensors are listed."""


def inspect(
    program: ProgramArgument = None,
    target: OneTargetOption = None,
    chart: Annotated[
        bool,
        typer.Option(
            "--chart", help="Draw charts of the bytes in use over the instructions, and of the tensors by address."
        ),
    ] = False,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Show the content of a .pte: methods, memory and its peak, copies, operators, delegates, weights.

    Needs neither torch nor executorch, and runs no code of the file. With -v, also shows each segment, each tensor in
    use at a peak, each output in place, and the constants about quantized inputs and outputs. Formats of --output:
    text, json, operators (the input of a selective build of ExecuTorch's runtime).
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json", "operators"))
    file = named_program(program, target, config, profile=profile).file
    outputs.refuse(file)
    from etdev.inspection.inspect import inspect_memory
    from etdev.pipeline.stages.selected_operators import file_operators

    found, memories = inspect_memory(file)
    drawn = memories if chart else ()
    outputs.write(
        {
            TEXT: lambda: render(found, verbose=verbose, memories=drawn),
            "json": found.to_json,
            "operators": lambda: file_operators(file),
        }
    )
    if found.unknown_fields:
        print_error(
            f"the file has content that this version of etdev does not know: {', '.join(found.unknown_fields)}",
            where=found.file,
            hint="use a newer version of etdev: this description may be incomplete, and `etdev relink` rejects "
            "the file",
            label="warning",
        )
    return ExitCode.DONE


def render(
    found: ProgramInfo,
    stream: TextIO | None = None,
    *,
    verbose: bool = False,
    memories: Sequence[MethodMemory | str] = (),
) -> str:
    """Return a block of text about the file, and one block about each method.

    ``memories`` contains the memory use of each method, for charts. Without ``memories``, the text has no charts.
    """
    stream = stream or sys.stdout
    blocks = [_file_lines(found, stream, verbose=verbose)]
    for method, memory in zip_longest(found.methods, memories, fillvalue=""):
        assert not isinstance(method, str)
        if method.describes_end and not verbose:
            continue
        blocks.append(chain(_method_lines(method, stream, verbose=verbose), chart_lines(method, memory, stream)))
    return "\n\n".join("\n".join(block) for block in blocks)


def _file_lines(found: ProgramInfo, stream: TextIO, *, verbose: bool) -> Iterator[str]:
    heading = paint(printable(found.file), stream=stream)
    header = "no extended header" if found.header_bytes is None else f"header of {found.header_bytes} bytes"
    yield f"{heading}  {format_size(found.size)} ({found.size:,} bytes, schema {found.schema_version}, {header})"
    names = [printable(method.name) for method in found.methods if verbose or not method.describes_end]
    hidden = len(found.methods) - len(names)
    more = f", and {count(hidden, 'constant')} about quantized inputs and outputs" if hidden else ""
    yield line("methods", f"{', '.join(names) or 'none'}{more}")
    yield from lines("memory", columns([(device, f"{size:,} bytes") for device, size in found.memory.items()]))
    devices = Counter(buffer.device for buffer in found.buffers)
    if any(number > 1 for number in devices.values()) or any(buffer.bank for buffer in found.buffers):
        yield from lines("buffers", columns([_program_buffer_row(buffer) for buffer in found.buffers]))
    yield from lines("file", columns([(name, f"{size:,} bytes") for name, size in found.sections.parts().items()]))
    if verbose:
        yield from lines("segments", columns([_segment_row(segment) for segment in found.segments]))
        rows = [(printable(item.key), f"{item.size:,} bytes", f"segment {item.segment}") for item in found.named_data]
        yield from lines("named data", columns(rows))
    if found.external_data:
        files = [f"{printable(name)} ({size:,} bytes)" for name, size in found.data_files.items()]
        number = count(len(found.external_data), "item")
        where = f"in {', '.join(files)}" if files else f"in another file: {some(found.external_data)}"
        yield line("external", f"{number} of data {where}")


def _segment_row(segment: SegmentInfo) -> tuple[str, ...]:
    holds = " and ".join(kind.replace("_", " ") for kind in segment.holds) or "nothing refers to it"
    return str(segment.index), f"{segment.size:,} bytes", f"at {segment.offset:,}", holds


def _method_lines(method: MethodInfo, stream: TextIO, *, verbose: bool) -> Iterator[str]:
    heading = paint(printable(method.name), stream=stream)
    yield f"{heading}  {count(method.instructions, 'instruction')}"
    yield from lines("inputs", columns(_argument_rows(method.inputs)))
    yield from lines("outputs", columns(_argument_rows(method.outputs)))
    yield from lines("memory", columns([_buffer_row(buffer) for buffer in method.buffers]))
    if method.memory_unknown is not None:
        yield line("unknown", f"lower bounds, peaks and state: {printable(method.memory_unknown)}")
    labels = {buffer.index: printable(buffer.label) for buffer in method.buffers}
    for peak in method.peaks:
        yield from lines("peak", _peak_lines(peak, labels[peak.buffer], verbose=verbose))
    if verbose:
        more = "; delegates need more" if method.delegates else ""
        yield line("pool", f"{method.objects:,} bytes for the runtime's objects, {method.objects32:,} on 32 bits{more}")
    yield from lines("state", columns([_state_row(state, labels[state.buffer]) for state in method.state]))
    if method.inplace:
        yield from lines("in place", _in_place_lines(method.inplace, verbose=verbose))
    yield from lines("copies", columns([_copy_row(copy) for copy in method.copies]))
    if method.transfers.total:
        yield line("transfers", str(method.transfers))
    yield from lines("delegates", columns(list(_delegate_rows(method.delegates))))
    rows = [(printable(name), f"x{calls}") for name, calls in method.operators.items()]
    yield from lines("operators", columns(rows))


def _argument_rows(arguments: Sequence[Argument]) -> list[tuple[str, ...]]:
    """Return a row for each argument: position, name if any argument has one, type, and place of its bytes."""
    named = any(argument.name is not None for argument in arguments)
    return [_argument_row(number, argument, named=named) for number, argument in enumerate(arguments)]


def _argument_row(position: int, argument: Argument, *, named: bool) -> tuple[str, ...]:
    where = _ORIGINS.get(argument.memory or "", "")
    device = f" on {argument.device}" if argument.device not in (None, "cpu") else ""
    name = (printable(argument.name or ""),) if named else ()
    return str(position), *name, printable(str(argument)), where + device


def _program_buffer_row(buffer: BufferInfo) -> tuple[str, ...]:
    bank = f"of {buffer.capacity:,} in bank {buffer.bank}" if buffer.bank is not None else ""
    return f"buffer {buffer.index}", buffer.device, f"{buffer.size:,} bytes", printable(bank)


def _buffer_row(buffer: BufferInfo) -> tuple[str, ...]:
    return printable(buffer.label), buffer.device, f"{buffer.size:,} bytes", bound_text(buffer)


def _peak_lines(peak: Peak, buffer: str, *, verbose: bool) -> Iterator[str]:
    """Yield lines about the peak of a buffer, and about the largest tensors that are in use at the peak.

    ``buffer`` is the label of the buffer.
    """
    during = (
        f"while {peak.during}" if peak.instruction is None else f"at instruction {peak.instruction} ({peak.during})"
    )
    yield f"{buffer}  {peak.nbytes:,} bytes {printable(during)}{code_place(peak.module, peak.source)}"
    shown = peak.tensors if verbose else peak.tensors[:_LISTED_TENSORS]
    yield from (f"  {row}" for row in columns([_tensor_row(tensor, verbose=verbose) for tensor in shown]))
    if rest := peak.tensors[len(shown) :]:
        yield f"  and {len(rest):,} more, {sum(tensor.nbytes for tensor in rest):,} bytes"


def _tensor_row(tensor: TensorInUse, *, verbose: bool) -> tuple[str, ...]:
    shape = f"{tensor.dtype} [{', '.join(map(str, tensor.shape))}]"
    origin = tensor.origin if tensor.instruction is None else f"instruction {tensor.instruction} ({tensor.origin})"
    name = f"  {tensor.name}" if tensor.name is not None else ""
    return (
        f"{tensor.nbytes:,} bytes",
        f"value {tensor.value}",
        printable(shape),
        printable(f"{origin}{name}"),
        code_place(tensor.module, tensor.source).strip(),
        *([_last_use(tensor)] if verbose else []),
    )


def _last_use(tensor: TensorInUse) -> str:
    """Return the last user of a storage as text: ``until instruction 9 (aten::mm.out)  layers.0``."""
    user = tensor.last_user if tensor.until is None else f"instruction {tensor.until} ({tensor.last_user})"
    return printable(f"until {user}{f'  {tensor.last_module}' if tensor.last_module else ''}")


def _in_place_lines(outputs: Sequence[OutputInPlace], *, verbose: bool) -> Iterator[str]:
    total = sum(output.nbytes for output in outputs)
    yield f"{count(len(outputs), 'output')} over an operand, {total:,} bytes"
    for item in outputs if verbose else ():
        over = f"value {item.output} over value {item.operand}"
        yield printable(f"instruction {item.instruction} ({item.operator}, {item.nbytes:,} bytes): {over}")


def _copy_row(copy: CopyCalls) -> tuple[str, ...]:
    return printable(copy.operator), f"x{copy.calls}", f"{copy.nbytes:,} bytes", _COPY_KINDS.get(copy.kind, copy.kind)


def _state_row(state: StateInfo, buffer: str) -> tuple[str, ...]:
    kind = "shared by methods" if state.shared else "private"
    initial = "initial value in the file" if state.initialized else "initially zero"
    place = f"at {state.offset:,} of {buffer}"
    return printable(state.name), f"{state.size:,} bytes", place, f"{kind}, {initial}"


def _delegate_rows(delegates: Iterable[DelegateInfo]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each group of delegates with the same backend and the same settings."""
    groups: dict[tuple[str, tuple[CompileSpecInfo, ...]], list[DelegateInfo]] = defaultdict(list)
    for delegate in delegates:
        groups[delegate.id, delegate.compile_specs].append(delegate)
    for (name, specs), parts in groups.items():
        calls = count(sum(part.calls for part in parts), "call")
        blobs = f"{sum(part.blob_bytes for part in parts):,} bytes"
        yield printable(name), calls, blobs, printable(", ".join(map(str, specs)))
