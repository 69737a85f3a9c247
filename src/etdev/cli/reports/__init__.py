"""Reports of commands to CI systems: one list of findings, and one renderer for each format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from etdev.cli.rendering.output import TEXT, Outputs, print_error
from etdev.cli.reports import github, markdown
from etdev.cli.reports.findings import Finding, of_error
from etdev.cli.reports.places import Places
from etdev.cli.reports.sarif import as_sarif
from etdev.config.parsing.config_files import DEFAULT_NAMES, PYPROJECT, find_config
from etdev.config.parsing.extends import read_files
from etdev.errors import ConfigError, EtdevError

FORMATS = ("github", "sarif", "md")
"""Formats that show findings to CI systems."""
ALL_FORMATS = (TEXT, "json", *FORMATS)


@dataclass(frozen=True)
class Report:
    """A report of a command to a CI system."""

    findings: Sequence[Finding]
    """Findings, the most serious first."""
    markdown: Callable[[], str]
    """Function that renders the whole report as Markdown, with findings and figures."""
    about: str | None = None
    """The config file. Some formats require a file for each finding, so findings without a file get this file."""


def write_report(outputs: Outputs, report: Report, own: Mapping[str, Callable[[], str]]) -> None:
    """Write a report in the requested formats.

    ``own`` maps each of the command's other formats, such as ``text``, to a function that renders it. Raises
    :class:`~etdev.errors.UsageError` if an output would overwrite a file that a finding refers to.
    """
    outputs.refuse(*(finding.source for finding in report.findings))
    places = Places.here(os.environ)
    with_summary = github.has_summary(os.environ)
    outputs.write(
        {
            **own,
            "github": lambda: github.as_github(report.findings, places, summary=with_summary),
            "sarif": lambda: as_sarif(report.findings, places, about=report.about),
            "md": report.markdown,
        }
    )
    if with_summary and any(item.format == "github" for item in outputs.items):
        github.append_summary(report.markdown(), os.environ)


def error_report(error: EtdevError, command: str) -> Report:
    """Return the report on an error that ended a command."""
    findings = of_error(error)
    return Report(findings, lambda: markdown.of_findings(f"`etdev {command}` failed", findings))


@contextmanager
def reported_errors(outputs: Outputs, command: str) -> Iterator[None]:
    """If the block raises an error, write the error in the requested formats for CI systems and raise it again."""
    try:
        yield
    except EtdevError as error:
        wanted = Outputs(tuple(item for item in outputs.items if item.format in FORMATS))
        try:
            write_report(wanted, error_report(error, command), {})
        except EtdevError as other:  # The command's error matters more than an error in writing the report.
            print_error(other.message, where=other.where, hint=other.hint)
        raise


def refuse_config(outputs: Outputs, config: Path | None) -> None:
    """Raise :class:`~etdev.errors.UsageError` if an output would replace a config file.

    This includes files of an invalid config, and files that the config extends.
    """
    if not any(item.path for item in outputs.items):
        return
    outputs.refuse(*((*DEFAULT_NAMES, PYPROJECT) if config is None else (config,)))
    cwd = Path.cwd()
    with suppress(ConfigError):  # If there is no config, the code that opens it reports the error.
        main = find_config(cwd) if config is None else Path(os.path.normpath(cwd / config))
        outputs.refuse(*read_files(main, cwd).files)
