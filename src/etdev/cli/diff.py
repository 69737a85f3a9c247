"""``etdev diff``: how two ``.pte`` files differ."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO, TypeAlias

import typer

from etdev.cli.common import OutputOption, VerboseOption
from etdev.cli.output import TEXT, paint, parse_outputs
from etdev.cli.text import columns, count, printable
from etdev.errors import ExitCode

if TYPE_CHECKING:
    from etdev.pipeline.diff import ArgumentDiff, MethodDiff, Pair, ProgramDiff
    from etdev.pipeline.inspect import Argument

_Row: TypeAlias = tuple[str, str, str]
"""What it is about, in the first file, in the second one."""
_NONE = "-"
_Block: TypeAlias = tuple[str, Sequence[_Row]]
"""A heading and what differs under it."""


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A .pte from any toolchain.", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.", show_default=False)],
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Say how two .pte files differ: sections, memory, methods, operators, delegates, addresses.

    Needs neither torch nor executorch. The exit code is 0 whether they differ or not. Formats of --output: text, json,
    md.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json", "md"))
    outputs.refuse(a, b)
    from etdev.pipeline.diff import diff

    found = diff(a, b)
    outputs.write(
        {TEXT: lambda: render_text(found), "json": found.to_json, "md": lambda: render_markdown(found)},
    )
    return ExitCode.DONE


def render_text(found: ProgramDiff, stream: TextIO | None = None) -> str:
    """What differs, a row each, with the values of both files beside each other; one line if nothing does."""
    stream = stream or sys.stdout
    verdict = _verdict(found)
    if found.identical:
        return verdict
    blocks = [
        "\n".join([paint(printable(heading), "bright_white", stream=stream), *(f"  {row}" for row in columns(rows))])
        for heading, rows in _blocks(found)
    ]
    return "\n\n".join([*blocks, verdict])


def render_markdown(found: ProgramDiff) -> str:
    """The same as tables, for comments on a change."""
    a, b = (_cell(f"`{printable(name)}`") for name in (found.files.a, found.files.b))
    if found.identical:
        return f"{a} and {b} are identical\n"
    blocks = []
    for heading, rows in _blocks(found):
        table = [f"| {_cell(f'**{printable(heading)}**')} | {a} | {b} |", "|---|---|---|"]
        table += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
        blocks.append("\n".join(table))
    return "\n\n".join([*blocks, _verdict(found, quote="`")])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _verdict(found: ProgramDiff, quote: str = "") -> str:
    a, b = (f"{quote}{printable(name)}{quote}" for name in (found.files.a, found.files.b))
    if found.identical:
        return f"{a} and {b} are identical"
    if found.same_program:
        return f"{a} and {b} hold the same program; only its layout in the file differs"
    same = [method.name for method in found.methods if method.same]
    unchanged = f"; unchanged: {', '.join(map(printable, same))}" if same else ""
    return f"{a} and {b} differ{unchanged}"


def _blocks(found: ProgramDiff) -> Iterator[_Block]:
    yield "file", list(_file_rows(found))
    for method in found.methods:
        if not method.same:
            yield method.name, list(_method_rows(method))


def _file_rows(found: ProgramDiff) -> Iterator[_Row]:
    yield "size", *_bytes(found.size)
    for name, pair in found.sections.items():
        if pair.differs:
            yield name.replace("_", " "), *_bytes(pair)
    for name, numbers in (("schema", found.schema_version), ("header bytes", found.header_bytes)):
        if numbers.differs:
            yield name, *_shown(numbers, str)
    for device, pair in found.memory.items():
        yield f"memory of {device}", *_bytes(pair)
    if not found.same_weights and not found.weights_bytes.differs:
        yield "weights", f"{found.weights_bytes.a:,} bytes", "other content"
    yield from _named_data_rows(found.named_data.values())
    yield from _presence_rows("method", found.methods_only_in_a, found.methods_only_in_b)
    yield from _presence_rows("external", found.external_only_in_a, found.external_only_in_b)


def _named_data_rows(sizes: Collection[Pair[int | None]]) -> Iterator[_Row]:
    """How many differ: their names are digests most of the time."""
    alone = sum(pair.b is None for pair in sizes), sum(pair.a is None for pair in sizes)
    if any(alone):
        first, second = (f"{count(number, 'name')} of its own" for number in alone)
        yield "named data", first, second
    if changed := len(sizes) - sum(alone):
        yield "named data", count(changed, "name"), "other content"


def _presence_rows(what: str, only_in_a: Iterable[str], only_in_b: Iterable[str]) -> Iterator[_Row]:
    for name in only_in_a:
        yield f"{what} {printable(name)}", "present", _NONE
    for name in only_in_b:
        yield f"{what} {printable(name)}", _NONE, "present"


def _method_rows(method: MethodDiff) -> Iterator[_Row]:
    for buffer in method.buffers:
        yield f"buffer {buffer.index} on {buffer.device}", *_bytes(buffer.size)
        if buffer.lower_bound.differs:
            yield "  lower bound", *_bytes(buffer.lower_bound)
    if method.instructions.differs:
        yield "instructions", *_shown(method.instructions, "{:,}".format)
    if method.copied_bytes.differs:
        yield "copies", *_bytes(method.copied_bytes)
    if method.inplace.differs:
        yield "in place", *_shown(method.inplace, lambda number: count(number, "output"))
    yield from _argument_rows("input", method.inputs)
    yield from _argument_rows("output", method.outputs)
    for name, pair in method.operators.items():
        yield printable(name), *_shown(pair, lambda number: count(number, "call"))
    for delegate in method.delegates:
        parts = zip((delegate.calls.a, delegate.calls.b), (delegate.blob_bytes.a, delegate.blob_bytes.b), strict=True)
        first, second = (f"{count(calls, 'call')}, {size:,} bytes" for calls, size in parts)
        yield printable(delegate.id), first, second if first != second else "other data"
    if method.plan.tensors is None:
        yield "addresses", _NONE, "not comparable: other instructions or values"
    else:
        moved = method.plan.moved or 0
        tensors = count(method.plan.tensors, "tensor")
        yield "addresses", tensors, f"{moved:,} moved" if moved else "none moved"


def _argument_rows(kind: str, arguments: Sequence[ArgumentDiff]) -> Iterator[_Row]:
    for item in arguments:
        yield f"{kind} {item.position}", _argument(item.a), _argument(item.b)


def _argument(argument: Argument | None) -> str:
    if argument is None:
        return _NONE
    device = f" on {argument.device}" if argument.device not in (None, "cpu") else ""
    memory = f", {argument.memory}" if argument.memory is not None else ""
    return printable(str(argument)) + device + memory


def _bytes(pair: Pair[int] | Pair[int | None]) -> tuple[str, str]:
    return _shown(pair, "{:,} bytes".format)


def _shown(pair: Pair[int] | Pair[int | None], text: Callable[[int], str]) -> tuple[str, str]:
    first, second = (_NONE if number is None else text(number) for number in (pair.a, pair.b))
    return first, second
