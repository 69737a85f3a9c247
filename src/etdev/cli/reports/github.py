"""GitHub's workflow commands, which GitHub shows as annotations on the lines of a pull request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from etdev.cli.rendering.text import count, escaped, printable
from etdev.cli.reports.findings import Finding, Level
from etdev.cli.reports.places import Places
from etdev.files import write_errors_named

MOST_ANNOTATIONS = 10
"""Maximum number of annotations of each kind that GitHub shows for a step. GitHub ignores further annotations."""
_COMMANDS: Mapping[Level, str] = {"error": "error", "warning": "warning", "note": "notice"}
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Environment variable with the path of the step's summary, a Markdown file that GitHub shows on the run's page."""


def as_github(findings: Sequence[Finding], places: Places, *, summary: bool) -> str:
    """Return a workflow command for each finding, but at most ten commands.

    If there are more findings, the tenth command states how many are omitted. If ``summary`` is True, the step's
    summary lists all findings, and the tenth command refers to the summary.
    """
    shown = findings if len(findings) <= MOST_ANNOTATIONS else findings[: MOST_ANNOTATIONS - 1]
    lines = [_command(finding, places) for finding in shown]
    if rest := len(findings) - len(shown):
        where = "in the summary of this step" if summary else "see `--output text`"
        worst = _COMMANDS[findings[len(shown)].level]
        lines.append(f"::{worst} title=etdev::{count(rest, 'more finding')}: {where}")
    return "".join(f"{line}\n" for line in lines)


def append_summary(markdown: str, environ: Mapping[str, str]) -> None:
    """Append a report to the step's summary, if GitHub provides one. Raises :class:`~etdev.errors.WriteError`."""
    if path := environ.get(SUMMARY_VARIABLE):
        with write_errors_named(Path(path)), open(path, "a", encoding="utf-8") as file:
            file.write(markdown if markdown.endswith("\n") else f"{markdown}\n")


def has_summary(environ: Mapping[str, str]) -> bool:
    """Return True if GitHub provides a summary of the step."""
    return bool(environ.get(SUMMARY_VARIABLE))


def _command(finding: Finding, places: Places) -> str:
    properties = {"title": f"etdev: {finding.rule}"}
    message = finding.message
    if finding.line is not None and finding.source is not None:
        file = str(places.path(finding.source)).replace(os.sep, "/")
        column = {} if finding.column is None else {"col": str(finding.column)}
        properties = {"file": file, "line": str(finding.line), **column, **properties}
    elif finding.source:
        message = f"{finding.source}: {message}"
    if finding.hint:
        message = f"{message}\nhelp: {finding.hint}"
    listed = ",".join(f"{name}={_escape_property(printable(value))}" for name, value in properties.items())
    return f"::{_COMMANDS[finding.level]} {listed}::{_escape_data(escaped(message))}"


def _escape_data(text: str) -> str:
    # @actions/core, command.ts: escapeData
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    # @actions/core, command.ts: escapeProperty
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")
