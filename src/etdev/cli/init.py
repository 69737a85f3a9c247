"""``etdev init``: a new project from a template."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from etdev.cli.common import QuietOption, VerboseOption
from etdev.cli.output import note
from etdev.errors import ExitCode, UsageError
from etdev.templates import TEMPLATES, is_project_name, project_name_from, render
from etdev.templates.create import create_project


def _print_templates(wanted: bool) -> None:
    if wanted:
        width = max(map(len, TEMPLATES))
        for name, template in TEMPLATES.items():
            print(f"{name:{width}}  {template.summary}")
        raise typer.Exit


def _complete_template(incomplete: str) -> list[tuple[str, str]]:
    return [(name, template.summary) for name, template in TEMPLATES.items() if name.startswith(incomplete)]


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write it; made if missing.", show_default="here")
    ] = Path(),
    template: Annotated[
        str, typer.Option("--template", metavar="NAME", help="What to write.", autocompletion=_complete_template)
    ] = "minimal",
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the project. Default: the folder's.", show_default=False)
    ] = None,
    list_templates: Annotated[
        bool, typer.Option("--list", is_eager=True, callback=_print_templates, help="List the templates and exit.")
    ] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Write a new project that builds and verifies as it is. Files that exist are never overwritten."""
    if template not in TEMPLATES:
        raise UsageError(
            f"there is no template {template!r}", where="--template", hint=f"one of: {', '.join(TEMPLATES)}"
        )
    if name is not None and not is_project_name(name):
        raise UsageError(
            f"{name!r} cannot be a project's name, which becomes a file name",
            where="--name",
            hint=f"for example {project_name_from(name)!r}: letters, digits, `.`, `_` and `-`, first a letter or digit",
        )
    chosen = TEMPLATES[template]
    contents = render(template, name or project_name_from(folder.resolve().name))
    create_project(folder, contents)
    note(f"Wrote {', '.join(contents)} to {folder}", quiet=quiet)
    note("Next:" + ("" if folder == Path() else f" cd {_for_shell(folder)} &&") + f" {chosen.build}", quiet=quiet)
    return ExitCode.DONE


def _for_shell(folder: Path) -> str:
    """The folder as an argument that can be copied into a shell."""
    text = str(folder)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
