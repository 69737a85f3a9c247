"""What growth is judged against: the figures of an earlier build, and its file where that is at hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from etdev import program as pte
from etdev.files import file_sha256
from etdev.pipeline.baseline_source import KEY, baseline_name, baseline_path, committed_lock, report_of
from etdev.pipeline.figures import Figures
from etdev.pipeline.lock import read_lock
from etdev.pipeline.measure import measure_program
from etdev.pipeline.project import Project
from etdev.program import Program
from etdev.program.external import external_names
from etdev.program.joined import read_joined


@dataclass(frozen=True)
class Baseline:
    """What there was before."""

    name: str
    """As the config names it."""
    figures: Figures
    program: Program | None = None
    """None if the file is not at hand."""
    file: Path | None = None
    """Where the program stands."""


@dataclass(frozen=True)
class NoBaseline:
    """There is nothing to compare with: a first build, a target that is new."""

    reason: str


def find_baseline(project: Project, target: str) -> Baseline | NoBaseline:
    """What a target is compared with.

    Raises :class:`~etdev.errors.ConfigError` for a report that cannot be read, :class:`~etdev.errors.ProgramError` for
    such a program, :class:`~etdev.errors.UsageError` for such a lock, and as
    :func:`~etdev.pipeline.baseline_source.committed_lock` does.
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
    program = pte.read(path)
    if external_names(program):
        return NoBaseline(f"{baseline_name(project)} has weights in another file: name the folder of its build instead")
    return Baseline(baseline_name(project), measure_program(program, path.stat().st_size), program, path)


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
        content: Any = json.loads(report.read_bytes())
        found = next((item for item in content["targets"] if item["name"] == target), None)
        if found is None or found["status"] == "rejected":
            return NoBaseline(f"{name}/report.json has no {'good ' if found else ''}build of it")
        figures = Figures.model_validate(found["figures"])
        file = report.with_name(PurePath(found["artifact"]).name)
        digests = {file: str(found["sha256"])}
        data = None
        if found.get("data") is not None:
            data = report.with_name(PurePath(found["data"]["name"]).name)
            digests[data] = str(found["data"]["sha256"])
    except FileNotFoundError:
        return NoBaseline(f"there is no {name}/report.json")
    except (OSError, ValueError, LookupError, TypeError, ValidationError) as error:
        message = f"`baseline.from`: {report} is no report that this version of etdev reads ({type(error).__name__})"
        raise project.error(
            message, *KEY, hint="make it again: build what it was built from, with this version"
        ) from error
    if not all(path.is_file() and file_sha256(path) == digest for path, digest in digests.items()):
        return Baseline(name, figures)
    return Baseline(name, figures, read_joined(file, data), file)
