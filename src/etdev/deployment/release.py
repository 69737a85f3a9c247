"""Publishing a release, making it current, and going back to the previous one.

A release is stored at ``releases/TIME-DIGEST/`` and never changes. A pointer refers to the current release. A release
is uploaded under a temporary name, read back, and renamed as a whole. Then the pointer is moved to it. Therefore, the
pointer always refers to a complete release. If two deployments run at the same time, each step of a deployment either
succeeds or fails without damage. The deployment that moves the pointer last determines the current release.
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
"""Effect of a deployment.

``published``: the deployment uploaded a new release. ``switched``: the deployment moved the pointer to a release that
already existed. ``unchanged``: the release was already current.
"""
Stage = Callable[[str], AbstractContextManager[object]]
"""Function that takes the name of a step and returns a context manager. The step runs in that context."""

_ENVIRONMENT = "ETDEV_RELEASE"


def _unwatched(step: str) -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(frozen=True)
class Release:
    """A release to deploy: its manifest and its files on this machine."""

    manifest: Manifest
    sources: Mapping[str, Path]
    """Maps the name of each file in the manifest to the file's path on this machine."""

    @cached_property
    def content(self) -> bytes:
        """Content of the file ``manifest.json`` in the release."""
        return self.manifest.to_bytes()

    @cached_property
    def digest(self) -> str:
        """Digest of the manifest. The release's name ends with this digest."""
        return digest_of(self.content)


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings for deployments to a target."""

    keep: int
    """Number of old releases that remain at the target, in addition to the current release."""
    smoke: Sequence[str] = ()
    """Command that must succeed at the target before the pointer moves to a release.

    If this is empty, no command is run.
    """


@dataclass(frozen=True, slots=True)
class Plan:
    """Description of a deployment that has not been carried out."""

    action: Action
    release: str
    """Name of the release that the deployment would make current."""
    before: str | None
    """Name of the release that is current now; None if there is none."""
    surplus: tuple[str, ...]
    """Old releases that the deployment would remove after moving the pointer."""
    leftovers: tuple[str, ...]
    """Files and folders of interrupted deployments, which the deployment would remove first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a deployment that was carried out."""

    action: Action
    release: str
    before: str | None
    removed: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def plan(transport: Transport, release: Release, terms: Terms, now: datetime) -> Plan:
    """Describe the changes that :func:`deploy` would make now. Do not change the target."""
    action, name, before = _decide(transport, release, now)
    waste = [found.name for found in leftovers(transport, now)]
    broken = list(half_removed(transport))
    others = [item for item in reversed(releases(transport)) if item != name and item not in broken]
    return Plan(action, name, before, tuple(others[terms.keep :]), (*waste, *map(release_path, broken)))


def deploy(transport: Transport, release: Release, terms: Terms, now: datetime, stage: Stage = _unwatched) -> Outcome:
    """Make a release the current release at the target. Upload the release if the target does not have it.

    Raises :class:`~etdev.errors.DeployError` if the deployment fails. A failure does not change the current release.
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
    """Make the previous release current again.

    Raises :class:`~etdev.errors.DeployError` if there is no previous release, or if its files do not match its
    manifest.
    """
    with stage("look"):
        cleared = clear(transport, now)
        before = current_release(transport)
        if before is None:
            raise DeployError("nothing is deployed at the target yet", hint="deploy first")
        older = [name for name in releases(transport) if name < before]
        if not older:
            raise DeployError(f"there is no release before {before}", hint="use `--list` to show the releases")
        if problem := damage(transport, older[-1]):
            raise DeployError(
                f"the release {older[-1]} is damaged: {problem}", hint="build the files and deploy them again"
            )
    _take_over(transport, older[-1], before, terms, stage, now)
    return Outcome("switched", older[-1], before, leftovers=cleared)


def clear(transport: Transport, now: datetime) -> tuple[str, ...]:
    """Remove the files and folders of interrupted deployments, and return their names."""
    waste = leftovers(transport, now)
    for found in waste:
        _clear_one(transport, found)
    broken = list(half_removed(transport))
    for name in broken:
        transport.remove(release_path(name))
    return (*(found.name for found in waste), *map(release_path, broken))


def _clear_one(transport: Transport, found: Leftover) -> None:
    """Remove a leftover of a deployment. Remove the manifest first.

    If the deployment is still running, it cannot finish the release without the manifest. A transport that renames by
    copying may already have copied some files to the release's final folder. This function also removes that folder,
    unless it contains the manifest.
    """
    if not found.is_pointer:
        transport.remove(f"{found.name}/{MANIFEST}")
        if not _has_manifest(transport, found.release):
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
    """Upload a release to a temporary folder, read it back, and rename the folder to the release's name.

    After a failure, remove the uploaded files if the target still responds.
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
            raise DeployError(f"another deployment removed the release {name} during its upload", hint="deploy again")
    except BaseException:
        with suppress(EtdevError):
            _clear_one(transport, Leftover(temporary.folder, name, is_pointer=False))
        raise


def _check_arrival(transport: Transport, temporary: Temporary, name: str, expected: Fingerprint) -> None:
    if problem := difference(name, transport.fingerprint(f"{temporary.folder}/{name}"), expected):
        raise DeployError(
            f"the files at the target differ from the uploaded files: {problem}",
            hint="check the storage at the target, and deploy again",
        )


class _RefusedError(DeployError):
    """Error for a release whose smoke command failed."""


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
            hint="fix the command or the program, and deploy again; the current release has not changed",
        )


def _switch(transport: Transport, name: str, before: str | None, now: datetime) -> None:
    """Move the pointer to a release.

    At the same time, another deployment may remove the release because it is old. Therefore, this function checks after
    the switch if the release still has a manifest. If not, it moves the pointer to another release (see
    :func:`_switch_back`) and raises :class:`~etdev.errors.DeployError`. The other deployment checks the pointer (see
    :func:`_remove_release`).
    """
    pointer = temporary_for(release_name(now, content_digest(name))).pointer
    try:
        transport.switch(release_path(name), pointer)
        taken = not _has_manifest(transport, name)
        if taken:
            _switch_back(transport, before, pointer)
    except DeployError as error:
        hint = "check with `--list` which release is current, and deploy again"
        raise DeployError(f"while switching: {error.message}", where=error.where, hint=hint) from error
    if taken:
        raise DeployError(f"another deployment removed the release {name} during the switch", hint="deploy again")


def _switch_back(transport: Transport, before: str | None, pointer: str) -> None:
    """Move the pointer from a removed release to the release that was current before.

    If other deployments also removed that one, or if none was current, take the newest release. The others published
    it. A release may be removed during this switch, too. Then take the next one.
    """
    newest_first = reversed(releases(transport))
    for name in newest_first if before is None else (before, *newest_first):
        if _has_manifest(transport, name):
            transport.switch(release_path(name), pointer)
            if _has_manifest(transport, name):
                return


def _has_manifest(transport: Transport, name: str) -> bool:
    return transport.read(f"{release_path(name)}/{MANIFEST}") is not None


def _prune(transport: Transport, outcome: Outcome, keep: int) -> Outcome:
    """Remove old releases beyond the ``keep`` newest ones, and return the completed outcome.

    The new release is already current at this point. Therefore, a failure does not raise an error, but is recorded in
    the outcome.
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
    """Remove a release, unless another deployment has just made it current. Return True if it was removed.

    The manifest is removed first, because a folder without a manifest is not a release.
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
