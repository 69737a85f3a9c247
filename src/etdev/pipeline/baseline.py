"""What growth is judged against: the figures of an earlier build, and its file where that is at hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from etdev import program as pte
from etdev.config.types import GIT_PREFIX
from etdev.errors import ConfigError
from etdev.files import file_sha256
from etdev.pipeline.figures import Figures
from etdev.pipeline.measure import measure_program
from etdev.pipeline.project import Project
from etdev.program import Program

_KEY = ("baseline", "from")


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


def check_baseline(project: Project, targets: tuple[str, ...]) -> None:
    """Refuse a baseline that cannot be one, before anything slow happens.

    Raises :class:`~etdev.errors.ConfigError` for a file that would stand for several targets, and for what a build of
    this project writes itself: it would be compared with what missed the limit the last time.
    """
    judged = [name for name in targets if _has_limits(project, name)]
    path = _path(project) if judged else None
    if path is None:
        return
    if path == project.out or path.is_relative_to(project.out):
        message = f"`baseline.from` is the project's own output, {_shown(project)}, which each build replaces"
        raise _error(project, message, "copy the output of a build that is good to another folder, and name that")
    if len(judged) > 1 and not path.is_dir() and path.suffix == ".pte":
        message = f"`baseline.from` is one file, and growth of {len(judged)} targets is judged: {', '.join(judged)}"
        raise _error(project, message, "name the output folder of a build instead, or build one target with `-t`")


def find_baseline(project: Project, target: str) -> Baseline | NoBaseline:
    """What a target is compared with.

    Raises :class:`~etdev.errors.ConfigError` for a report that cannot be read and
    :class:`~etdev.errors.ProgramError` for such a program.
    """
    if project.config.baseline is None:
        return NoBaseline("the config names no baseline")
    path = _path(project)
    assert path is not None
    if path.is_dir():
        return _from_report(project, path / target / "report.json", target)
    if not path.is_file():
        return NoBaseline(f"there is no {_shown(project)}")
    program = pte.read(path)
    return Baseline(_shown(project), measure_program(program, path.stat().st_size), program, path)


def _from_report(project: Project, report: Path, target: str) -> Baseline | NoBaseline:
    name = f"{_shown(project)}/{target}"
    try:
        content: Any = json.loads(report.read_bytes())
        found = next((item for item in content["targets"] if item["name"] == target), None)
        if found is None or found["status"] == "rejected":
            return NoBaseline(f"{name}/report.json has no {'good ' if found else ''}build of it")
        figures = Figures.model_validate(found["figures"])
        file = report.with_name(PurePath(found["artifact"]).name)
        digest = str(found["sha256"])
    except FileNotFoundError:
        return NoBaseline(f"there is no {name}/report.json")
    except (OSError, ValueError, LookupError, TypeError, ValidationError) as error:
        message = f"`baseline.from`: {report} is no report that this version of etdev reads ({type(error).__name__})"
        raise _error(project, message, "make it again: build what it was built from, with this version") from error
    if not file.is_file() or file_sha256(file) != digest:
        return Baseline(name, figures)
    return Baseline(name, figures, pte.read(file), file)


def _has_limits(project: Project, target: str) -> bool:
    growth = project.config.targets[target].budget.growth
    return growth != type(growth)()


def _path(project: Project) -> Path | None:
    """None for a baseline that is no path."""
    baseline = project.config.baseline
    if baseline is None or baseline.from_.startswith(GIT_PREFIX):
        return None
    return project.loaded.resolve(*_KEY)


def _shown(project: Project) -> str:
    baseline = project.config.baseline
    return "" if baseline is None else baseline.from_.rstrip("/")


def _error(project: Project, message: str, hint: str) -> ConfigError:
    return project.error(message, *_KEY, hint=hint)
