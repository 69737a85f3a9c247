"""Findings of a command: one list, from which each format for CI systems is rendered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from etdev.config.check_names import unjudged_level
from etdev.errors import ConfigError, EtdevError, Problem, TargetsError
from etdev.pipeline.results.never_ran import never_ran

if TYPE_CHECKING:
    from etdev.pipeline.results.file_result import FilesResult
    from etdev.pipeline.results.result import BuildResult, CheckResult, FailedTarget, TargetResult

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""All levels, the most serious first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a command."""

    rule: str
    """Name of the rule: a key of :data:`~etdev.cli.reports.rules.RULES`."""
    message: str
    """Message, as a sentence."""
    level: Level = "error"
    source: str | None = None
    """Source of the finding: a file, with its path as in messages, or another source, such as ``--set``."""
    line: int | None = None
    """Line number, from 1."""
    column: int | None = None
    """Column number in characters, from 1."""
    key: str = ""
    """Config key that causes the finding, such as ``targets.cpu.budget.file``."""
    hint: str | None = None
    """Advice on the finding."""


_WHERE = re.compile(
    r"(?P<source>.+?)(?::(?P<line>[1-9]\d*)(?::(?P<column>[1-9]\d*))?)?(?: \((?P<key>[^()]+)\))?", re.DOTALL
)
"""Pattern of a location from :meth:`etdev.pipeline.project.Project.where`: ``etdev.toml:3:9 (model.entry)``.

All parts except the file may be missing.
"""


def at(finding: Finding, where: str | None) -> Finding:
    """Return a copy of the finding with the location ``where``, a text such as ``etdev.toml:3:9 (model.entry)``."""
    match = _WHERE.fullmatch(where) if where else None
    if match is None:
        return finding
    line, column = (None if match[name] is None else int(match[name]) for name in ("line", "column"))
    return replace(finding, source=match["source"], line=line, column=column, key=match["key"] or "")


def of_problems(problems: Iterable[Problem], level: Level = "error") -> list[Finding]:
    """Return the findings for problems in a config, by default as errors."""
    return [
        Finding(item.rule, item.message, level, item.source, item.line, item.column, item.key, item.hint)
        for item in problems
    ]


def of_error(error: EtdevError) -> list[Finding]:
    """Return the findings for the error that ended a command."""
    if isinstance(error, ConfigError):
        return of_problems(error.problems)
    if isinstance(error, TargetsError):
        return [
            replace(finding, message=_of_target(name, finding.message))
            for name, own in error.errors.items()
            for finding in of_error(own)
        ]
    return [at(Finding(error.rule, error.message, hint=error.hint), error.where)]


def of_result(result: BuildResult) -> list[Finding]:
    """Return the findings on unbuilt targets and on check results, with the most serious findings first."""
    found = (
        finding
        for target in result.targets
        for finding in (
            *_of_checks(_of_target(target.name, ""), target.checks, target.unmet),
            *_of_warnings(target),
            *_of_never_ran(target),
        )
    )
    return in_order([*_of_failed(result.failed), *found])


def _of_warnings(target: TargetResult) -> Iterator[Finding]:
    for warning in target.warnings:
        message = _of_target(target.name, warning.message)
        rule = "split-state" if warning in target.split_state else "not-tried"
        yield at(Finding(rule, message, "warning", hint=warning.hint), warning.where)


def _of_never_ran(target: TargetResult) -> Iterator[Finding]:
    found = never_ran(target)
    if found is not None:
        yield Finding("never-ran", _of_target(target.name, found.message), "warning", hint=found.hint)


def of_files(result: FilesResult) -> list[Finding]:
    """Return the findings on files that were verified without a config."""
    found = (
        finding if finding.source is not None else replace(finding, source=file.file)
        for file in result.files
        for finding in _of_checks("", file.checks, file.unmet)
    )
    return in_order(found)


def _of_failed(targets: Iterable[FailedTarget]) -> Iterator[Finding]:
    for target in targets:
        for error in target.errors:
            yield at(Finding(error.rule, _of_target(target.name, error.message), hint=error.hint), error.where)


def _of_target(name: str, message: str) -> str:
    return f"target {name!r}: {message}"


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, sorted by level with errors first. Findings of the same level stay in the given order."""
    return sorted(findings, key=lambda finding: LEVELS.index(finding.level))


def _of_checks(prefix: str, checks: Sequence[CheckResult], unmet: Sequence[CheckResult]) -> Iterator[Finding]:
    for check in checks:
        if check.status == "failed" and check.failures:
            for failure in check.failures:
                yield at(Finding(check.name, f"{prefix}{failure.message}", hint=failure.hint), failure.where)
        elif check.status == "failed":
            for problem in check.problems or (check.summary,):
                yield at(Finding(check.name, f"{prefix}{problem}", hint=check.hint), check.where)
        elif check in unmet:
            message = f"{prefix}{check.name} is required and did not run: {check.summary}"
            yield Finding("not-run", message, hint=check.hint)
        if check.unjudged is not None and check not in unmet:
            extent = "not checked" if check.status == "not run" else "not checked completely"
            message = f"{prefix}{check.name} was {extent}: {check.summary}"
            yield at(Finding("not-judged", message, unjudged_level(check.name), hint=check.hint), check.unjudged)
