"""Reuse of finished targets: a build restores a target from the cache if no input has changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from etdev.files import atomic_write_text
from etdev.pipeline.builder.report_file import display_path, is_at, report_text
from etdev.pipeline.cache import Cache, Entry, Output, linked_facts
from etdev.pipeline.cache.lock import LockedTarget
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.project.places import (
    REJECTED_SUFFIX,
    data_places,
    object_place,
    operators_place,
    record_place,
    report_place,
    reported_data,
)
from etdev.pipeline.project.runtime_contents import runtime_files
from etdev.pipeline.results.notes import LINKED_AGAIN, QUANTIZED_AGAIN, UNCHANGED
from etdev.pipeline.results.result import Part, TargetResult

if TYPE_CHECKING:
    from etdev.pipeline.builder.compile import BuildSession, Compiled


class Finished(Part):
    """A target that has been built and verified."""

    result: TargetResult
    locked: LockedTarget
    """The target's entry for the lock."""

    changed: tuple[str, ...] = ()
    """Input files of the target that changed during the build."""

    @property
    def good(self) -> bool:
        """True if the target missed no gate, all required checks ran, and no input file changed during the build."""
        return self.result.status == "built" and not self.result.unmet and not self.changed


def find_finished(project: Project, target: str, options: BuildOptions, cache: Cache) -> Finished | None:
    """Restore a finished target's files from the cache, and return the target; return None if it has to be built."""
    facts = linked_facts(project, target, options, cache.digests)
    entry = cache.find(project, target, "linked", facts)
    if entry is None:
        return None
    try:
        finished = Finished.model_validate_json(entry.record)
    except ValidationError:
        return None
    if _has_more_tools(finished.result):
        return None
    place, report = project.artifact(target), report_place(project, target)
    result = finished.result.model_copy(update={"artifact": display_path(project, place)})
    text = report_text(project, result)
    reports = [] if is_at(report, text) else [report]
    if not cache.restore(entry, place.parent, [*_superfluous(project, target, entry), *reports]):
        return None
    if reports:
        atomic_write_text(report, text)
    notes = (*(note for note in result.notes if note not in (LINKED_AGAIN, QUANTIZED_AGAIN)), UNCHANGED)
    seen = result.model_copy(update={"notes": notes, "seconds": {}})
    return finished.model_copy(update={"result": seen})


def _has_more_tools(result: TargetResult) -> bool:
    """Return True if the check ``native`` did not run because of missing tools that are now installed."""
    hints = [check.hint for check in result.checks if check.name == "native" and check.status == "not run"]
    if not any(hints):
        return False
    from etdev.runtime.native.toolchain import TOOL_HINTS, Missing, find_toolchain

    return not TOOL_HINTS.isdisjoint(hints) and not isinstance(find_toolchain(), Missing)


def keep_finished(session: BuildSession, finished: Finished, compiled: Compiled) -> None:
    """Store a target in the cache, with the digests of the files that this build wrote.

    Do nothing if the target is not :attr:`Finished.good`.
    """
    if not finished.good:
        return
    project, cache, result = session.project, session.cache, finished.result
    artifact = project.artifact(result.name)
    record = [record_place(artifact)] if project.config.targets[result.name].etrecord else []
    everything = cache.reads(
        project,
        [*session.user.modules().values(), *runtime_files(project, result.name)],
        session.watch.seen,
        absent=session.user.missing(),
        packages=session.user.packages(()),
    )
    if cache.changed:
        return
    others = [*result.data, *([] if result.operators is None else [result.operators])]
    written = {
        **{item.name: Output(size=item.size, sha256=item.sha256) for item in others},
        artifact.name: Output(size=result.size, sha256=result.sha256),
        **cache.outputs(record),
    }
    entry = Entry(
        level="linked",
        project=project.name,
        target=result.name,
        facts=linked_facts(project, result.name, session.options, cache.digests),
        reads=compiled.reads.joined(everything),
        outputs={**written, **compiled.outputs},
        record=finished.model_dump_json(),
    )
    cache.keep(entry, artifact.parent)


def _superfluous(project: Project, target: str, entry: Entry) -> list[Path]:
    """Return the paths of a target's files that are not outputs of ``entry``; other builds may have left such files."""
    artifact = project.artifact(target)
    external = {*data_places(project, target), *(path for path, _ in reported_data(project, target))}
    known = (
        record_place(artifact),
        operators_place(artifact),
        *external,
        record_place(object_place(project, target)),
        *(path.with_name(path.name + REJECTED_SUFFIX) for path in (artifact, *external)),
    )
    return [path for path in known if path.name not in entry.outputs]
