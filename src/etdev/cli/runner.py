"""The command ``etdev runner``, which writes a C++ project that runs a program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etdev.cli.calls import NamedProgram, OneTargetOption, ProgramArgument, named_program
from etdev.cli.common import ConfigOption, DataOption, ProfileOption, QuietOption
from etdev.cli.rendering.output import note
from etdev.errors import ExitCode

if TYPE_CHECKING:
    from etdev.runner.make import Project


def runner(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write it; made if missing.", show_default=False)
    ],
    program: ProgramArgument = None,
    target: OneTargetOption = None,
    data: DataOption = None,
    embed: Annotated[
        bool, typer.Option("--embed", help="Make the program and its data C arrays, as firmware needs them.")
    ] = False,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    quiet: QuietOption = False,
) -> int:
    """Write a C++ project that runs a .pte in static memory, with ExecuTorch's C++ runtime.

    The project compiles and runs without changes, and can be the start of firmware. A header lists the sizes of all
    memory. Without FILE|TARGET, the config must have exactly one target. Needs executorch 1.5 or later, a C++ compiler
    and CMake, to measure the sizes of the program's pools. Replaces only files that etdev wrote and that you have not
    changed.
    """
    target = target if program or target else _only_target(config, profile)
    named = named_program(program, target, config, data, profile=profile)
    from etdev.runner import make_project

    made = make_project(
        folder,
        named.file,
        named.data,
        embed=embed,
        alignment=_alignment(named),
        notify=lambda text: note(text, quiet=quiet),
    )
    _say(folder, made, quiet=quiet)
    return ExitCode.DONE


def _only_target(config: Path | None, profile: str | None) -> str:
    """Return the name of the config's only target. Raises :class:`UsageError` if the config has several targets."""
    from etdev.errors import UsageError
    from etdev.pipeline.api import open_project

    names = list(open_project(config, profile=profile).config.targets)
    if len(names) > 1:
        raise UsageError(
            f"the config has several targets: {', '.join(names)}", hint="select one of them: `etdev runner DIR TARGET`"
        )
    return names[0]


def _alignment(named: NamedProgram) -> int | None:
    """Return the alignment that the config sets for a target; None for a file."""
    if named.project is None or named.target is None:
        return None
    return named.project.config.targets[named.target].memory.alignment


def _say(folder: Path, made: Project, *, quiet: bool) -> None:
    facts = made.facts
    arenas = sum(arena.size for arena in facts.layout.arenas)
    pools = sum(facts.pools(method.name).method for method in facts.layout.methods)
    note(f"Wrote {', '.join(made.changed)} to {folder}" if made.changed else f"Unchanged: {folder}", quiet=quiet)
    note(
        f"{facts.ram:,} bytes of static memory: {arenas:,} planned, {pools:,} for methods, {facts.temp:,} temporary, "
        f"{facts.layout.io:,} for inputs and outputs" + ("" if facts.embed else f", {facts.file_bytes:,} for files"),
        quiet=quiet,
    )
    if facts.heap:
        users = " and ".join(facts.heap_users)
        note(f"In addition, at most {facts.heap:,} bytes of heap for {users}, as measured", quiet=quiet)
    note(f"Next: {folder / 'README.md'} has the commands that compile and run the project", quiet=quiet)
