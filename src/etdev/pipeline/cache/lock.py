"""The lock of a config, such as ``etdev.lock``: inputs, digests and figures of every target.

Users commit it with the config.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, ValidationError

from etdev.errors import EtdevError, ExitCode, UsageError
from etdev.files import atomic_write_text, describe_os_error, read_file
from etdev.pipeline.cache.comparison import changes
from etdev.pipeline.cache.digests import Digests
from etdev.pipeline.cache.entries import Difference, Facts, Plain, Reads, differences
from etdev.pipeline.project import Project
from etdev.pipeline.results.figures import Figures

_HEAD = """\
# What the targets were built from, and what came out. `etdev build` writes this file; commit it.
# `etdev build --locked` fails if anything differs.

"""
_SHOWN = 10


class LockStaleError(EtdevError):
    """Error for a build whose inputs or outputs differ from the lock."""

    exit_code = ExitCode.LOCK_STALE
    rule = "lock"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LockedTarget(_Part):
    """The lock's entry for one target, from the last good build."""

    sha256: str
    """SHA-256 of the ``.pte``."""
    data: dict[str, str] = {}
    """SHA-256 of the data files, by name."""
    figures: Figures
    versions: dict[str, str]
    """Versions of etdev, Python and the packages that affect the file, by name."""
    settings: dict[str, Plain]
    """Settings that differ from the defaults and affect the file, by dotted key."""
    files: dict[str, str]
    """SHA-256 of the files that were read, by path relative to the config's folder."""
    packages: dict[str, str] = {}
    """Versions of the packages that the project's code imports, by name."""
    folders: dict[str, str] = {}
    """SHA-256 of the file names in each folder that the build listed, by the folder's path."""


class Lock(_Part):
    """The content of the lock file."""

    version: Literal[1] = 1
    targets: dict[str, LockedTarget] = {}


def read_lock(text: str, where: str) -> Lock:
    """Parse the text of a lock.

    Raises :class:`~etdev.errors.UsageError`, with the location ``where``, if the text is not a valid lock.
    """
    hint = "restore the lock from version control, or remove the lock and run `etdev build`"
    try:
        return Lock.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"this file is not an etdev lock: {error}", where=where, hint=hint) from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        message = f"this file is not an etdev lock, or is of another version of etdev: {key}: {first['msg']}"
        raise UsageError(message, where=where, hint=hint) from error


def find_lock(project: Project) -> Lock | None:
    """Return the project's lock; None if the project has none.

    Raises :class:`~etdev.errors.UsageError` if the lock is damaged.
    """
    path = project.lock
    try:
        return read_lock(read_file(path).decode("utf-8"), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read the lock: {describe_os_error(error)[0]}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"this file is not an etdev lock: {error}",
            where=str(path),
            hint="restore the lock from version control, or remove the lock and run `etdev build`",
        ) from error


def write_lock(project: Project, lock: Lock | None, built: Mapping[str, LockedTarget]) -> None:
    """Write the built targets to the lock, and remove from it the targets that the config no longer has.

    The file is not written if its content would not change. Raises :class:`~etdev.errors.WriteError`.
    """
    if is_entered(project, lock, built):
        return
    targets = _entered(project, lock, built)
    content = Lock(targets=dict(sorted(targets.items()))).model_dump(mode="json", exclude_none=True)
    atomic_write_text(project.lock, _HEAD + tomli_w.dumps(content))


def is_entered(project: Project, lock: Lock | None, built: Mapping[str, LockedTarget]) -> bool:
    """Return True if writing these targets to the lock would not change the lock."""
    return lock is not None and _entered(project, lock, built) == lock.targets


def _entered(project: Project, lock: Lock | None, built: Mapping[str, LockedTarget]) -> dict[str, LockedTarget]:
    known = {} if lock is None else lock.targets
    return {name: item for name in project.config.targets if (item := built.get(name) or known.get(name))}


def is_of_the_files_alone(project: Project) -> bool:
    """Return True if all settings come from the config's files.

    A lock is not written for a build with other settings, such as overrides.
    """
    return all(origin.layer in ("extends", "file") for origin in project.loaded.origins.values())


def check_inputs(project: Project, lock: Lock | None, facts: Mapping[str, Facts], digests: Digests) -> None:
    """Raise :class:`LockStaleError` if the current inputs of a target differ from those in the lock."""
    if lock is None:
        raise LockStaleError(
            "there is no lock", where=str(project.lock), hint="run `etdev build`, which writes the lock"
        )
    stale = [
        f"{name}: {text}" for name, now in facts.items() for text in _input_changes(project, lock, name, now, digests)
    ]
    if stale:
        raise _stale_error(
            project, stale, "if the change is intended, run `etdev build` without --locked to write the lock again"
        )


def check_outputs(project: Project, lock: Lock, built: Mapping[str, LockedTarget]) -> None:
    """Raise :class:`LockStaleError` if the built files differ from the lock."""
    stale = [text for name, found in built.items() for text in _output_changes(name, found, lock.targets[name])]
    if stale:
        raise _stale_error(
            project,
            stale,
            "if the inputs are the same, something outside the lock has changed, or the model's code is not "
            "deterministic",
        )


def _output_changes(name: str, found: LockedTarget, locked: LockedTarget) -> Iterator[str]:
    """Yield a sentence for each difference between the files of a target and the lock."""
    names = sorted({*found.data, *locked.data})
    for what, digest, was in (
        ("program's", found.sha256, locked.sha256),
        *((f"data file {data}'s", found.data.get(data), locked.data.get(data)) for data in names),
    ):
        if digest != was:
            yield f"{name}: the {what} sha256 is {_short(digest)}, the lock has {_short(was)}"


def _short(digest: str | None) -> str:
    return "none" if digest is None else f"{digest[:12]}…"


def differs(project: Project, name: str, locked: LockedTarget, now: Facts, digests: Digests) -> Iterator[Difference]:
    """Yield the differences between a target's current inputs and the inputs in the lock."""
    yield from differences(Facts(settings=locked.settings, versions=locked.versions), now, name)
    was = Reads(files=locked.files, folders=locked.folders, packages=locked.packages)
    yield from changes(was, project, digests)


def _input_changes(project: Project, lock: Lock, name: str, now: Facts, digests: Digests) -> Iterator[str]:
    if name not in lock.targets:
        yield "the lock does not have this target; a build enters the targets that pass all checks and limits"
        return
    for item in differs(project, name, lock.targets[name], now, digests):
        yield item.message


def _stale_error(project: Project, stale: list[str], hint: str) -> LockStaleError:
    more = [f"and {len(stale) - _SHOWN} more"] if len(stale) > _SHOWN else []
    text = "\n".join(f"  {line}" for line in [*stale[:_SHOWN], *more])
    return LockStaleError(f"the build differs from the lock:\n{text}", where=str(project.lock), hint=hint)
