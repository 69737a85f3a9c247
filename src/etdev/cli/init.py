"""The command ``etdev init``, which writes a new project from a template, or adds a template to a project."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from etdev import plugins
from etdev.cli.ask import ask, can_ask, choose, confirm
from etdev.cli.common import QuietOption, VerboseOption
from etdev.cli.rendering.output import note
from etdev.cli.rendering.text import count
from etdev.errors import ExitCode, MissingRequirementError, UsageError
from etdev.files import real_path
from etdev.plugins import TEMPLATES
from etdev.templates import get, is_project_name, project_name_from, render, render_addition, shared_files
from etdev.templates.create import Plan, create_project, plan_project, refuse_existing

_DEFAULT = "minimal"


def _print_templates(wanted: bool) -> None:
    if wanted:
        summaries = _summaries()
        width = max(map(len, summaries))
        for name, summary in summaries.items():
            print(f"{name:{width}}  {summary}")
        raise typer.Exit


def _summaries() -> dict[str, str]:
    """Map each template's name to a line about the template.

    The line is the template's summary, or the reason why the template cannot be used.
    """
    found = {}
    for name in plugins.names(TEMPLATES):
        try:
            found[name] = get(name).summary
        except MissingRequirementError as error:
            found[name] = f"not usable: {error.message}"
    return found


def _complete_template(incomplete: str) -> list[tuple[str, str]]:
    return [(name, summary) for name, summary in _summaries().items() if name.startswith(incomplete)]


def init(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder of the project; made if missing.", show_default="here")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            metavar="NAME",
            help="Template of the project.",
            autocompletion=_complete_template,
            show_default=_DEFAULT,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the project. Default: the name of the folder.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask; use the defaults.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace existing files; each old file is kept as NAME.bak.")
    ] = False,
    list_templates: Annotated[
        bool, typer.Option("--list", is_eager=True, callback=_print_templates, help="List the templates and exit.")
    ] = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Write a new project that builds and verifies without changes, or add a template to a project.

    On a terminal, asks for values that were not given, unless there is --yes or the variable CI; otherwise uses the
    defaults. Never replaces existing files without --force or your consent.
    """
    asks = can_ask() and not yes
    template = _template(template, asks=asks)
    if name is not None:
        _checked_name(name)
    if folder is None:
        folder = Path(ask("Folder", ".", _expanded)) if asks else Path()
    contents, build = _contents(template, folder, name, asks=asks)
    plan = plan_project(folder, contents, shared_files(template))
    replace = force or (asks and _may_go_on(plan))
    backups = create_project(plan, replace=replace)
    if not quiet:
        _say_what_was_done(plan, backups)
        note("Next: " + " && ".join([*_preparations(folder), build]))
    return ExitCode.DONE


def _template(template: str | None, *, asks: bool) -> str:
    if template is None:
        return choose("Template", _summaries(), _DEFAULT) if asks else _DEFAULT
    known = plugins.names(TEMPLATES)
    if template not in known:
        hint = f"use one of: {', '.join(known)}"
        raise UsageError(f"there is no template {template!r}", where="--template", hint=hint)
    return template


def _contents(template: str, folder: Path, name: str | None, *, asks: bool) -> tuple[dict[str, bytes], str]:
    """Return the files to write, and the command that builds the project.

    ``name`` must be None if the template is added to an existing project.
    """
    chosen = get(template)
    if chosen.base is not None:
        from etdev.config.parsing.config_files import has_config
        from etdev.templates.existing import read_project

        if has_config(folder):
            if name is not None:
                raise UsageError(
                    f"{template!r} is added to the existing project in this folder, so a new name has no effect",
                    where="--name",
                    hint="remove `--name`, or change `name` under `[project]` in the config",
                )
            project = read_project(folder)
            return render_addition(template, project), project.build
    default = project_name_from(real_path(folder).name)
    if name is None:
        name = ask("Name of the project", default, _checked_name) if asks else default
    return render(template, name), chosen.build


def _expanded(folder: str) -> str:
    """Return the folder with ``~`` expanded, as a shell does."""
    try:
        return str(Path(folder).expanduser())
    except RuntimeError as error:
        raise UsageError(
            f"the home folder in {folder!r} belongs to an unknown user", hint="use another folder"
        ) from error


def _checked_name(name: str) -> str:
    if not is_project_name(name):
        raise UsageError(
            f"{name!r} cannot be the name of a project, because etdev names files after the project",
            where="--name",
            hint="use letters, digits, `.`, `_` and `-`, with a letter or digit first: for example "
            f"{project_name_from(name)!r}",
        )
    return name


def _may_go_on(plan: Plan) -> bool:
    """Ask before files are replaced or mixed with other files; return True if existing files may be replaced.

    Raises :class:`UsageError` if the answer is no.
    """
    if plan.different:
        if not confirm(f"Replace {', '.join(plan.different)} (kept as NAME.bak)?", default=False):
            refuse_existing(plan)
        return True
    if plan.new and plan.folder.is_dir() and any(plan.folder.iterdir()):
        question = f"{plan.folder} is not empty. Add {count(len(plan.new), 'file')}?"
        if not confirm(question, default=True):
            raise UsageError("nothing was written", where=str(plan.folder))
    return False


def _say_what_was_done(plan: Plan, backups: dict[str, str]) -> None:
    if plan.new:
        note(f"Wrote {', '.join(plan.new)} to {plan.folder}")
    if plan.unchanged:
        note(f"Unchanged: {', '.join(plan.unchanged)}")
    for path, backup in backups.items():
        note(f"Replaced {path}: the previous file is {backup}")
    for path, missing in plan.additions.items():
        place = "" if missing.under is None else f" under `{missing.under}`"
        lines = "\n".join(f"    {line}".rstrip() for line in missing.lines)
        note(f"Kept your file {path}. Add these lines to the file{place}:\n\n{lines}\n")


def _preparations(folder: Path) -> Iterator[str]:
    """Yield the commands that are needed before the project in a folder can be built from this folder."""
    from etdev.extras import install_command
    from etdev.templates.existing import missing_extras

    extras = missing_extras(folder)
    if extras:
        yield install_command(*extras)
    if folder != Path():
        yield f"cd {_for_shell(folder)}"


def _for_shell(folder: Path) -> str:
    """Return the folder as an argument that users can copy into a shell."""
    text = str(folder)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
