"""State of a target: its releases, the current release, damaged releases, and leftovers of deployments."""

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
    """A release at a target, with the facts that ``--list`` shows."""

    name: str
    time: datetime
    current: bool
    manifest: Manifest | None
    problem: str | None
    """Reason why the release's manifest cannot be read; None if ``manifest`` is set."""


def releases(transport: Transport) -> list[str]:
    """Return the names of all releases, oldest first."""
    return [name for name in transport.names(RELEASES) if is_release(name)]


def current_release(transport: Transport) -> str | None:
    """Return the name of the current release, or None if the target has no pointer.

    Raises :class:`~etdev.errors.DeployError` if the pointer does not refer to a release of etdev.
    """
    pointed = transport.current()
    if pointed is None:
        return None
    folder, _, name = pointed.rpartition("/")
    if folder != RELEASES or not is_release(name):
        raise DeployError(
            f"the pointer refers to {pointed!r}, which is not a release of etdev",
            hint="deploy to a separate folder, or remove that pointer",
        )
    return name


def listing(transport: Transport) -> tuple[Listed, ...]:
    """Return all releases, newest first. This function reads only the manifests of the releases."""
    current = current_release(transport)
    return tuple(_listed(transport, name, name == current) for name in reversed(releases(transport)))


def _listed(transport: Transport, name: str, current: bool) -> Listed:
    try:
        manifest, problem = read_manifest(transport, name), None
    except ManifestError as error:
        manifest, problem = None, str(error)
    return Listed(name, release_time(name), current, manifest, problem)


def read_manifest(transport: Transport, name: str) -> Manifest:
    """Read the manifest of a release.

    Raises :class:`~etdev.deployment.manifest.ManifestError` if the manifest is missing, changed or unreadable.
    """
    content = transport.read(f"{release_path(name)}/{MANIFEST}")
    if content is None:
        raise ManifestError(f"it has no {MANIFEST}")
    if digest_of(content) != content_digest(name):
        raise ManifestError(f"its {MANIFEST} was changed")
    return parse_manifest(content)


def damage(transport: Transport, name: str) -> str | None:
    """Compare the files of a release with the release's manifest. Return the first difference; None if all match."""
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
    """Describe how a file at the target differs from the expected file. Return None if they are equal."""
    if found == expected:
        return None
    if found is None:
        return f"{name} is missing"
    if found.size != expected.size:
        return f"{name} has {found.size:,} bytes at the target, not {expected.size:,}"
    return f"{name} has the sha256 {found.sha256[:12]}… at the target, not {expected.sha256[:12]}…"


def leftovers(transport: Transport, now: datetime) -> list[Leftover]:
    """Return the temporary folders and pointers that interrupted deployments left behind."""
    return [found for name in transport.names("") if (found := leftover(name, now)) is not None]


def half_removed(transport: Transport) -> Iterator[str]:
    """Yield the releases that lack a manifest because their removal was interrupted.

    The release of a running upload may also lack its manifest. But until the manifest exists, the target also has a
    temporary name for this release. Therefore, this function reads the folders first, then the temporary names, and
    then the manifests. In another order, it could miss both the temporary name and the manifest.
    """
    folders = releases(transport)
    making = {in_making(name) for name in transport.names("")}
    for name in folders:
        if name not in making and transport.read(f"{release_path(name)}/{MANIFEST}") is None:
            yield name
