"""Names at a target: releases, and what is temporary there."""

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
"""Age from which what another machine has begun counts as given up."""


def release_name(now: datetime, digest: str) -> str:
    """``20261122T101500.000000Z-0123456789ab``; names sort by time."""
    return f"{now.astimezone(UTC).strftime(_TIME)}-{digest}"


def is_release(name: str) -> bool:
    """Whether a folder's name is that of a release."""
    return _RELEASE_NAME.fullmatch(name) is not None


def content_digest(release: str) -> str:
    """The digest of the manifest, out of a release's name."""
    return release.rpartition("-")[2]


def release_time(release: str) -> datetime:
    """When a release was made, out of its name."""
    return datetime.strptime(release.partition("-")[0], _TIME).replace(tzinfo=UTC)


def release_path(release: str) -> str:
    """Where a release lies, from the target's folder."""
    return f"{RELEASES}/{release}"


@dataclass(frozen=True, slots=True)
class Temporary:
    """The names under which one deployment keeps what is not finished."""

    folder: str
    """Of the release while it is uploaded."""

    @property
    def pointer(self) -> str:
        """Of a pointer that is about to take the place of the present one."""
        return f"{self.folder}.pointer"


def temporary_for(release: str) -> Temporary:
    """Names of this process, which nobody else has used."""
    return Temporary(f".etdev-{release}-{_this_host()}-{os.getpid()}-{secrets.token_hex(4)}")


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a deployment that is no more has left."""

    name: str
    release: str
    """That it was making."""
    is_pointer: bool


def leftover(name: str, now: datetime) -> Leftover | None:
    """The leftover of this name; None for all other names, and for deployments that may still run.

    Those are: another process of this machine that is alive, and any of another machine that began less than
    :data:`ABANDONED` ago.
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
    """The release that a temporary name belongs to, whoever's it is; None for all other names."""
    found = _TEMPORARY_NAME.fullmatch(name)
    return None if found is None else found["release"]


def _this_host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]
