"""The command ``etdev build``, which builds the config's targets and verifies them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from etdev.cli.common import (
    ConfigOption,
    DetailOption,
    DeviceMapOption,
    JobsOption,
    OutputOption,
    ProfileOption,
    QuietOption,
    RequireOption,
    SetOption,
    TargetOption,
    TargetsArgument,
)
from etdev.cli.rendering.detail import Detail, wanted_detail
from etdev.cli.rendering.output import Outputs, parse_outputs
from etdev.errors import EtdevError, UsageError

if TYPE_CHECKING:
    from etdev.pipeline.project import Project
    from etdev.pipeline.project.options import BuildOptions
    from etdev.pipeline.results.result import BuildResult

DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Import the model, call it and check the data, without export or output files."),
]
NoVerifyOption = Annotated[
    bool, typer.Option("--no-verify", help="Stop after writing, without verification; the report says so.")
]
NoCacheOption = Annotated[
    bool, typer.Option("--no-cache", help="Build again even if nothing has changed since an earlier build.")
]
LockedOption = Annotated[
    bool, typer.Option("--locked", help="Fail with exit code 5 if the build differs from the lock.")
]
KeepGoingOption = Annotated[bool, typer.Option("--keep-going", help="Build the other targets, too, if a target fails.")]


def build(
    targets: TargetsArgument = None,
    named: TargetOption = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    require: RequireOption = None,
    device_map: DeviceMapOption = None,
    dry: DryRunOption = False,
    no_verify: NoVerifyOption = False,
    no_cache: NoCacheOption = False,
    locked: LockedOption = False,
    jobs: JobsOption = None,
    keep_going: KeepGoingOption = False,
    output: OutputOption = None,
    quiet: QuietOption = False,
    verbose: DetailOption = 0,
) -> int:
    """Build the config's targets: export, quantize, lower, emit, link, write and verify.

    Runs code of the project. Formats of --output: text, json, html (the page of `etdev report` about all targets),
    github, sarif, md.
    """
    from etdev.cli.reports import ALL_FORMATS, reported_errors

    outputs = parse_outputs(output, allowed=(*ALL_FORMATS, "html"))
    if dry:
        outputs.refuse_format("html", "--dry-run does not build anything, so there is nothing for a page")
    from etdev.cli.reports.projects import opened_project

    project = opened_project(outputs, "build", config, profile=profile, overrides=overrides or ())
    with reported_errors(outputs, "build"):
        from etdev.pipeline.project.options import BuildOptions, check_device_map, parse_checks

        options = BuildOptions(
            targets=(*(targets or ()), *(named or ())),
            require=parse_checks(require or ()),
            verify=not no_verify,
            cache=not no_cache,
            locked=locked,
            jobs=jobs,
            keep_going=keep_going,
            device_map=check_device_map(device_map),
            verbose=verbose > 1,
        )
        return (
            _dry_run(project, options, outputs)
            if dry
            else _build(project, options, outputs, wanted_detail(quiet=quiet, verbose=verbose))
        )


def _build(project: Project, options: BuildOptions, outputs: Outputs, shown: Detail) -> int:
    from etdev.cli.rendering.build_progress import shown_progress
    from etdev.pipeline.project.options import choose_targets

    try:
        doing = f"building {', '.join(choose_targets(project, options.targets))}"
        with shown_progress(doing, quiet=shown is Detail.LINE) as options.progress:
            from etdev.cli.rendering.build_result import render_result
            from etdev.cli.reports.results import write_result
            from etdev.pipeline.builder.build import build_project

            result = build_project(project, options)
    except EtdevError as error:
        if not isinstance(error, UsageError):  # A usage error ends a build before the first target is started.
            _say_built(project)
        raise
    write_result(outputs, result, lambda: render_result(result, shown), html=lambda: _page(result))
    return result.exit_code


def _say_built(project: Project) -> None:
    """Print the names of the targets that were built before an error ended the build."""
    from etdev.cli.rendering.output import note
    from etdev.pipeline.builder.report_file import built_targets

    if names := built_targets(project):
        note(
            f"built before the error: {', '.join(names)}; use `--keep-going` to see their results and to build "
            "the others"
        )


def _page(result: BuildResult) -> str:
    from etdev.inspection.report import build_page

    return build_page(result)


def _dry_run(project: Project, options: BuildOptions, outputs: Outputs) -> int:
    from etdev.cli.reports import Report, write_report
    from etdev.cli.reports.markdown import prose
    from etdev.pipeline.dry_run import describe_calls, dry_run

    found = dry_run(project, options)

    def text() -> str:
        lines = []
        for method in found.methods:
            given = ", ".join(method.outputs) or "nothing"
            lines.append(f"{method.name}: {method.inputs or 'nothing'} -> {given} (largest sizes)")
            lines.append(f"  called with {describe_calls(method)}")
        lines.extend(found.notes)
        lines.append(f"dry run: these calls found no obstacle to a build of {', '.join(found.targets)}")
        lines.append(
            "not tried: export, quantization, lowering and verification, which may fail although these calls succeeded"
        )
        return "\n".join(lines)

    report = Report((), lambda: "\n\n".join(map(prose, text().split("\n"))) + "\n")
    write_report(outputs, report, {"text": text, "json": lambda: found.model_dump_json(indent=2)})
    return 0
