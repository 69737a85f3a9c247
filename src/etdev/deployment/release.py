"""Publishing a release, switching to it, and going back, in the same way on all transports.

A release is stored at ``releases/TIME-DIGEST/`` and never changes. A pointer names the current release. A release is
uploaded under a temporary name, read back, and renamed as a whole. Only then does the pointer move, so it names a whole
release at every moment. If two deployments run at once, each step either finds what it needs or fails. The deployment
that switches last wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from etdev.deployment.manifest import MANIFEST, Manifest, digest_of
from etdev.deployment.names import (
    Leftover,
    Temporary,
    content_digest,
    release_name,
    release_path,
    temporary_for,
)
from etdev.deployment.state import current_release, damage, difference, half_removed, leftovers, releases
from etdev.deployment.transports.base import Fingerprint, Transport, fingerprint_of
from etdev.errors import DeployError, EtdevError

Action = Literal["published", "switched", "unchanged"]
"""What a deployment did.

``published``: it uploaded a new release. ``switched``: it moved the pointer to an existing release. ``unchanged``: the
release was already current.
"""
Stage = Callable[[str], AbstractContextManager[object]]
"""Function that gets the name of a step and returns a context manager, in which the step runs."""

_ENVIRONMENT = "ETDEV_RELEASE"


def _unwatched(step: str) -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(frozen=True)
class Release:
    """A release to deploy."""

    manifest: Manifest
    sources: Mapping[str, Path]
    """For each file of the manifest, its path on this machine."""

    @cached_property
    def content(self) -> bytes:
        """Content of its ``manifest.json``."""
        return self.manifest.to_bytes()

    @cached_property
    def digest(self) -> str:
        """Digest of the manifest, with which the release's name ends."""
        return digest_of(self.content)


@dataclass(frozen=True, slots=True)
class Terms:
    """Rules for deployments to a target."""

    keep: int
    """Number of releases that are kept besides the current one."""
    smoke: Sequence[str] = ()
    """Command that runs at the target and must succeed before the pointer moves; empty for none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a deployment would do."""

    action: Action
    release: str
    """Name of the release that will be current."""
    before: str | None
    """Name of the release that is current now."""
    surplus: tuple[str, ...]
    """Releases that will be removed after the switch, because more exist than are kept."""
    leftovers: tuple[str, ...]
    """What interrupted deployments left behind, which will be removed first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a deployment did, in full."""

    action: Action
    release: str
    before: str | None
    removed: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def plan(transport: Transport, release: Release, terms: Terms, now: datetime) -> Plan:
    """Return what :func:`deploy` would do now. Change nothing at the target."""
    action, name, before = _decide(transport, release, now)
    waste = [found.name for found in leftovers(transport, now)]
    broken = list(half_removed(transport))
    others = [item for item in reversed(releases(transport)) if item != name and item not in broken]
    return Plan(action, name, before, tuple(others[terms.keep :]), (*waste, *map(release_path, broken)))


def deploy(transport: Transport, release: Release, terms: Terms, now: datetime, stage: Stage = _unwatched) -> Outcome:
    """Make a release the current one at the target, and upload it if needed.

    Raises :class:`~etdev.errors.DeployError`; the target then still serves the old release.
    """
    with stage("look"):
        cleared = clear(transport, now)
        action, name, before = _decide(transport, release, now)
    outcome = Outcome(action, name, before, leftovers=cleared)
    if action == "published":
        _publish(transport, release, name, stage)
    if action != "unchanged":
        try:
            _take_over(transport, name, before, terms, stage, now)
        except _RefusedError:
            if action == "published":
                with suppress(DeployError):
                    _remove_release(transport, name)
            raise
    return _prune(transport, outcome, terms.keep)


def roll_back(transport: Transport, terms: Terms, now: datetime, stage: Stage = _unwatched) -> Outcome:
    """Make the release before the current one current again, provided that it matches its manifest."""
    with stage("look"):
        cleared = clear(transport, now)
        before = current_release(transport)
        if before is None:
            raise DeployError("nothing is deployed there yet", hint="deploy first")
        older = [name for name in releases(transport) if name < before]
        if not older:
            raise DeployError(f"there is no release before {before}", hint="`--list` shows what is there")
        if problem := damage(transport, older[-1]):
            raise DeployError(f"the release {older[-1]} is damaged: {problem}", hint="build and deploy it again")
    _take_over(transport, older[-1], before, terms, stage, now)
    return Outcome("switched", older[-1], before, leftovers=cleared)


def clear(transport: Transport, now: datetime) -> tuple[str, ...]:
    """Remove what interrupted deployments left behind, and return the names of what was removed."""
    waste = leftovers(transport, now)
    for found in waste:
        _clear_one(transport, found)
    broken = list(half_removed(transport))
    for name in broken:
        transport.remove(release_path(name))
    return (*(found.name for found in waste), *map(release_path, broken))


def _clear_one(transport: Transport, found: Leftover) -> None:
    """Remove a leftover, with its manifest first.

    If the deployment still runs after all, it cannot finish the release without the manifest. A transport that renames
    by copying may already have put a part of the release in its final folder. That part is removed too.
    """
    if not found.is_pointer:
        transport.remove(f"{found.name}/{MANIFEST}")
        if transport.read(f"{release_path(found.release)}/{MANIFEST}") is None:
            transport.remove(release_path(found.release))
    transport.remove(found.name)


def _decide(transport: Transport, release: Release, now: datetime) -> tuple[Action, str, str | None]:
    before = current_release(transport)
    same = [name for name in releases(transport) if content_digest(name) == release.digest]
    if before is not None and before in same and damage(transport, before) is None:
        return "unchanged", before, before
    for name in reversed(same):
        if name != before and damage(transport, name) is None:
            return "switched", name, before
    return "published", release_name(now, release.digest), before


def _publish(transport: Transport, release: Release, name: str, stage: Stage) -> None:
    """Upload a release to a temporary folder, read it back, and rename the folder.

    After a failure, remove the uploaded files, if the target still answers.
    """
    temporary = temporary_for(name)
    try:
        with stage("upload"):
            for file in release.manifest.files:
                transport.upload(f"{temporary.folder}/{file.name}", release.sources[file.name])
            transport.write(f"{temporary.folder}/{MANIFEST}", release.content)
        with stage("read back"):
            for file in release.manifest.files:
                _check_arrival(transport, temporary, file.name, Fingerprint(file.size, file.sha256))
            _check_arrival(transport, temporary, MANIFEST, fingerprint_of([release.content]))
        transport.rename(temporary.folder, release_path(name), MANIFEST)
        if transport.read(f"{release_path(name)}/{MANIFEST}") != release.content:
            raise DeployError(f"another deployment removed {name} while it was uploaded", hint="deploy again")
    except BaseException:
        with suppress(EtdevError):
            _clear_one(transport, Leftover(temporary.folder, name, is_pointer=False))
        raise


def _check_arrival(transport: Transport, temporary: Temporary, name: str, expected: Fingerprint) -> None:
    if problem := difference(name, transport.fingerprint(f"{temporary.folder}/{name}"), expected):
        raise DeployError(
            f"the files at the target differ from what was sent: {problem}",
            hint="the file may have changed meanwhile, or the target's storage is full or broken; deploy again",
        )


class _RefusedError(DeployError):
    """Error for a release for which the smoke command failed."""


def _take_over(transport: Transport, name: str, before: str | None, terms: Terms, stage: Stage, now: datetime) -> None:
    if terms.smoke:
        with stage("smoke"):
            _smoke(transport, name, terms.smoke)
    with stage("switch"):
        _switch(transport, name, before, now)


def _smoke(transport: Transport, name: str, command: Sequence[str]) -> None:
    ran = transport.run(command, {_ENVIRONMENT: transport.location(release_path(name))})
    if ran.code != 0:
        said = f": {ran.output}" if ran.output else ""
        raise _RefusedError(
            f"the smoke command ended with exit code {ran.code}{said}",
            hint="the target still serves the previous release; fix the command or the program, and deploy again",
        )


def _switch(transport: Transport, name: str, before: str | None, now: datetime) -> None:
    """Move the pointer to a release.

    Another deployment may remove the release at the same time, because for that deployment it is an old one. So each of
    the two checks afterwards for the other's change, and one of them undoes its own (see :func:`_remove_release`).
    """
    pointer = temporary_for(release_name(now, content_digest(name))).pointer
    try:
        transport.switch(release_path(name), pointer)
        taken = transport.read(f"{release_path(name)}/{MANIFEST}") is None
        if taken and before is not None:
            transport.switch(release_path(before), pointer)
    except DeployError as error:
        hint = "`--list` says which release is current; deploy again"
        raise DeployError(f"while switching: {error.message}", where=error.where, hint=hint) from error
    if taken:
        raise DeployError(f"another deployment removed {name} just now", hint="deploy again")


def _prune(transport: Transport, outcome: Outcome, keep: int) -> Outcome:
    """Remove old releases, except for the newest ``keep``.

    The target already serves the new release, so a failure here is only noted in the outcome.
    """
    removed: list[str] = []
    try:
        current = current_release(transport)
        others = [name for name in reversed(releases(transport)) if name != current]
        removed.extend(name for name in others[keep:] if _remove_release(transport, name))
    except DeployError as error:
        note = f"old releases could not be removed: {error.message}; the next deployment tries again"
        return replace(outcome, removed=tuple(removed), notes=(note,))
    return replace(outcome, removed=tuple(removed))


def _remove_release(transport: Transport, name: str) -> bool:
    """Remove a release, unless another deployment has just made it current. Return whether it was removed.

    The manifest is removed first. A folder without a manifest is not a release.
    """
    manifest = f"{release_path(name)}/{MANIFEST}"
    content = transport.read(manifest)
    transport.remove(manifest)
    if current_release(transport) == name:
        if content is not None:
            transport.write(manifest, content)
        return False
    transport.remove(release_path(name))
    return True
