"""``etdev verify``: answer the rungs for artifacts that were built before."""

from __future__ import annotations

from typing import Annotated

import typer

from etdev.cli.common import (
    ConfigOption,
    OutputOption,
    ProfileOption,
    QuietOption,
    RequireOption,
    SetOption,
    VerboseOption,
    complete_target,
)
from etdev.cli.output import parse_outputs

TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TARGET]...", help="Targets to verify, as globs. Default: all.", autocompletion=complete_target
    ),
]


def verify(
    targets: TargetsArgument = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    require: RequireOption = None,
    output: OutputOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Verify the built artifacts again, against the models and data of the config.

    Runs the code that the config names; changes no file. Formats of --output: text, json.
    """
    outputs = parse_outputs(output, allowed=("text", "json"))
    from etdev.cli.progress import shown_progress
    from etdev.cli.render import render_result
    from etdev.pipeline.api import open_project
    from etdev.pipeline.options import BuildOptions, check_rungs
    from etdev.pipeline.verify.existing import verify_project

    project = open_project(config, profile=profile, overrides=overrides or ())
    options = BuildOptions(targets=targets or (), require=check_rungs(require or ()), verbose=verbose)
    with shown_progress(quiet=quiet) as options.progress:
        result = verify_project(project, options)
    outputs.write({"text": lambda: render_result(result), "json": lambda: result.model_dump_json(indent=2)})
    return result.exit_code
