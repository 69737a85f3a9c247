"""Options that several commands share, one type for each option, so that all commands describe them in the same way.

A command declares them as parameters::

    def validate(config: ConfigOption = None, overrides: SetOption = None, output: OutputOption = None) -> int: ...
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from etdev.config.limits import MOST_WORKERS


def complete_target(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return matching names of targets in the config, for shell completion."""
    return _matching(_names_in_config(ctx, "targets"), incomplete)


def complete_profile(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return matching names of profiles in the config, for shell completion."""
    return _matching(_names_in_config(ctx, "profiles"), incomplete)


def complete_deployment(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return matching names of deployments in the config, for shell completion."""
    return _matching(_names_in_config(ctx, "deploy"), incomplete)


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--config",
        metavar="FILE",
        help="The config file. Default: etdev.toml, etdev.yaml or [tool.etdev] of pyproject.toml in this folder.",
        show_default=False,
    ),
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option(
        "-t",
        "--target",
        metavar="GLOB",
        help="The same as TARGET. Repeatable.",
        autocompletion=complete_target,
        show_default=False,
    ),
]
TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET",
        help="Only the targets whose names match one of these globs. Default: all targets.",
        autocompletion=complete_target,
        show_default=False,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "-p",
        "--profile",
        metavar="NAME",
        help="Apply the profile [profiles.NAME] to the config.",
        autocompletion=complete_profile,
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key; the value is read as TOML: --set targets.cpu.verify.atol=1e-3. Repeatable.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        metavar="FORMAT[=PATH]",
        help="Format of the output, and file to write (default: standard output). Missing folders are made. "
        "Repeatable.",
        show_default=False,
    ),
]
RequireOption = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="CHECK",
        help="A check that must run; if it does not run, the exit code is 3. Repeatable.",
        show_default=False,
    ),
]
DeviceMapOption = Annotated[
    str | None,
    typer.Option(
        "--device-map",
        metavar="MAP",
        help="Local devices for the program's devices: cuda:0=sim simulates cuda:0, cuda:1=cuda:0 uses cuda:0 as "
        "cuda:1. Separate several with commas. Default: CUDA devices are used as they are.",
        show_default=False,
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "-j",
        "--jobs",
        metavar="N",
        help="Build N targets, or methods of targets, at the same time, each in a process. Default: `run.jobs` "
        "of the config, or 1.",
        min=1,
        max=MOST_WORKERS,
        show_default=False,
    ),
]
DataOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--data",
        metavar="FILE",
        help="A .ptd file with data of the program. Repeatable. Not for a target. Not needed for a file in a deployed "
        "release or next to the report of its build, because etdev then finds the data files.",
        show_default=False,
    ),
]
QuietOption = Annotated[bool, typer.Option("-q", "--quiet", help="Print only errors, warnings and results.")]
VerboseOption = Annotated[bool, typer.Option("-v", "--verbose", help="Print more, and show tracebacks.")]
DetailOption = Annotated[
    int,
    typer.Option(
        "-v",
        "--verbose",
        count=True,
        help="Print more, and show tracebacks. Twice: print each decision of the linker, and warnings of libraries.",
    ),
]
LibraryDetailOption = Annotated[
    int,
    typer.Option(
        "-v", "--verbose", count=True, help="Print more, and show tracebacks. Twice: show warnings of libraries, too."
    ),
]


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _names_in_config(ctx: typer.Context, table: str) -> list[str]:
    """Return the names in a table of the config file, for shell completion.

    This function neither validates the config nor reads the files that the config extends.
    """
    from etdev.config.parsing.config_files import find_config, read_document

    try:
        path = ctx.params.get("config") or find_config(Path.cwd())
        return list(read_document(path, str(path)).data[table])
    except Exception:  # noqa: BLE001 - a config that cannot be read completes nothing; a message would garble the prompt
        return []
