"""Names of releases at a target, and of temporary folders and pointers."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from etdev.files import is_alive

RELEASES = "releases"
_TIME = "%Y%m%dT%H%M%S.%fZ"
_RELEASE = r"(?P<time>\d{8}T\d{6}\.\d{6}Z)-(?P<digest>[0-9a-f]{12})"
_RELEASE_NAME = re.compile(_RELEASE)
_TEMPORARY_NAME = re.compile(
    rf"\.etdev-(?P<release>{_RELEASE})-(?P<host>[0-9a-f]{{8}})-(?P<process>\d{{1,10}})-[0-9a-f]{{8}}(?P<pointer>\.pointer)?"
)
ABANDONED = timedelta(days=1)
"""Age after which an unfinished deployment from another machine counts as abandoned."""


def release_name(now: datetime, digest: str) -> str:
    """Return the name of a release, such as ``20261122T101500.000000Z-0123456789ab``. Names sort by time."""
    return f"{now.astimezone(UTC).strftime(_TIME)}-{digest}"


def is_release(name: str) -> bool:
    """Return True if ``name`` is a valid name of a release."""
    return _RELEASE_NAME.fullmatch(name) is not None


def content_digest(release: str) -> str:
    """Return the last part of a release's name: the digest of the release's manifest."""
    return release.rpartition("-")[2]


def release_time(release: str) -> datetime:
    """Return the first part of a release's name: the time of the release's creation."""
    return datetime.strptime(release.partition("-")[0], _TIME).replace(tzinfo=UTC)


def release_path(release: str) -> str:
    """Return the path of a release, relative to the target's folder."""
    return f"{RELEASES}/{release}"


@dataclass(frozen=True, slots=True)
class Temporary:
    """Temporary names that a deployment uses while it uploads a release and moves the pointer."""

    folder: str
    """Name of the folder to which the release is uploaded."""

    @property
    def pointer(self) -> str:
        """Temporary name of the new pointer, before it replaces the current pointer."""
        return f"{self.folder}.pointer"


def temporary_for(release: str) -> Temporary:
    """Return temporary names that are unique across processes and machines."""
    return Temporary(f".etdev-{release}-{_this_host()}-{os.getpid()}-{secrets.token_hex(4)}")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A temporary folder or pointer that a deployment left behind."""

    name: str
    release: str
    """Name of the release that the deployment was uploading."""
    is_pointer: bool


def leftover(name: str, now: datetime) -> Leftover | None:
    """Return the leftover with this name, or None if ``name`` is not a leftover.

    A temporary name is a leftover if its deployment has ended. A deployment on this machine has ended if its process is
    not alive. A deployment on another machine counts as ended if it started more than :data:`ABANDONED` ago.
    """
    found = _TEMPORARY_NAME.fullmatch(name)
    if found is None:
        return None
    if found["host"] == _this_host():
        process = int(found["process"])
        gone = process == os.getpid() or not is_alive(process)
    else:
        gone = now - release_time(found["release"]) > ABANDONED
    return Leftover(name, found["release"], found["pointer"] is not None) if gone else None


def in_making(name: str) -> str | None:
    """Return the release that a temporary name belongs to, or None if the name is not temporary."""
    found = _TEMPORARY_NAME.fullmatch(name)
    return None if found is None else found["release"]


def _this_host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]
