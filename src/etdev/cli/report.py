"""The command ``etdev report``, which writes one HTML page about a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etdev.cli.calls import OneTargetOption, ProgramArgument, named_program
from etdev.cli.common import ConfigOption, DataOption, OutputOption, ProfileOption, QuietOption
from etdev.cli.rendering.output import Output, Outputs, note, parse_outputs
from etdev.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path


def report(
    program: ProgramArgument = None,
    target: OneTargetOption = None,
    data: DataOption = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    output: OutputOption = None,
    quiet: QuietOption = False,
) -> int:
    """Write a page about a .pte: memory map, peak, graph, modules of the model, file size, devices, verification.

    The page is one HTML file that needs no network: NAME.html next to the program, or the path in --output. The page
    includes facts from files that the build wrote next to the program, and from the program's data files. Needs neither
    torch nor executorch, and runs no code of the file. Formats of --output: html.
    """
    outputs = parse_outputs(output, allowed=("html",))
    file, known, project, _ = named_program(program, target, config, data, profile=profile)
    given = known if project is None else data or ()  # The report of a target names its data files.
    from etdev.inspection.report import file_page, files_read, page_place

    outputs.refuse(*files_read(file, given))
    page = file_page(file, given)
    outputs = outputs if outputs.items else Outputs((Output("html", page_place(file)),))
    outputs.write({"html": lambda: page})
    for item in outputs.items:
        _say(item.path, quiet=quiet)
    return ExitCode.DONE


def _say(place: Path | None, *, quiet: bool) -> None:
    if place is not None:
        note(f"wrote {place}", quiet=quiet)
