"""The command ``etdev relink``, which plans the memory of any ``.pte`` again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from etdev.cli.common import OutputOption, VerboseOption
from etdev.cli.rendering.banks import bank_lines
from etdev.cli.rendering.link_decisions import decision_lines, describe_order, kind_name
from etdev.cli.rendering.output import TEXT, paint, parse_outputs
from etdev.cli.rendering.text import bound_text, columns, count, line, lines, printable, some
from etdev.errors import ExitCode
from etdev.pipeline.results.decision_counts import KINDS

if TYPE_CHECKING:
    from etdev.pipeline.relink import MethodChange, RelinkResult


def relink(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .pte from any toolchain.", show_default=False)],
    place: Annotated[
        Path,
        typer.Option(
            "-o",
            metavar="FILE",
            help="Path of the result; may be the same file. Missing folders are made.",
            show_default=False,
        ),
    ],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="A .ptd file with data of the program, to put into the result. Without it, the data stays in "
            "its file. Repeatable.",
            show_default=False,
        ),
    ] = None,
    planner: Annotated[
        str, typer.Option(metavar="NAME", help="best, greedy, naive, or one from another package.")
    ] = "best",
    alignment: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES", help="Alignment of each tensor, a power of two. Default: 16.", show_default=False
        ),
    ] = None,
    no_elide: Annotated[
        list[str] | None,
        typer.Option(
            "--no-elide",
            metavar="KIND",
            help=f"Keep copies of this kind: {', '.join(KINDS)} or all. Repeatable.",
            show_default=False,
        ),
    ] = None,
    inplace: Annotated[
        str,
        typer.Option(metavar="TABLE", help="Kernels that may write over an operand: default (etdev's table) or none."),
    ] = "default",
    order: Annotated[
        str,
        typer.Option(metavar="ORDER", help="Order of the instructions: auto (one that needs less memory) or as-is."),
    ] = "auto",
    bank: Annotated[
        list[str] | None,
        typer.Option(
            "--bank",
            metavar="NAME:ID:SIZE[:ALIGNMENT]",
            help="A memory bank, such as sram:1:256KiB:32; the preferred bank first. The tensors are divided among all "
            "banks. Without it, the banks of the file remain. Repeatable.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Plan the memory of a .pte again, remove copies, compute in place and reorder. The outputs stay the same.

    Needs neither torch nor executorch, and runs no code of a project. Checks the result before writing it atomically.
    With -v, lists each decision. Formats of --output: text, json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    outputs.refuse(file, place, *data or ())
    from etdev.pipeline.relink import check_kinds, relink

    kept = check_kinds(no_elide or (), "--no-elide")
    elide = [kind for kind in KINDS if kind not in kept]
    result = relink(
        file,
        place,
        data=data or (),
        planner=planner,
        alignment=alignment,
        elide=elide,
        inplace=inplace,
        order=order,
        banks=bank or (),
    )
    outputs.write({TEXT: lambda: render(result, verbose=verbose), "json": result.to_json})
    return ExitCode.DONE


def render(result: RelinkResult, stream: TextIO | None = None, *, verbose: bool = False) -> str:
    """Return a block of text for the file, and one block for each method with changes or decisions."""
    stream = stream or sys.stdout
    blocks = [_file_lines(result, stream)]
    blocks += [_method_lines(method, stream, verbose=verbose) for method in result.methods if _says_something(method)]
    return "\n\n".join("\n".join(block) for block in blocks)


def _says_something(method: MethodChange) -> bool:
    buffers = method.before or method.after
    return bool(buffers or method.copy_decisions or method.inplace_decisions or method.kept)


def _file_lines(result: RelinkResult, stream: TextIO) -> Iterator[str]:
    heading = paint(printable(result.output), stream=stream)
    source = " and ".join(map(printable, (result.input, *result.data)))
    yield f"{heading}  from {source}, planner {result.planner}, alignment {result.alignment}"
    if left := _switched_off(result):
        yield line("off", ", ".join(left))
    if result.size_after is not None:
        yield line("file", _change(result.size_before, result.size_after))
    devices = dict.fromkeys((*result.memory_before, *result.memory_after))
    changes = {name: (result.memory_before.get(name, 0), result.memory_after.get(name, 0)) for name in devices}
    *rows, last = lines("memory", columns([(name, _change(*sizes)) for name, sizes in changes.items()])) or [""]
    yield from rows
    if last:
        yield last + _moved_to_file(result)
    if result.banks is not None:
        yield from bank_lines(result.banks, [method.after for method in result.methods])
    if sum(result.memory_after.values()) > sum(result.memory_before.values()):
        yield line("note", f"the program needs more memory than before: {_why_more(result)}")
    if result.shared_state:
        names = ", ".join(map(printable, result.shared_state))
        yield line("note", f"methods share {names}: the program's loader must give all methods the same buffers")
    if result.external_data:
        yield line("note", f"the data of {some(result.external_data)} stays in another file")
    yield line("plan", f"{result.plan}: {printable(result.plan_summary)}")


def _moved_to_file(result: RelinkResult) -> str:
    """Return a text on the growth of constants in the file, and on the total change of memory and constants.

    The caller appends this text to the text on planned memory. The text is empty if the constants did not grow.
    """
    more = result.constants_after - result.constants_before
    if more <= 0:
        return ""
    before = sum(result.memory_before.values()) + result.constants_before
    after = sum(result.memory_after.values()) + result.constants_after
    return f", and {count(more, 'byte')} more of constants in the file: in total {_change(before, after)}"


def _switched_off(result: RelinkResult) -> list[str]:
    """Return the kinds of changes that the options turned off."""
    kinds = [kind_name(kind) for kind in KINDS if kind not in result.elide]
    others = [("in place", result.inplace == "none"), ("order", result.order == "as-is")]
    return [*kinds, *(name for name, is_off in others if is_off)]


def _why_more(result: RelinkResult) -> str:
    if any(buffer.state for method in result.methods for buffer in method.after):
        return "state of the methods has its own bytes, so that no other method overwrites it"
    if result.planner != "best":
        return f"the planner {result.planner} was chosen"
    return "the planner found no smaller plan with this alignment"


def _method_lines(method: MethodChange, stream: TextIO, *, verbose: bool) -> Iterator[str]:
    heading = paint(printable(method.name), stream=stream)
    yield f"{heading}  {_change(method.instructions_before, method.instructions_after, 'instruction')}"
    yield from lines("memory", columns(list(_buffer_rows(method))))
    if method.order is not None:
        yield line("order", describe_order(method.order))
    if method.kept is not None:
        yield line("kept", f"the old plan: {printable(method.kept)}")
    yield from decision_lines(method.copy_decisions, method.inplace_decisions, verbose=verbose)


def _buffer_rows(method: MethodChange) -> Iterator[tuple[str, ...]]:
    before, after = ({item.index: item for item in each} for each in (method.before, method.after))
    for index in sorted({*before, *after}):
        old, new = before.get(index), after.get(index)
        sizes = _change(old.size if old else 0, new.size if new else 0)
        shown = new or old
        yield f"buffer {index}", shown.device if shown else "", sizes, bound_text(new) if new else ""


def _change(before: int, after: int, noun: str = "byte") -> str:
    if before == after:
        return f"{count(after, noun)}, as before"
    share = f" ({after / before:.2f}x)" if before and noun == "byte" and abs(after / before - 1) >= 0.005 else ""
    return f"{before:,} -> {count(after, noun)}{share}"
