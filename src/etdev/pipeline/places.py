"""Where a build puts what it makes, in the folder of a target."""

from __future__ import annotations

from pathlib import Path

from etdev.pipeline.project import Project

REJECTED_SUFFIX = ".rejected"
"""Of a file that verification has refused."""


def object_place(project: Project, target: str) -> Path:
    """Where a target's object program is written."""
    return project.out / target / f"{project.name}.object.pte"


def sidecar_place(path: Path) -> Path:
    """Where the sidecar of the object program at ``path`` is: the same name with ``.json``."""
    return path.with_suffix(".json")


def record_place(program: Path) -> Path:
    """Where the record of the program at ``program`` is: the same name with ``.etrecord``."""
    return program.with_suffix(".etrecord")


def data_places(project: Project, target: str) -> tuple[Path, ...]:
    """Return the places of a target's data files, in the order of their names."""
    name = project.config.targets[target].external_weights
    return () if name is None else (project.artifact(target).with_name(name),)


def operators_place(program: Path) -> Path:
    """Where the list of the operators of the program at ``program`` is: the same name with ``.operators.yaml``."""
    return program.with_suffix(".operators.yaml")


def object_files(project: Project, target: str) -> tuple[Path, ...]:
    """What belongs to an object program, in the order in which it is written."""
    path = object_place(project, target)
    record = [record_place(path)] if project.config.targets[target].etrecord else []
    return (path, *record, sidecar_place(path))


def report_place(project: Project, target: str) -> Path:
    """Where it is said what a build of the target has found."""
    return project.artifact(target).with_name("report.json")
