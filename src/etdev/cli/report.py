"""The command ``etdev report``, which writes one HTML page about a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etdev.cli.calls import OneTargetOption, ProgramArgument, named_program
from etdev.cli.common import ConfigOption, DataOption, OutputOption, QuietOption
from etdev.cli.rendering.output import Output, Outputs, note, parse_outputs
from etdev.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path


def report(
    program: ProgramArgument = None,
    target: OneTargetOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> int:
    """Write a page about a .pte: memory map, bytes in use and their peak, file size, devices, verification.

    The page is one HTML file that needs no network: NAME.html next to the program, or the path in --output. It includes
    facts from the files that the build left next to the program, and from its data files. Needs neither torch nor
    executorch, and runs no code of the file. Formats of --output: html.
    """
    outputs = parse_outputs(output, allowed=("html",))
    file = named_program(program, target, config).file
    from etdev.inspection.report import file_page, files_read, page_place

    outputs.refuse(*files_read(file, data or ()))
    page = file_page(file, data or ())
    outputs = outputs if outputs.items else Outputs((Output("html", page_place(file)),))
    outputs.write({"html": lambda: page})
    for item in outputs.items:
        _say(item.path, quiet=quiet)
    return ExitCode.DONE


def _say(place: Path | None, *, quiet: bool) -> None:
    if place is not None:
        note(f"wrote {place}", quiet=quiet)
