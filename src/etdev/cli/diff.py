"""``etdev diff``: the differences between two programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TextIO, TypeAlias

import typer

from etdev.cli.calls import find_program
from etdev.cli.common import ConfigOption, OutputOption, VerboseOption, complete_target
from etdev.cli.rendering.output import TEXT, paint, parse_outputs
from etdev.cli.rendering.text import columns, count, printable
from etdev.cli.reports.markdown import code, code_html, details, prose, table
from etdev.errors import ExitCode, UsageError
from etdev.units import format_share

if TYPE_CHECKING:
    from etdev.inspection.diff import ArgumentDiff, DelegateDiff, MethodDiff, Pair, ProgramDiff
    from etdev.inspection.inspect import Argument

_NONE = "-"


class _Row(NamedTuple):
    what: str
    a: str
    """Value in the first file."""
    b: str
    """Value in the second file."""
    change: str = ""
    """Change of a number: ``+1,024 (+5.2%)``."""


_Block: TypeAlias = tuple[str, Sequence[_Row]]
"""A heading and the differences under it."""


def diff(
    a: Annotated[
        str | None,
        typer.Argument(
            metavar="A",
            help="A .pte from any toolchain, or a target that was built.",
            show_default=False,
            autocompletion=complete_target,
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Argument(metavar="B", help="Another one.", show_default=False, autocompletion=complete_target),
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--target",
            metavar="TARGET",
            help="A target, in place of an argument. Repeatable; targets come after the arguments.",
            autocompletion=complete_target,
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Show how two programs differ: sections, memory, methods, operators, delegates, addresses.

    Needs neither torch nor executorch. The exit code is 0 whether they differ or not. Formats of --output: text, json,
    md.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json", "md"))
    files = [find_program(name, config, is_target=known).file for name, known in _two_programs(a, b, named or ())]
    outputs.refuse(*files)
    from etdev.inspection.diff import diff

    found = diff(*files)
    outputs.write(
        {TEXT: lambda: render_text(found), "json": found.to_json, "md": lambda: render_markdown(found)},
    )
    return ExitCode.DONE


def _two_programs(a: str | None, b: str | None, targets: Sequence[str]) -> list[tuple[str, bool]]:
    """Return both names in order, each with whether it is known to be a target's."""
    names = [(name, False) for name in (a, b) if name is not None] + [(name, True) for name in targets]
    if len(names) != 2:
        message = f"two programs are compared, and {len(names)} {'was' if len(names) == 1 else 'were'} given"
        raise UsageError(message, hint="name two .pte files or targets: `etdev diff A B`")
    return names


def render_text(found: ProgramDiff, stream: TextIO | None = None) -> str:
    """Return the differences, one row each, with the values of both files; one line if there are none."""
    stream = stream or sys.stdout
    verdict = _verdict(found)
    if found.identical:
        return verdict
    blocks = ["\n".join([paint(printable(heading), stream=stream), *_lines(rows)]) for heading, rows in _blocks(found)]
    return "\n\n".join([*blocks, verdict])


def _lines(rows: Sequence[_Row]) -> list[str]:
    return [f"  {line}" for line in columns([(row.what, row.a, row.b) for row in rows])]


def render_markdown(found: ProgramDiff) -> str:
    """Return the differences for a comment on a change: a table for the file, and one per method that a click shows."""
    a, b = (code(name) for name in (found.files.a, found.files.b))
    verdict = _verdict(found, code)
    if found.identical:
        return f"{verdict}\n"
    (_, of_file), *of_methods = _blocks(found)
    blocks = [f"### {a} → {b}", verdict, _table(of_file, a, b)]
    blocks += [details(f"method {code_html(name)}", [_table(rows, a, b)]) for name, rows in of_methods]
    return "\n\n".join(blocks)


def _table(rows: Sequence[_Row], a: str, b: str) -> str:
    return table(("", a, b, "change"), ([prose(cell.strip()) for cell in row] for row in rows))


def _verdict(found: ProgramDiff, name: Callable[[str], str] = printable) -> str:
    a, b = name(found.files.a), name(found.files.b)
    if found.identical:
        return f"{a} and {b} are identical"
    if found.same_program:
        return f"{a} and {b} hold the same program; only its layout in the file differs"
    same = [method.name for method in found.methods if method.same]
    unchanged = f"; unchanged: {', '.join(map(name, same))}" if same else ""
    return f"{a} and {b} differ{unchanged}"


def _blocks(found: ProgramDiff) -> Iterator[_Block]:
    yield "file", list(_file_rows(found))
    for method in found.methods:
        if not method.same:
            yield method.name, list(_method_rows(method))


def _file_rows(found: ProgramDiff) -> Iterator[_Row]:
    yield _bytes("size", found.size)
    for name, pair in found.sections.items():
        if pair.differs:
            yield _bytes(name.replace("_", " "), pair)
    for name, numbers in (("schema", found.schema_version), ("header bytes", found.header_bytes)):
        if numbers.differs:
            yield _shown(name, numbers, str)
    for device, pair in found.memory.items():
        yield _bytes(f"memory of {device}", pair)
    if not found.same_weights and not found.weights_bytes.differs:
        yield _Row("weights", f"{found.weights_bytes.a:,} bytes", "other content")
    yield from _named_data_rows(found.named_data.values())
    yield from _presence_rows("method", found.methods_only_in_a, found.methods_only_in_b)
    yield from _presence_rows("external", found.external_only_in_a, found.external_only_in_b)


def _named_data_rows(sizes: Collection[Pair[int | None]]) -> Iterator[_Row]:
    """Yield the number of names that differ. The names are omitted, since most of them are digests."""
    alone = sum(pair.b is None for pair in sizes), sum(pair.a is None for pair in sizes)
    if any(alone):
        first, second = (f"{count(number, 'name')} of its own" for number in alone)
        yield _Row("named data", first, second)
    if changed := len(sizes) - sum(alone):
        yield _Row("named data", count(changed, "name"), "other content")


def _presence_rows(what: str, only_in_a: Iterable[str], only_in_b: Iterable[str]) -> Iterator[_Row]:
    for name in only_in_a:
        yield _Row(f"{what} {printable(name)}", "present", _NONE)
    for name in only_in_b:
        yield _Row(f"{what} {printable(name)}", _NONE, "present")


def _method_rows(method: MethodDiff) -> Iterator[_Row]:
    for buffer in method.buffers:
        yield _bytes(f"buffer {buffer.index} on {buffer.device}", buffer.size)
        if buffer.lower_bound.differs:
            yield _bytes("  lower bound", buffer.lower_bound)
    if method.instructions.differs:
        yield _shown("instructions", method.instructions, "{:,}".format)
    if method.copied_bytes.differs:
        yield _bytes("copies", method.copied_bytes)
    yield from _placement_rows(method)
    if method.inplace.differs:
        yield _shown("in place", method.inplace, lambda number: count(number, "output"))
    yield from _argument_rows("input", method.inputs)
    yield from _argument_rows("output", method.outputs)
    for name, pair in method.operators.items():
        yield _shown(printable(name), pair, lambda number: count(number, "call"))
    for delegate in method.delegates:
        first, second = (_delegate(delegate, part) for part in ("a", "b"))
        yield _Row(printable(delegate.id), first, second if first != second else "other data")
    if method.plan.tensors is None:
        yield _Row("addresses", _NONE, "not comparable: other instructions or values")
    else:
        moved = method.plan.moved or 0
        tensors = count(method.plan.tensors, "tensor")
        yield _Row("addresses", tensors, f"{moved:,} moved" if moved else "none moved")


def _placement_rows(method: MethodDiff) -> Iterator[_Row]:
    """Yield the devices of tensors, and the bytes that a call copies between devices, where they differ."""
    from etdev.inspection.diff import Pair

    for device, tensors in method.tensors.items():
        if tensors.differs:
            yield _shown(f"tensors on {device}", tensors, "{:,}".format)
    a, b = method.transfers.a, method.transfers.b
    for what, pair in (
        ("copied to devices", Pair(a.h2d_bytes, b.h2d_bytes)),
        ("copied back", Pair(a.d2h_bytes, b.d2h_bytes)),
    ):
        if pair.differs:
            yield _bytes(f"{what} in a call", pair)


def _delegate(delegate: DelegateDiff, part: Literal["a", "b"]) -> str:
    calls, size, devices = (getattr(pair, part) for pair in (delegate.calls, delegate.blob_bytes, delegate.devices))
    place = f" on {', '.join(devices)}" if set(devices) - {"cpu"} else ""
    return f"{count(calls, 'call')}{place}, {size:,} bytes"


def _argument_rows(kind: str, arguments: Sequence[ArgumentDiff]) -> Iterator[_Row]:
    for item in arguments:
        yield _Row(f"{kind} {item.position}", _argument(item.a), _argument(item.b))


def _argument(argument: Argument | None) -> str:
    if argument is None:
        return _NONE
    device = f" on {argument.device}" if argument.device not in (None, "cpu") else ""
    memory = f", {argument.memory}" if argument.memory is not None else ""
    return printable(str(argument)) + device + memory


def _bytes(what: str, pair: Pair[int] | Pair[int | None]) -> _Row:
    return _shown(what, pair, "{:,} bytes".format)


def _shown(what: str, pair: Pair[int] | Pair[int | None], text: Callable[[int], str]) -> _Row:
    first, second = (_NONE if number is None else text(number) for number in (pair.a, pair.b))
    return _Row(what, first, second, _change(pair.a, pair.b))


def _change(a: int | None, b: int | None) -> str:
    if a is None or b is None or a == b:
        return ""
    return f"{b - a:+,}" + (f" ({'+' if b > a else '-'}{format_share(abs(b - a) / a)})" if a else "")
