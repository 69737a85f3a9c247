"""Interface of a transport, which performs the operations at a target for :mod:`etdev.deployment.release`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

PIECE = 4 * 2**20
"""Size in bytes of the pieces in which content is read or sent."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Size and digest that identify the content of a file at the target."""

    size: int
    """Size in bytes."""
    sha256: str


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command that ran at the target."""

    code: int
    output: str
    """The end of the command's standard output and standard error, merged."""


class Transport(Protocol):
    """A folder at a target. Paths are relative to the folder, with ``/`` between their parts.

    A transport is a context manager. On entry, it connects to the target without changing the target. Every method
    raises :class:`~etdev.errors.DeployError` if the target or the connection fails, and
    :class:`~etdev.errors.MissingRequirementError` if this machine lacks a requirement.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def check(self) -> None:
        """Raise an error if a deployment cannot succeed, for example because of missing permissions.

        This check is fast, does not change the target, and may miss some causes of failure.
        """

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files and folders in a folder; empty if the folder does not exist.

        ``folder`` is relative to the target's folder; ``""`` is the target's folder itself.
        """

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file, or None if the file does not exist."""

    def fingerprint(self, path: str) -> Fingerprint | None:
        """Return the fingerprint of a file at the target, or None if the file does not exist."""

    def write(self, path: str, content: bytes) -> None:
        """Write a small file at the target, and create missing folders."""

    def upload(self, path: str, source: Path) -> None:
        """Copy a file from this machine to the target, and create missing folders."""

    def rename(self, folder: str, to: str, last: str) -> None:
        """Rename ``folder`` to ``to``, which must not exist.

        ``last`` is the name of a file in the folder. A transport that copies the files one by one copies this file
        last. The copy fails if this file was removed from ``folder`` in the meantime.
        """

    def remove(self, path: str) -> None:
        """Remove a file or a folder with its content. Do nothing if ``path`` does not exist."""

    def current(self) -> str | None:
        """Return the path that the pointer refers to (``releases/NAME``), or None if there is no pointer."""

    def switch(self, path: str, temporary: str) -> None:
        """Make the pointer refer to ``path``, atomically: a reader sees either the old path or the new path.

        ``temporary`` is a name that this method may use for a temporary file.
        """

    def location(self, path: str) -> str:
        """Return the path that programs at the target must use for ``path``."""

    def run(self, command: Sequence[str], environment: dict[str, str]) -> CommandResult:
        """Run a command at the target. Add the variables of ``environment`` to the environment of the command."""


class Fingerprinter:
    """Incremental computation of the fingerprint of content that arrives in pieces."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Add the next piece of the content."""
        self._digest.update(piece)
        self._size += len(piece)

    @property
    def result(self) -> Fingerprint:
        """Return the fingerprint of the pieces so far."""
        return Fingerprint(self._size, self._digest.hexdigest())


def fingerprint_of(pieces: Iterable[bytes]) -> Fingerprint:
    """Return the fingerprint of the content that consists of these pieces."""
    found = Fingerprinter()
    for piece in pieces:
        found.add(piece)
    return found.result


SMOKE_SECONDS = 600
"""Time limit in seconds of a command at the target. A command that exceeds the limit has failed."""
_TAIL = 2000


def tail(output: str | bytes | None) -> str:
    """Return the last part of a command's output, for use in a message."""
    text = output.decode(errors="replace") if isinstance(output, bytes) else output or ""
    return text.strip()[-_TAIL:]
