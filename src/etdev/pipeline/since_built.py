"""What has changed since the file that lies in the output folder was built: config, code, weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from pydantic import ValidationError

from etdev.errors import UsageError
from etdev.pipeline.cache import Cache, locked_facts, open_store
from etdev.pipeline.finished import Finished
from etdev.pipeline.lock import LockedTarget, differs, find_lock
from etdev.pipeline.places import data_places
from etdev.pipeline.project import Project

_FILES = ("file", "folder")
_SHOWN = 3


@dataclass(frozen=True)
class SinceBuilt:
    """How what a target would be built from now differs from what its file was built from."""

    target: str
    changed: tuple[str, ...] = ()
    """Settings, files and folders that are others now, a sentence each."""
    missing: tuple[str, ...] = ()
    """Files that are not here, a sentence each: of these nobody can tell."""

    @property
    def said(self) -> str | None:
        """What has changed, and what to do; None if nothing has."""
        if not self.changed:
            return None
        return f"since it was built, {_some(self.changed)}: `etdev build {self.target}` builds it again"

    @property
    def unknown(self) -> str | None:
        """Of what nobody can tell whether it has changed; None if everything is here."""
        if not self.missing:
            return None
        return f"whether it is what the project would build is not known: {_some(self.missing)}"


def since_built(project: Project, target: str, *, settings: bool = True) -> SinceBuilt:
    """Compare the project with what the file of a target was built from, by the lock or by the cache.

    Without ``settings`` only files count: for a caller who has no profile, which it may have been built with.
    Versions of packages are left out: a file may be verified and deployed where others are installed, or none. Says
    nothing of a file that neither lock nor cache knows, or that cannot be read: whoever needs it says that.
    """
    counted = ("setting", *_FILES) if settings else _FILES
    with Cache(open_store()) as cache:
        try:
            lies_here = _built_there(project, target, cache)
        except OSError:
            return SinceBuilt(target)
        found = [
            _compared(project, built, target, cache, counted)
            for built in _known(project, target, cache)
            if lies_here(built)
        ]
    return min(found, key=lambda since: (len(since.changed), len(since.missing)), default=SinceBuilt(target))


def _built_there(project: Project, target: str, cache: Cache) -> Callable[[LockedTarget], bool]:
    """Return a test of whether the files of a build are the ones in the output folder. Builds with other weights have
    the same program where those are in data files, so the test compares all files that are there."""
    program = cache.digests.of(project.artifact(target))
    data = {path.name: cache.digests.of(path) for path in data_places(project, target) if path.is_file()}
    return lambda built: (
        built.sha256 == program and all(built.data.get(name, digest) == digest for name, digest in data.items())
    )


def _compared(project: Project, built: LockedTarget, target: str, cache: Cache, counted: tuple[str, ...]) -> SinceBuilt:
    found = list(differs(project, target, built, locked_facts(project, target), cache.digests))
    return SinceBuilt(
        target,
        changed=tuple(item.message for item in found if item.what in counted),
        missing=tuple(item.message for item in found if item.what == "gone"),
    )


def _some(sentences: tuple[str, ...]) -> str:
    more = f" (and {len(sentences) - _SHOWN} more)" if len(sentences) > _SHOWN else ""
    return "; ".join(sentences[:_SHOWN]) + more


def _known(project: Project, target: str, cache: Cache) -> Iterator[LockedTarget]:
    """Builds of a target of which it is known what they were made from."""
    with suppress(UsageError):  # A damaged lock says nothing here; whoever needs it says that it is damaged.
        lock = find_lock(project)
        if lock is not None and target in lock.targets:
            yield lock.targets[target]
    for entry in cache.store.entries(project.name, target, "linked"):
        with suppress(ValidationError):  # Of another version of etdev.
            yield Finished.model_validate_json(entry.record).locked
