"""Changes of config, code and weights since the file in the output folder was built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pydantic import ValidationError

from etdev.errors import UsageError
from etdev.pipeline.builder.finished import Finished
from etdev.pipeline.cache import Cache, locked_facts, open_store
from etdev.pipeline.cache.lock import LockedTarget, differs, find_lock
from etdev.pipeline.project import Project
from etdev.pipeline.project.commands import build_command
from etdev.pipeline.project.places import data_places
from etdev.pipeline.results.report import REPORT
from etdev.pipeline.results.result import FileBeside, TargetResult

_FILES = ("file", "folder")
_SHOWN = 3


@dataclass(frozen=True)
class SinceBuilt:
    """Differences between a target's current inputs and the inputs of its last build."""

    build: str
    """Command that builds the target again."""
    changed: tuple[str, ...] = ()
    """The settings, files and folders that changed, with one sentence for each."""
    missing: tuple[str, ...] = ()
    """The files that are missing here and cannot be compared, with one sentence for each."""

    @property
    def said(self) -> str | None:
        """Sentence on the changes, with advice; None if nothing changed."""
        if not self.changed:
            return None
        return f"since it was built, {_some(self.changed)}: run `{self.build}` to build it again"

    @property
    def unknown(self) -> str | None:
        """Sentence on the inputs that cannot be compared; None if all can be compared."""
        if not self.missing:
            return None
        return f"etdev cannot tell whether the project would build the same file: {_some(self.missing)}"


def since_built(project: Project, target: str, *, settings: bool = True) -> SinceBuilt:
    """Compare the project with the inputs that a target's file was built from, according to the lock or the cache.

    If ``settings`` is False, compare only files: a config that was loaded without the build's profile has other
    settings. Ignore versions of packages, because a file may be verified and deployed on a machine with other packages.
    The result is empty if neither the lock nor the cache has an entry for the file, or if a built file cannot be read.
    """
    counted = ("setting", *_FILES) if settings else _FILES
    with Cache(open_store()) as cache:
        try:
            is_built_file = _file_test(project, target, cache)
        except OSError:
            return SinceBuilt(build_command(project, target))
        found = [
            _compared(project, built, target, cache, counted)
            for built in _known(project, target, cache)
            if is_built_file(built)
        ]
    return min(
        found,
        key=lambda since: (len(since.changed), len(since.missing)),
        default=SinceBuilt(build_command(project, target)),
    )


def altered_file(project: Project, built: TargetResult) -> str | None:
    """Describe how a target's file differs from the file that the build wrote, according to the build's report.

    Return None if both are equal, or if the file cannot be read.
    """
    path = project.artifact(built.name)
    try:
        with Cache(open_store()) as cache:
            return change_since_build(built, path.stat().st_size, cache.digests.of(path))
    except OSError:
        return None


def change_since_build(built: TargetResult | FileBeside, size: int, digest: str) -> str | None:
    """Describe how a file differs from the file that the build wrote; return None if both are equal.

    ``size`` and ``digest`` are those of the current file.
    """
    if size != built.size:
        return f"it has {size:,} bytes, but {REPORT} has {built.size:,}"
    if digest != built.sha256:
        return f"its sha256 is {digest[:12]}…, but {REPORT} has {built.sha256[:12]}…"
    return None


def _file_test(project: Project, target: str, cache: Cache) -> Callable[[LockedTarget], bool]:
    """Return a function that takes a lock entry, and returns True if the files in the output folder match the entry.

    The function compares data files too, because builds with different weights in data files have the same program.
    """
    program = cache.digests.of(project.artifact(target))
    data = {path.name: cache.digests.of(path) for path in data_places(project, target) if path.is_file()}
    return lambda built: (
        built.sha256 == program and all(built.data.get(name, digest) == digest for name, digest in data.items())
    )


def _compared(project: Project, built: LockedTarget, target: str, cache: Cache, counted: tuple[str, ...]) -> SinceBuilt:
    found = list(differs(project, target, built, locked_facts(project, target), cache.digests))
    return SinceBuilt(
        build_command(project, target),
        changed=tuple(item.message for item in found if item.what in counted),
        missing=tuple(item.message for item in found if item.what == "gone"),
    )


def _some(sentences: tuple[str, ...]) -> str:
    more = f" (and {len(sentences) - _SHOWN} more)" if len(sentences) > _SHOWN else ""
    return "; ".join(sentences[:_SHOWN]) + more


def _known(project: Project, target: str, cache: Cache) -> Iterator[LockedTarget]:
    """Yield the entries for a target in the lock and in the cache."""
    with suppress(UsageError):  # Other code reports a damaged lock.
        lock = find_lock(project)
        if lock is not None and target in lock.targets:
            yield lock.targets[target]
    for entry in cache.store.entries(project.name, target, "linked"):
        with suppress(ValidationError):  # An entry of another version of etdev may be invalid.
            yield Finished.model_validate_json(entry.record).locked
