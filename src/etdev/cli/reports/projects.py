"""Function that opens the project of a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etdev.cli.rendering.output import Outputs
from etdev.cli.reports import refuse_config, reported_errors
from etdev.pipeline.api import open_project
from etdev.pipeline.project import Project


def opened_project(
    outputs: Outputs, command: str, config: Path | None, *, profile: str | None, overrides: Sequence[str]
) -> Project:
    """Open the project of a command. If the config has errors, write them in the requested formats for CI systems.

    Raises the errors of :func:`~etdev.pipeline.api.open_project`. Raises :class:`~etdev.errors.UsageError` if an output
    would replace one of the project's files.
    """
    refuse_config(outputs, config)
    with reported_errors(outputs, command):
        project = open_project(config, profile=profile, overrides=overrides)
    outputs.refuse(*project.files)
    return project
