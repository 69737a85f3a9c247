"""The result of a whole run, and the files ``report.json`` and ``results.json``."""

from __future__ import annotations

from pathlib import Path

from etdev.execution.availability import describe_map
from etdev.files import atomic_write_text, read_file, write_errors_named
from etdev.pipeline.project import Project
from etdev.pipeline.project.versions import versions
from etdev.pipeline.results.report import find_report
from etdev.pipeline.results.result import BuildResult, TargetResult
from etdev.runtime.device_map import DeviceMap


def start_result(project: Project, targets: tuple[TargetResult, ...], device_map: DeviceMap | None) -> BuildResult:
    """Return the result of a run over these targets, with notes on the device map if one is passed."""
    return BuildResult(
        project=project.name,
        config=str(project.loaded.path),
        profile=project.loaded.profile,
        overrides=project.loaded.overrides,
        versions=versions(),
        targets=targets,
        notes=() if device_map is None else tuple(describe_map((item.checks for item in targets), device_map)),
    )


def display_path(project: Project, path: Path) -> str:
    """Return a path as text: relative to the config's folder if the path is inside that folder, otherwise unchanged."""
    root = project.loaded.root
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def report_text(project: Project, result: TargetResult) -> str:
    """Return the content of the ``report.json`` of a target."""
    return _text(start_result(project, (result,), None))


def is_at(place: Path, text: str) -> bool:
    """Return True if the file at ``place`` exists and contains exactly ``text``."""
    try:
        return read_file(place) == text.encode("utf-8")
    except OSError:
        return False


def write_results(project: Project, result: BuildResult) -> None:
    """Write ``results.json``, which has the results of all targets of a build."""
    text = _text(result)
    if not is_at(project.results, text):
        atomic_write_text(project.results, text)


def built_targets(project: Project) -> tuple[str, ...]:
    """Return the targets with the status ``built`` in ``results.json``; an empty tuple if the file is missing."""
    result = find_report(project.results)
    return () if result is None else tuple(target.name for target in result.targets if target.status == "built")


def remove_results(project: Project) -> None:
    """Remove the ``results.json`` of the last build, so that an interrupted build does not leave outdated results."""
    with write_errors_named(project.results):
        project.results.unlink(missing_ok=True)


def _text(result: BuildResult) -> str:
    return result.model_dump_json(indent=2) + "\n"
