"""The command ``etdev deploy``, which deploys a built target, returns to an earlier release, or lists the releases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from etdev.cli.common import (
    ConfigOption,
    OutputOption,
    ProfileOption,
    QuietOption,
    SetOption,
    VerboseOption,
    complete_deployment,
    complete_target,
)
from etdev.cli.rendering.output import TEXT, parse_outputs
from etdev.cli.rendering.text import columns, count, line, lines, printable
from etdev.errors import ExitCode, UsageError
from etdev.units import format_size

if TYPE_CHECKING:
    from etdev.pipeline.deploy import DeployResult, ReleaseInfo, ReleaseList
    from etdev.pipeline.project import Project

NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="A deployment in the config: NAME of `deploy.NAME`.",
        autocompletion=complete_deployment,
        show_default=False,
    ),
]


def deploy(
    name: NameArgument = None,
    target: Annotated[
        str | None,
        typer.Option(
            "-t",
            "--target",
            metavar="TARGET",
            help="A target that has only one deployment, instead of NAME.",
            autocompletion=complete_target,
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    dry: Annotated[
        bool,
        typer.Option("--dry-run", help="Connect and report what would be done, without changes at the destination."),
    ] = False,
    rollback: Annotated[bool, typer.Option("--rollback", help="Return to the release before the current one.")] = False,
    stale: Annotated[
        bool,
        typer.Option("--stale", help="Deploy the built files even if config, code or weights changed since the build."),
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the releases at the destination.")] = False,
    output: OutputOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Deploy the built files of a target as one release, and make this release current in one step.

    Refuses a target that verification rejected, that missed a gate or that was not verified. Without --stale, also
    refuses a target whose config, code or weights changed since the build. Formats of --output: text, json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    chosen = [
        option for option, wanted in {"--dry-run": dry, "--rollback": rollback, "--list": listed}.items() if wanted
    ]
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]} cannot be used together", hint="remove one of them")
    from etdev.cli.rendering.build_progress import shown_progress
    from etdev.pipeline.api import open_project
    from etdev.pipeline.deploy import DeployOptions, deploy_project, list_project

    project = open_project(config, profile=profile, overrides=overrides or ())
    outputs.refuse(*project.files)
    name = _deployment(project, name, target)
    if listed:
        found = list_project(project, name)
        outputs.write({TEXT: lambda: render_list(found), "json": lambda: found.model_dump_json(indent=2)})
        return ExitCode.DONE
    with shown_progress(quiet=quiet) as progress:
        result = deploy_project(
            project, name, DeployOptions(dry_run=dry, rollback=rollback, stale=stale, progress=progress)
        )
    outputs.write({TEXT: lambda: render(result), "json": lambda: result.model_dump_json(indent=2)})
    return ExitCode.DONE


def _deployment(project: Project, name: str | None, target: str | None) -> str:
    """Return the name of a deployment: ``name``, or the only deployment of ``target``."""
    if name is not None and target is not None:
        raise UsageError(
            f"{name!r} and --target {target} both select a deployment", where="--target", hint="use only one of them"
        )
    if name is not None:
        return name
    if target is None:
        raise UsageError(
            "Missing argument 'NAME'.",
            hint="add the name of a deployment, such as `board` for the table `deploy.board` in the config",
        )
    found = [deployment for deployment, table in project.config.deploy.items() if table.target == target]
    if len(found) != 1:
        message = f"the target {target!r} has {count(len(found), 'deployment')}"
        hint = (
            f"use the name of one: {', '.join(found)}" if found else "run `etdev config show` to list the deployments"
        )
        raise UsageError(message, where="--target", hint=hint)
    return found[0]


def render(result: DeployResult) -> str:
    """Return a line about the current release, and the changes that the command made or would make."""
    return "\n".join([f"{result.name}  {printable(result.uri)}", *_lines(result)])


def _lines(result: DeployResult) -> Iterator[str]:
    would = result.dry_run
    yield line("would be" if would else "current", f"{result.release}{_ALREADY[result.action]}")
    if result.action != "unchanged":
        yield line("before", result.before or "nothing")
    if result.action == "published":
        for file in result.files:
            size = f"{format_size(file.size)} ({file.size:,} bytes)"
            yield line("file", f"{file.name}  {size}  sha256 {file.sha256[:12]}…")
    if result.not_run:
        yield line("not run", f"{', '.join(result.not_run)}, as the manifest states")
    yield from lines("would be removed" if would else "removed", map(printable, (*result.removed, *result.leftovers)))
    yield from lines("note", map(printable, result.notes))
    if would:
        yield line("dry run", "nothing was changed")


_ALREADY = {
    "published": "",
    "switched": ", which was already there",
    "unchanged": ", which has the same content already: nothing to do",
}


def render_list(found: ReleaseList) -> str:
    """Return a line for each release, newest first; ``*`` marks the current one."""
    head = f"{found.name}  {printable(found.uri)}  {count(len(found.releases), 'release')}"
    return "\n".join([head, *columns([_row(item) for item in found.releases])])


def _row(item: ReleaseInfo) -> tuple[str, ...]:
    if item.problem is not None:
        return ("*" if item.current else " ", item.name, printable(item.problem), "", "")
    what = f"{item.project} {item.target}"
    size = format_size(item.size or 0)
    return ("*" if item.current else " ", item.name, what, size, f"etdev {item.etdev}")
