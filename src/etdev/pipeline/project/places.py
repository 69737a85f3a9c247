"""Paths of the files that a build writes to a target's folder, and of native libraries."""

from __future__ import annotations

from pathlib import Path

from etdev.pipeline.project import Project
from etdev.pipeline.results.report import find_report, report_beside
from etdev.program.flat_tensor.model import SUFFIX

REJECTED_SUFFIX = ".rejected"
"""Suffix that is appended to the name of a file that verification has rejected."""


def object_place(project: Project, target: str) -> Path:
    """Return the path of a target's object program."""
    return project.out / target / f"{project.name}.object.pte"


def sidecar_place(path: Path) -> Path:
    """Return the sidecar's path for the object program at ``path``: the same path with the suffix ``.json``."""
    return path.with_suffix(".json")


def record_place(program: Path) -> Path:
    """Return the ETRecord's path for the program at ``program``: the same path with the suffix ``.etrecord``."""
    return program.with_suffix(".etrecord")


def data_places(project: Project, target: str) -> tuple[Path, ...]:
    """Return the paths of a target's data files, sorted by name.

    The data files are the file of the config's ``external_weights``, and the files that backends requested in the last
    build.
    """
    weights = project.config.targets[target].external_weights
    asked = {path for path, of_delegates in reported_data(project, target) if of_delegates}
    return tuple(sorted(asked | ({project.artifact(target).with_name(weights)} if weights is not None else set())))


def reported_data(project: Project, target: str) -> list[tuple[Path, bool]]:
    """Return the data files in the report of a target's last build.

    Each file is paired with a bool, which is True if a backend requested the file.
    """
    place = report_place(project, target)
    report = find_report(place)
    data = [item for built in (() if report is None else report.targets) for item in built.data]
    files = [(place.with_name(Path(item.name).name), item.of_delegates) for item in data]
    return [(path, of_delegates) for path, of_delegates in files if path.suffix == SUFFIX]


def native_library_places(project: Project) -> tuple[Path, ...]:
    """Return the paths of the native libraries that the config names."""
    count = len(project.config.project.native_libraries)
    return tuple(project.loaded.resolve("project", "native_libraries", index) for index in range(count))


def operators_place(program: Path) -> Path:
    """Return the operator list's path for the program at ``program``: with the suffix ``.operators.yaml``."""
    return program.with_suffix(".operators.yaml")


def runner_place(program: Path) -> Path:
    """Return the folder of the C++ project that runs the program at ``program``."""
    return program.with_name("runner")


def object_files(project: Project, target: str, folder: Path | None = None) -> tuple[Path, ...]:
    """Return the paths of all files of a target's object program, in the order of writing.

    The paths are in ``folder``. If ``folder`` is None, they are the final paths.
    """
    path = object_place(project, target)
    path = path if folder is None else folder / path.name
    record = [record_place(path)] if project.config.targets[target].etrecord else []
    return (path, *record, sidecar_place(path))


def report_place(project: Project, target: str) -> Path:
    """Return the path of a target's ``report.json``."""
    return report_beside(project.artifact(target))
