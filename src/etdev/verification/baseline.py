"""Baseline of a target: the figures of an earlier build, and its file if it is available."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from etdev import program as pte
from etdev.backends.reference import DELEGATE_ID
from etdev.files import file_sha256, read_file
from etdev.inspection.measure import measure_program
from etdev.pipeline.cache.lock import read_lock
from etdev.pipeline.project import Project
from etdev.pipeline.project.baseline_source import (
    KEY,
    baseline_name,
    baseline_path,
    committed_lock,
    report_beside,
    report_of,
)
from etdev.pipeline.results.figures import Figures
from etdev.program import Program
from etdev.program.data_files.joined import read_joined
from etdev.program.data_files.lookups import missing_data

_NO_REPORT = (OSError, ValueError, LookupError, TypeError, ValidationError)
"""Exceptions from reading a file that is not a report of this version."""


@dataclass(frozen=True)
class Baseline:
    """An earlier build of a target."""

    name: str
    """Name in the config."""
    figures: Figures
    program: Program | None = None
    """The file's content; None if the file or its external weights are not available."""
    file: Path | None = None
    """Path of the program's file."""
    more_weights: str | None = None
    """Reason why there may be more weights than the figure states, and what to name instead; None if exact.

    Some weights may be in a file that is not available. A limit that holds for the figure also holds for more weights.
    """


@dataclass(frozen=True)
class NoBaseline:
    """Reason why there is no baseline, such as a first build or a new target."""

    reason: str


def find_baseline(project: Project, target: str) -> Baseline | NoBaseline:
    """Return the baseline of a target.

    Raises :class:`~etdev.errors.ConfigError` for a report, :class:`~etdev.errors.ProgramError` for a program and
    :class:`~etdev.errors.UsageError` for a lock that cannot be read. Also raises as
    :func:`~etdev.pipeline.project.baseline_source.committed_lock` does.
    """
    if project.config.baseline is None:
        return NoBaseline("the config names no baseline")
    path = baseline_path(project)
    if path is None:
        return _from_lock(project, target)
    if path.is_dir():
        return _from_report(project, report_of(path, target), target)
    if not path.is_file():
        return NoBaseline(f"there is no {baseline_name(project)}")
    return _from_file(baseline_name(project), path)


def _from_lock(project: Project, target: str) -> Baseline | NoBaseline:
    name = baseline_name(project)
    text = committed_lock(project)
    if text is None:
        return NoBaseline(f"{name} has no {project.lock.name}")
    found = read_lock(text, f"{name}:{project.lock.name}").targets.get(target)
    return (
        NoBaseline(f"the {project.lock.name} of {name} does not have it")
        if found is None
        else Baseline(name, found.figures)
    )


def _from_report(project: Project, report: Path, target: str) -> Baseline | NoBaseline:
    name = f"{baseline_name(project)}/{target}"
    try:
        found = next((item for item in _targets(report) if item["name"] == target), None)
        if found is None or found["status"] == "rejected":
            return NoBaseline(f"{name}/report.json has no {'good ' if found else ''}build of it")
        reported = _Reported.of(found, report.with_name(PurePath(found["artifact"]).name))
    except FileNotFoundError:
        return NoBaseline(f"there is no {name}/report.json")
    except _NO_REPORT as error:
        message = f"`baseline.from`: {report} is not a report that this version of etdev reads ({type(error).__name__})"
        raise project.error(
            message, *KEY, hint="make it again: build what it was built from, with this version"
        ) from error
    return reported.baseline(name)


def _targets(report: Path) -> Any:
    return json.loads(read_file(report))["targets"]


@dataclass(frozen=True)
class _Reported:
    """A report's entry on a target."""

    figures: Figures
    file: Path
    data: tuple[Path, ...]
    """Paths of the data files."""
    digests: Mapping[Path, str]
    """SHA-256 of all files, as built."""

    @classmethod
    def of(cls, found: Any, file: Path) -> _Reported:
        """Return the entry from its raw data.

        Raises the exceptions in :data:`_NO_REPORT` if that is not a report's entry on a target.
        """
        data = {file.with_name(PurePath(item["name"]).name): str(item["sha256"]) for item in found.get("data", ())}
        return cls(Figures.model_validate(found["figures"]), file, tuple(data), {file: str(found["sha256"]), **data})

    def baseline(self, name: str) -> Baseline:
        """Return the baseline, with the program if its files are those that were built."""
        if not all(path.is_file() and file_sha256(path) == digest for path, digest in self.digests.items()):
            return Baseline(name, self.figures)
        return Baseline(name, self.figures, read_joined(self.file, self.data), self.file)


def _from_file(name: str, file: Path) -> Baseline:
    """Return the baseline from the report next to the file if it is about this file; otherwise from the file alone."""
    try:
        digest = file_sha256(file)
        found = next((item for item in _targets(report_beside(file)) if item["sha256"] == digest), None)
        reported = None if found is None else _Reported.of(found, file)
    except _NO_REPORT:
        reported = None
    if reported is not None:
        return reported.baseline(name)
    program = pte.read(file)
    figures = measure_program(program, file.stat().st_size)
    return Baseline(name, figures, program, file, _why_more_weights(name, program))


def _why_more_weights(name: str, program: Program) -> str | None:
    hint = "name the folder of its build instead, or a commit that has its etdev.lock (`git:REF`)"
    if next(missing_data(program), None) is not None:
        return f"{name} has weights in another file: {hint}"
    others = {delegate.id for plan in program.execution_plan for delegate in plan.delegates} - {DELEGATE_ID}
    if others and not program.named_data:
        return f"{name} does not say whether its delegates have weights in another file: {hint}"
    return None
