"""Functions that write results of builds and verifications in every format."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from etdev.cli.rendering.build_result import render_files
from etdev.cli.rendering.detail import Detail
from etdev.cli.rendering.output import TEXT, Outputs
from etdev.cli.reports import Report, findings, markdown, write_report

if TYPE_CHECKING:
    from etdev.pipeline.results.file_result import FilesResult
    from etdev.pipeline.results.result import BuildResult


def write_result(outputs: Outputs, result: BuildResult, text: Callable[[], str], **more: Callable[[], str]) -> None:
    """Write the result of a build, or of a verification of targets, in the requested formats.

    ``text`` renders the text. ``more`` maps each of the command's other formats to a function that renders it.
    """
    found = findings.of_result(result)
    report = Report(found, partial(markdown.of_result, result, found), result.config)
    write_report(outputs, report, {TEXT: text, "json": lambda: result.model_dump_json(indent=2), **more})


def write_files(outputs: Outputs, result: FilesResult, shown: Detail) -> None:
    """Write the result of verifying files in the requested formats."""
    found = findings.of_files(result)
    report = Report(found, partial(markdown.of_files, result, found))
    own = {TEXT: lambda: render_files(result, shown), "json": lambda: result.model_dump_json(indent=2)}
    write_report(outputs, report, own)
