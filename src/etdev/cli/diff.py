"""The command ``etdev diff``, which shows the differences between two programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, NamedTuple, TextIO, TypeAlias

import typer

from etdev.cli.calls import find_program, refuse_unused_profile
from etdev.cli.common import ConfigOption, OutputOption, ProfileOption, VerboseOption, complete_target
from etdev.cli.rendering.output import TEXT, paint, parse_outputs
from etdev.cli.rendering.text import columns, count, printable
from etdev.errors import ExitCode, UsageError
from etdev.units import format_share

if TYPE_CHECKING:
    from pathlib import Path

    from etdev.inspection.diff import MethodDiff, ProgramDiff
    from etdev.program.info import Argument, BufferInfo, DelegateInfo, MethodInfo, ProgramInfo

_NONE = "-"
_LISTED_DATA = 3
"""Maximum number of names to list for data in other files. If there are more, only their number is shown."""


class _Row(NamedTuple):
    what: str
    a: str
    """Value in the first file."""
    b: str
    """Value in the second file."""
    change: str = ""
    """Change of a number, such as ``+1,024 (+5.2%)``; empty for other values."""


_Block: TypeAlias = tuple[str, Sequence[_Row]]
"""One section of the output: a heading, and the rows below the heading."""


def diff(
    a: Annotated[
        str | None,
        typer.Argument(
            metavar="A",
            help="A .pte from any toolchain, or a built target.",
            show_default=False,
            autocompletion=complete_target,
        ),
    ] = None,
    b: Annotated[
        str | None,
        typer.Argument(metavar="B", help="Another .pte or target.", show_default=False, autocompletion=complete_target),
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--target",
            metavar="TARGET",
            help="A target, instead of an argument. Repeatable; targets come after the arguments.",
            autocompletion=complete_target,
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Show the differences between two programs: sections, memory, methods, operators, delegates, addresses.

    Needs neither torch nor executorch. Differences do not change the exit code. Formats of --output: text, json, md,
    html (one page with both memory maps, the changed instructions, and the page of `etdev report` about each).
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json", "md", "html"))
    names = _two_programs(a, b, named or ())
    programs = [find_program(name, config, is_target=known, profile=profile) for name, known in names]
    refuse_unused_profile(profile, *programs)
    files = [program.file for program in programs]
    outputs.refuse(*files)
    if any(item.format == "html" for item in outputs.items):
        from etdev.inspection.report import files_read

        outputs.refuse(*(place for file in files for place in files_read(file)))
    from etdev.inspection.diff import diff

    found = diff(*files)
    outputs.write(
        {
            TEXT: lambda: render_text(found),
            "json": found.to_json,
            "md": lambda: render_markdown(found),
            "html": lambda: _page(files, found),
        }
    )
    return ExitCode.DONE


def _page(files: Sequence[Path], found: ProgramDiff) -> str:
    """Return the HTML page."""
    from etdev.inspection.report import diff_page

    first, second = files
    return diff_page(first, second, found)


def _two_programs(a: str | None, b: str | None, targets: Sequence[str]) -> list[tuple[str, bool]]:
    """Return the names of the two programs in order.

    Each name has a flag that is True if the user declared the name as a target with ``-t``.
    """
    names = [(name, False) for name in (a, b) if name is not None] + [(name, True) for name in targets]
    if len(names) != 2:
        message = f"etdev diff compares two programs, but {len(names)} {'was' if len(names) == 1 else 'were'} given"
        raise UsageError(message, hint="name two .pte files or targets: `etdev diff A B`")
    return names


def render_text(found: ProgramDiff, stream: TextIO | None = None) -> str:
    """Return the differences as text. Each row has one difference, with the value in each file.

    If the files do not differ, return one line that states this.
    """
    stream = stream or sys.stdout
    verdict = _verdict(found)
    if found.identical:
        return verdict
    blocks = ["\n".join([paint(printable(heading), stream=stream), *_lines(rows)]) for heading, rows in _blocks(found)]
    return "\n\n".join([*blocks, verdict])


def _lines(rows: Sequence[_Row]) -> list[str]:
    return [f"  {line}" for line in columns([(row.what, row.a, row.b) for row in rows])]


def render_markdown(found: ProgramDiff) -> str:
    """Return the differences as Markdown for a pull request.

    The first table is about the whole file. Then each method has a table that is folded under the method's name.
    """
    from etdev.cli.reports.markdown import code, code_html, details  # Slow to import, as all reports for CI systems.

    a, b = (code(name) for name in (found.a.file, found.b.file))
    verdict = _verdict(found, code)
    if found.identical:
        return f"{verdict}\n"
    (_, of_file), *of_methods = _blocks(found)
    blocks = [f"### {a} → {b}", verdict, _table(of_file, a, b)]
    blocks += [details(f"method {code_html(name)}", [_table(rows, a, b)]) for name, rows in of_methods]
    return "\n\n".join(blocks)


def _table(rows: Sequence[_Row], a: str, b: str) -> str:
    from etdev.cli.reports.markdown import prose, table

    return table(("", a, b, "change"), ([prose(cell.strip()) for cell in row] for row in rows))


def _verdict(found: ProgramDiff, name: Callable[[str], str] = printable) -> str:
    a, b = name(found.a.file), name(found.b.file)
    if found.identical:
        return f"{a} and {b} are identical"
    if found.same_program:
        return f"{a} and {b} contain the same program; only its layout in the file differs"
    same = [method.name for method in found.methods if method.same]
    unchanged = f"; unchanged: {', '.join(map(name, same))}" if same else ""
    return f"{a} and {b} differ{unchanged}"


def _blocks(found: ProgramDiff) -> Iterator[_Block]:
    yield "file", list(_file_rows(found))
    for method in found.methods:
        if not method.same:
            yield method.name, list(_method_rows(method, found.a.method(method.name), found.b.method(method.name)))


def _file_rows(found: ProgramDiff) -> Iterator[_Row]:
    a, b = found.a, found.b
    yield _row("size", a.size, b.size)
    yield from _data_file_rows(a, b)
    sections = asdict(b.sections)
    for name, size in asdict(a.sections).items():
        if size != sections[name]:
            yield _row(name.replace("_", " "), size, sections[name])
    yield from _changed("schema", a.schema_version, b.schema_version, str)
    yield from _changed("header bytes", a.header_bytes, b.header_bytes, str)
    for device in dict.fromkeys((*a.memory, *b.memory)):
        yield _row(f"memory of {device}", a.memory.get(device, 0), b.memory.get(device, 0))
        first, second = ([buffer for buffer in each.buffers if buffer.device == device] for each in (a, b))
        if max(len(first), len(second)) > 1:
            yield from _size_rows(first, second)
    if not found.same_weights and a.weights_bytes == b.weights_bytes:
        yield _Row("weights", f"{a.weights_bytes:,} bytes", "other content")
    yield from _named_data_rows(found)
    names = [[item.name for item in each.methods if not item.describes_end] for each in (a, b)]
    yield from _presence_rows("method", *names)
    yield from _external_rows(a.external_data, b.external_data)


def _data_file_rows(a: ProgramInfo, b: ProgramInfo) -> Iterator[_Row]:
    """Yield a row with the sizes of each program's data files; nothing if no data file is known."""
    first, second = (sum(each.data_files.values()) for each in (a, b))
    if not (first or second):
        return
    if any(each.external_data and not each.data_files for each in (a, b)):
        yield _Row("data files", *(f"{size:,} bytes" if size else "unknown" for size in (first, second)))
    else:
        yield _row("data files", first, second)


def _named_data_rows(found: ProgramDiff) -> Iterator[_Row]:
    """Yield a row on names of data that only one file has, and a row on common names with different content.

    Each row has the number of names instead of the names, because most names are digests.
    """
    a, b = ({item.key for item in each.named_data} for each in (found.a, found.b))
    if a != b:
        yield _Row(
            "named data", *(f"{count(len(alone), 'name')} that the other file lacks" for alone in (a - b, b - a))
        )
    if found.changed_data:
        yield _Row("named data", count(len(found.changed_data), "name"), "other content")


def _external_rows(a: Collection[str], b: Collection[str]) -> Iterator[_Row]:
    """Yield rows about data that is in other files and that only one of the programs needs.

    If such data has few names, each name has a row. Otherwise, one row has the number of names.
    """
    alone = [len({*one} - {*other}) for one, other in ((a, b), (b, a))]
    if sum(alone) <= _LISTED_DATA:
        yield from _presence_rows("external", a, b)
    else:
        yield _Row("external data", *(f"{count(number, 'name')} that the other file lacks" for number in alone))


def _presence_rows(what: str, a: Collection[str], b: Collection[str]) -> Iterator[_Row]:
    yield from (_Row(f"{what} {printable(name)}", "present", _NONE) for name in a if name not in b)
    yield from (_Row(f"{what} {printable(name)}", _NONE, "present") for name in b if name not in a)


def _method_rows(found: MethodDiff, a: MethodInfo, b: MethodInfo) -> Iterator[_Row]:
    from etdev.inspection.diff import count_copied, count_in_place

    yield from _buffer_rows(a.buffers, b.buffers)
    yield from _changed("instructions", a.instructions, b.instructions, "{:,}".format)
    yield from _changed("copies", count_copied(a), count_copied(b))
    yield from _placement_rows(a, b)
    yield from _changed("in place", count_in_place(a), count_in_place(b), lambda number: count(number, "output"))
    yield from _argument_rows("input", a.inputs, b.inputs)
    yield from _argument_rows("output", a.outputs, b.outputs)
    for name in dict.fromkeys((*a.operators, *b.operators)):
        calls = a.operators.get(name), b.operators.get(name)
        yield from _changed(printable(name), *calls, lambda number: count(number, "call"))
    for name in found.delegates:
        first, second = (_delegate([part for part in each.delegates if part.id == name]) for each in (a, b))
        yield _Row(printable(name), first, second if first != second else "other data")
    if found.planned is None:
        yield _Row("addresses", _NONE, "not comparable: other instructions or values")
    else:
        moved = f"{found.moved:,} moved" if found.moved else "none moved"
        yield _Row("addresses", count(found.planned, "tensor"), moved)


def _buffer_rows(a: Iterable[BufferInfo], b: Iterable[BufferInfo]) -> Iterator[_Row]:
    """Yield a row for each buffer, including unchanged ones, so that equality is visible."""
    first, second = ({(item.index, item.device): item for item in each} for each in (a, b))
    for key in sorted({*first, *second}):
        both = first.get(key), second.get(key)
        size, other_size = (0 if item is None else item.size for item in both)
        bound, other_bound = (0 if item is None else item.lower_bound for item in both)
        yield _row(f"{_label(*both)} on {key[1]}", size, other_size)
        yield from _changed("  lower bound", bound, other_bound)


def _size_rows(a: Iterable[BufferInfo], b: Iterable[BufferInfo]) -> Iterator[_Row]:
    """Yield a row for each buffer on one device, with the buffer's size in each of the two programs."""
    first, second = ({item.index: item for item in each} for each in (a, b))
    for index in sorted({*first, *second}):
        both = first.get(index), second.get(index)
        size, other_size = (0 if item is None else item.size for item in both)
        yield _row(f"  {_label(*both)}", size, other_size)


def _label(a: BufferInfo | None, b: BufferInfo | None) -> str:
    """Return the label of a buffer. If its bank has different names in the two files, the label has both names."""
    known = [item for item in (a, b) if item is not None]
    names = dict.fromkeys(item.bank for item in known if item.bank is not None)
    return f"buffer {known[0].index}" + (f" ({printable(', '.join(names))})" if names else "")


def _placement_rows(a: MethodInfo, b: MethodInfo) -> Iterator[_Row]:
    """Yield the differences in the devices of tensors, and in the bytes that a call copies between devices."""
    devices = sorted({*a.tensors, *b.tensors}, key=lambda device: (device != "cpu", device))
    for device in devices if set(devices) - {"cpu"} else ():
        yield from _changed(f"tensors on {device}", a.tensors.get(device, 0), b.tensors.get(device, 0), "{:,}".format)
    yield from _changed("copied to devices in a call", a.transfers.h2d_bytes, b.transfers.h2d_bytes)
    yield from _changed("copied back in a call", a.transfers.d2h_bytes, b.transfers.d2h_bytes)


def _delegate(parts: Sequence[DelegateInfo]) -> str:
    devices = sorted({part.device for part in parts})
    place = f" on {', '.join(devices)}" if set(devices) - {"cpu"} else ""
    size = sum(part.blob_bytes for part in parts)
    return f"{count(sum(part.calls for part in parts), 'call')}{place}, {size:,} bytes"


def _argument_rows(kind: str, a: Iterable[Argument], b: Iterable[Argument]) -> Iterator[_Row]:
    for position, (first, second) in enumerate(zip_longest(a, b)):
        if first != second:
            yield _Row(f"{kind} {position}", _argument(first), _argument(second))


def _argument(argument: Argument | None) -> str:
    if argument is None:
        return _NONE
    device = f" on {argument.device}" if argument.device not in (None, "cpu") else ""
    memory = f", {argument.memory}" if argument.memory is not None else ""
    return printable(str(argument)) + device + memory


def _row(what: str, a: int | None, b: int | None, text: Callable[[int], str] = "{:,} bytes".format) -> _Row:
    first, second = (_NONE if number is None else text(number) for number in (a, b))
    return _Row(what, first, second, _change(a, b))


def _changed(
    what: str, a: int | None, b: int | None, text: Callable[[int], str] = "{:,} bytes".format
) -> Iterator[_Row]:
    if a != b:
        yield _row(what, a, b, text)


def _change(a: int | None, b: int | None) -> str:
    if a is None or b is None or a == b:
        return ""
    return f"{b - a:+,}" + (f" ({'+' if b > a else '-'}{format_share(abs(b - a) / a)})" if a else "")
