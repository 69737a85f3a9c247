"""What lies at a target: releases, which is current, whether one is whole, and what was left behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from etdev.deployment.manifest import MANIFEST, Manifest, ManifestError, digest_of, parse_manifest
from etdev.deployment.names import (
    RELEASES,
    Leftover,
    content_digest,
    in_making,
    is_release,
    leftover,
    release_path,
    release_time,
)
from etdev.deployment.transports.base import Fingerprint, Transport
from etdev.errors import DeployError


@dataclass(frozen=True, slots=True)
class Listed:
    """A release at a target."""

    name: str
    time: datetime
    current: bool
    manifest: Manifest | None
    problem: str | None
    """Why it has no manifest that can be read."""


def releases(transport: Transport) -> list[str]:
    """Names of all releases, oldest first."""
    return [name for name in transport.names(RELEASES) if is_release(name)]


def current_release(transport: Transport) -> str | None:
    """Name of the release that the pointer names. Raises :class:`~etdev.errors.DeployError` for a foreign pointer."""
    pointed = transport.current()
    if pointed is None:
        return None
    folder, _, name = pointed.rpartition("/")
    if folder != RELEASES or not is_release(name):
        raise DeployError(
            f"the pointer names {pointed!r}, which is no release of etdev",
            hint="deploy into a folder of its own, or remove that pointer",
        )
    return name


def listing(transport: Transport) -> tuple[Listed, ...]:
    """All releases, newest first. Only their manifests are read."""
    current = current_release(transport)
    return tuple(_listed(transport, name, name == current) for name in reversed(releases(transport)))


def _listed(transport: Transport, name: str, current: bool) -> Listed:
    try:
        manifest, problem = read_manifest(transport, name), None
    except ManifestError as error:
        manifest, problem = None, str(error)
    return Listed(name, release_time(name), current, manifest, problem)


def read_manifest(transport: Transport, name: str) -> Manifest:
    """A release's manifest. Raises :class:`~etdev.deployment.manifest.ManifestError` if it is not the release's own."""
    content = transport.read(f"{release_path(name)}/{MANIFEST}")
    if content is None:
        raise ManifestError(f"it has no {MANIFEST}")
    if digest_of(content) != content_digest(name):
        raise ManifestError(f"its {MANIFEST} was changed")
    return parse_manifest(content)


def damage(transport: Transport, name: str) -> str | None:
    """What is wrong with a release: every file is read back. None if it is as its manifest says."""
    try:
        manifest = read_manifest(transport, name)
    except ManifestError as error:
        return str(error)
    for file in manifest.files:
        found = transport.fingerprint(f"{release_path(name)}/{file.name}")
        if problem := difference(file.name, found, Fingerprint(file.size, file.sha256)):
            return problem
    return None


def difference(name: str, found: Fingerprint | None, expected: Fingerprint) -> str | None:
    """How a file at the target differs from what it should be; None if it does not."""
    if found == expected:
        return None
    if found is None:
        return f"{name} is missing"
    if found.size != expected.size:
        return f"{name} has {found.size:,} bytes there, not {expected.size:,}"
    return f"{name} has the sha256 {found.sha256[:12]}… there, not {expected.sha256[:12]}…"


def leftovers(transport: Transport, now: datetime) -> list[Leftover]:
    """What interrupted deployments have left."""
    return [found for name in transport.names("") if (found := leftover(name, now)) is not None]


def half_removed(transport: Transport) -> Iterator[str]:
    """Releases without a manifest whose removal was interrupted: nobody is making them.

    Whoever makes one has a temporary name from before its folder is there until its manifest is. So the order matters:
    first the folders, then the temporary names, then the manifests.
    """
    folders = releases(transport)
    making = {in_making(name) for name in transport.names("")}
    for name in folders:
        if name not in making and transport.read(f"{release_path(name)}/{MANIFEST}") is None:
            yield name
