"""Facts about a program's build, from files next to the program. The files must belong to exactly this program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from etdev.errors import ProgramError
from etdev.files import describe_os_error, file_sha256
from etdev.pipeline.results.report import REPORT, ReportError, read_report, report_beside
from etdev.program.sidecar import MethodNotes, read_sidecar

if TYPE_CHECKING:
    from etdev.pipeline.results.result import BuildResult, MethodResult, TargetResult


@dataclass(frozen=True)
class Provenance:
    """Facts about the build of a file."""

    build: BuildResult | None = None
    target: TargetResult | None = None
    """Target that the file was built for; None if this is unknown."""
    unbuilt: str | None = None
    """Reason why ``target`` is unknown; None if it is known."""
    notes: Mapping[str, MethodNotes] = field(default_factory=dict)
    """Maps each method to its notes from the sidecar. Instruction positions are those in the linked file."""
    unnoted: str | None = None
    """Reason why ``notes`` is empty; None if the notes are available."""
    objects: Path | None = None
    """Path of the object program that the file was linked from; None if it does not exist.

    In contrast to the linked file, the object program contains the model's names of constants.
    """
    data: tuple[Path, ...] = ()
    """Data files of the program: the files that the user names or, by default, the unchanged files of the build."""
    without: tuple[str, ...] = ()
    """Reasons why the build's data files are missing in ``data``, one for each missing file."""

    def method(self, name: str) -> MethodResult | None:
        """Return the build's result for a method; None if the build has no result for this method."""
        methods = self.target.methods if self.target is not None else ()
        return next((method for method in methods if method.name == name), None)


def provenance(file: Path, sha256: str) -> Provenance:
    """Return facts about a program's build, from the files next to the program. Never raises an error.

    ``sha256`` is the digest of the program.
    """
    return _known(file, lambda _: sha256)


def provenance_beside(file: Path) -> Provenance:
    """Return facts about a program's build, as :func:`provenance` does.

    The digest is computed only if a report next to the file describes a program of the same size.
    """

    def digest(build: BuildResult) -> str | None:
        same_size = any(target.size == file.stat().st_size for target in build.targets)
        return file_sha256(file) if same_size else None

    try:
        return _known(file, digest)
    except OSError as error:
        return _unknown(f"the file cannot be read: {describe_os_error(error)[0]}")


def _known(file: Path, digest: Callable[[BuildResult], str | None]) -> Provenance:
    """Read the report next to the file. Return facts about the target whose digest is ``digest(report)``."""
    try:
        build = read_report(report_beside(file))
    except ReportError:
        return _unknown(f"the {REPORT} next to the file is of another version of etdev, or cannot be read")
    if build is None:
        return _unknown(f"there is no {REPORT} of a build next to the file")
    found = digest(build)
    target = next((target for target in build.targets if target.sha256 == found), None)
    if target is None:
        return _unknown(f"the {REPORT} next to the file is of another file, or the file has changed since it was built")
    return built_by(build, target, file)


def known_data(file: Path) -> tuple[Path, ...]:
    """Return the data files of a program's deployment. If there are none, return the build's unchanged data files."""
    from etdev.deployment.released import released_data  # Slow to import.

    return released_data(file) or provenance_beside(file).data


def built_by(build: BuildResult, target: TargetResult, file: Path) -> Provenance:
    """Return facts about the build of a target's file. Never raises an error."""
    return _with_data(_with_notes(Provenance(build, target), target, file), target, file)


def _with_notes(known: Provenance, target: TargetResult, file: Path) -> Provenance:
    place = sidecar_of(file)
    try:
        if file_sha256(place) != target.sidecar_sha256:
            return replace(known, unnoted=f"{place.name} was written again since the file was linked")
        sidecar = read_sidecar(place)
    except OSError:
        return replace(known, unnoted=f"there is no {place.name} next to the file")
    except ProgramError as error:
        return replace(known, unnoted=f"{place.name} cannot be read: {error.message}")
    methods = {method.name: method for method in target.methods}
    notes = {name: _moved(notes, methods[name]) for name, notes in sidecar.methods.items() if name in methods}
    objects = place.with_suffix(".pte")
    return replace(known, notes=notes, objects=objects if objects.is_file() else None)


def _with_data(known: Provenance, target: TargetResult, file: Path) -> Provenance:
    for item in target.data:
        place = file.with_name(PurePath(item.name).name)
        problem = _why_other(place, item.sha256)
        if problem is None:
            known = replace(known, data=(*known.data, place))
        else:
            known = replace(known, without=(*known.without, problem))
    return known


def _why_other(place: Path, sha256: str) -> str | None:
    """Return the reason why the file at ``place`` does not have this digest; None if the digest matches."""
    try:
        same = file_sha256(place) == sha256
    except OSError:
        return f"there is no {place.name} next to the file"
    return None if same else f"{place.name} is not the file that was built with the program"


def files_read(file: Path, data: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the paths that a page about ``file`` may read; some of these files may not exist."""
    sidecar = sidecar_of(file)
    return file, report_beside(file), sidecar, sidecar.with_suffix(".pte"), *data


def sidecar_of(file: Path) -> Path:
    """Return the path of the sidecar of the object program that a file was linked from."""
    from etdev.pipeline.project.places import REJECTED_SUFFIX, sidecar_place  # Slow to import.

    return sidecar_place(file.with_name(file.name.removesuffix(REJECTED_SUFFIX)).with_suffix(".object.pte"))


def _moved(notes: MethodNotes, method: MethodResult) -> MethodNotes:
    """Return the notes of an object program, with each position replaced by the position in the linked file."""
    return notes.renumbered({position: method.renumbered.get(position) for position in notes.instructions})


def _unknown(why: str) -> Provenance:
    return Provenance(unbuilt=why, unnoted=why)
