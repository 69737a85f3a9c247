"""Baseline of a target: the figures of an earlier build and, if available, its program."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from etdev import program as pte
from etdev.backends.reference import DELEGATE_ID
from etdev.devices import HOST
from etdev.files import file_sha256
from etdev.inspection.measure import measure_program
from etdev.pipeline.cache.lock import read_lock
from etdev.pipeline.project import Project
from etdev.pipeline.project.baseline_source import (
    KEY,
    baseline_name,
    baseline_path,
    committed_lock,
    report_of,
)
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.report import REPORT, ReportError, find_report, read_report, report_beside
from etdev.pipeline.results.result import TargetResult
from etdev.program import Program
from etdev.program.data_files.joined import names_in, read_joined
from etdev.program.data_files.lookups import missing_data
from etdev.program.footprint import program_buffers


@dataclass(frozen=True)
class Baseline:
    """An earlier build of a target."""

    name: str
    """Name of the baseline in messages, derived from the config's ``baseline.from``."""
    figures: Figures
    program: Program | None = None
    """The content of the baseline's file; None if the file or its external weights are not available."""
    file: Path | None = None
    """Path of the baseline's file; None if the file is not available."""
    banks: Mapping[int, str] = field(default_factory=dict)
    """Maps a memory id in the baseline's file to the name of its bank; empty if no banks are known."""
    pooled: Collection[str] = ()
    """Names of the data in the baseline's file of ``external_weights``; empty if this file is not available."""
    more_weights: str | None = None
    """Reason why the figure ``weights`` may be too small, with advice; None if the figure is exact.

    The figure is too small if some weights are in a file that is not available. In that case, the
    computed growth is larger than the real growth. If the computed growth is within the limit, the real growth is, too.
    """


@dataclass(frozen=True)
class NoBaseline:
    """Reason why there is no baseline, such as a first build or a new target."""

    reason: str


def find_baseline(project: Project, target: str) -> Baseline | NoBaseline:
    """Return the baseline of a target, or the reason why there is none.

    Raises :class:`~etdev.errors.ConfigError` if a report cannot be read. Raises :class:`~etdev.errors.ProgramError` if
    a program cannot be read. Raises :class:`~etdev.errors.UsageError` if a lock cannot be read. Also raises the errors
    of :func:`~etdev.pipeline.project.baseline_source.committed_lock`.
    """
    if project.config.baseline is None:
        return NoBaseline("the config does not set a baseline")
    path = baseline_path(project)
    if path is None:
        return _from_lock(project, target)
    if path.is_dir():
        return _from_report(project, report_of(path, target), target)
    if not path.is_file():
        return NoBaseline(f"there is no {baseline_name(project)}")
    return _from_file(baseline_name(project), path, project.config.targets[target].memory.bank_names)


def _from_lock(project: Project, target: str) -> Baseline | NoBaseline:
    name = baseline_name(project)
    text = committed_lock(project)
    if text is None:
        return NoBaseline(f"{name} has no {project.lock.name}")
    found = read_lock(text, f"{name}:{project.lock.name}").targets.get(target)
    return (
        NoBaseline(f"the {project.lock.name} of {name} does not contain this target")
        if found is None
        else Baseline(name, found.figures)
    )


def _from_report(project: Project, place: Path, target: str) -> Baseline | NoBaseline:
    name = f"{baseline_name(project)}/{target}"
    try:
        report = read_report(place)
    except ReportError as error:
        hint = "build the baseline again with this version of etdev"
        raise project.error(f"`baseline.from`: {error.where}: {error.message}", *KEY, hint=hint) from error
    if report is None:
        return NoBaseline(f"there is no {name}/{REPORT}")
    built = next((item for item in report.targets if item.name == target), None)
    if built is None or built.status == "rejected" or built.figures is None:
        return NoBaseline(f"{name}/{REPORT} has no {('good ' if built else '')}build of this target")
    return _of_build(name, built.figures, built, place.with_name(PurePath(built.artifact).name))


def _of_build(name: str, figures: Figures, built: TargetResult, file: Path) -> Baseline:
    """Return the baseline that a report describes. Include the program if its files exist and are unchanged."""
    data = {file.with_name(PurePath(item.name).name): item.sha256 for item in built.data}
    for path, digest in {file: built.sha256, **data}.items():
        if not path.is_file() or file_sha256(path) != digest:
            return Baseline(name, figures)
    banks = {bank.index: bank.name for bank in built.banks.banks} if built.banks is not None else {}
    weights = next((file.with_name(PurePath(item.name).name) for item in built.data if not item.of_delegates), None)
    return Baseline(name, figures, read_joined(file, tuple(data)), file, banks, names_in(weights))


def _from_file(name: str, file: Path, banks: Mapping[int, str]) -> Baseline:
    """Return the baseline for a file.

    Read the figures from the report next to the file. If that report does not describe this file, compute the figures.
    ``banks`` maps memory ids to banks. The memory of a bank is the host buffer with the bank's memory id.
    """
    report, digest = find_report(report_beside(file)), file_sha256(file)
    built = next((item for item in report.targets if item.sha256 == digest), None) if report is not None else None
    if built is not None and built.figures is not None:
        return _of_build(name, built.figures, built, file)
    program = pte.read(file)
    on_host = {buffer.index for buffer in program_buffers(program) if buffer.device == str(HOST)}
    names = {index: bank for index, bank in banks.items() if index in on_host}
    figures = measure_program(program, file.stat().st_size, banks=names)
    return Baseline(name, figures, program, file, names, more_weights=_why_more_weights(name, program))


def _why_more_weights(name: str, program: Program) -> str | None:
    hint = (
        "set `baseline.from` to the folder of the baseline's build, or to a commit with the lock of "
        "that build (`git:REF`)"
    )
    if next(missing_data(program), None) is not None:
        return f"{name} has weights in another file: {hint}"
    others = {delegate.id for plan in program.execution_plan for delegate in plan.delegates} - {DELEGATE_ID}
    if others and not program.named_data:
        return f"{name} does not state whether its delegates have weights in another file: {hint}"
    return None
