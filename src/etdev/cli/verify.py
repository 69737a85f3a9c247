"""The command ``etdev verify``, which runs the checks on artifacts of an earlier build, or on any ``.pte``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etdev.cli.calls import require_config
from etdev.cli.common import (
    ConfigOption,
    DataOption,
    DeviceMapOption,
    LibraryDetailOption,
    OutputOption,
    ProfileOption,
    QuietOption,
    RequireOption,
    SetOption,
    TargetOption,
    complete_target,
)
from etdev.cli.rendering.detail import Detail
from etdev.cli.rendering.output import parse_outputs
from etdev.config.limits import MOST_WORKERS
from etdev.errors import UsageError

if TYPE_CHECKING:
    from etdev.cli.rendering.output import Outputs
    from etdev.pipeline.project import Project
    from etdev.pipeline.project.options import BuildOptions

ArtifactsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET|FILE",
        help="Globs of targets to verify, or .pte files. Default: all targets.",
        autocompletion=complete_target,
    ),
]


def verify(
    artifacts: ArtifactsArgument = None,
    named: TargetOption = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    require: RequireOption = None,
    device_map: DeviceMapOption = None,
    data: DataOption = None,
    jobs: Annotated[
        int,
        typer.Option(
            "-j",
            "--jobs",
            metavar="N",
            help="Use N workers for the samples that a metric passes to `run.map`, if the program keeps no state.",
            min=1,
            max=MOST_WORKERS,
        ),
    ] = 1,
    output: OutputOption = None,
    quiet: QuietOption = False,
    verbose: LibraryDetailOption = 0,
) -> int:
    """Verify built targets again, with the models and data of the config; or verify any .pte without a config.

    For a target, code of the project runs. For a file, only the program runs, in etdev's interpreter. Changes no files.
    Formats of --output: text, json, github, sarif, md.
    """
    from etdev.cli.reports import ALL_FORMATS, reported_errors

    outputs = parse_outputs(output, allowed=ALL_FORMATS)
    shown = Detail.LINE if quiet else Detail.FULL
    files = [name for name in artifacts or () if name.endswith(".pte") or Path(name).is_file()]
    targets = (*(artifacts or ()), *(named or ()))
    if files:
        settings = {"--config": config, "--profile": profile, "--set": overrides, "--jobs": jobs > 1}
        _refuse_mixture(files, targets, [name for name, value in settings.items() if value])
        outputs.refuse(*files, *data or ())
        if data and len(files) > 1:
            raise UsageError(
                f"data files can be passed for one program only, but there are {len(files)} programs",
                where="--data",
                hint="verify one file at a time",
            )
        with reported_errors(outputs, "verify"):
            return _verify_files(files, require or (), device_map, data or (), outputs, shown)
    if data:
        raise UsageError(
            "data files can be passed only with a .pte file; etdev finds those of a target on its own",
            where="--data",
            hint="remove `--data`",
        )
    if config is None and targets:
        require_config(targets[0])
    from etdev.cli.reports.projects import opened_project

    project = opened_project(outputs, "verify", config, profile=profile, overrides=overrides or ())
    with reported_errors(outputs, "verify"):
        from etdev.pipeline.project.options import BuildOptions, check_device_map, parse_checks

        options = BuildOptions(
            targets=targets,
            require=parse_checks(require or ()),
            device_map=check_device_map(device_map),
            metric_jobs=jobs,
            verbose=verbose > 1,
        )
        return _verify_targets(project, options, outputs, shown)


def _verify_targets(project: Project, options: BuildOptions, outputs: Outputs, shown: Detail) -> int:
    from etdev.cli.rendering.build_progress import shown_progress
    from etdev.pipeline.project.options import choose_targets

    doing = f"verifying {', '.join(choose_targets(project, options.targets))}"
    with shown_progress(doing, quiet=shown is Detail.LINE) as options.progress:
        from etdev.cli.rendering.build_result import render_result
        from etdev.cli.reports.results import write_result
        from etdev.pipeline.verify_target import verify_project

        result = verify_project(project, options)
    write_result(outputs, result, lambda: render_result(result, shown))
    return result.exit_code


def _verify_files(
    files: Sequence[str],
    require: Sequence[str],
    device_map: str | None,
    data: Sequence[Path],
    outputs: Outputs,
    shown: Detail,
) -> int:
    from etdev.cli.reports.results import write_files
    from etdev.pipeline.project.options import check_device_map, parse_checks
    from etdev.verification.verify_file import verify_files

    result = verify_files(files, require=parse_checks(require), device_map=check_device_map(device_map), data=data)
    write_files(outputs, result, shown)
    return result.exit_code


def _refuse_mixture(files: Sequence[str], names: Sequence[str], settings: Sequence[str]) -> None:
    """Raise an error if files are passed together with targets or with settings for a config.

    A config does not apply to files.
    """
    others = [name for name in names if name not in files]
    if others:
        raise UsageError(
            f"{files[0]!r} is a file, but {others[0]!r} is not a file", hint="verify files and targets separately"
        )
    if settings:
        raise UsageError(
            f"{files[0]!r} is a file, and files are verified without a config",
            where=settings[0],
            hint=f"remove `{settings[0]}`",
        )
