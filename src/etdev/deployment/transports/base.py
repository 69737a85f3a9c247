"""Interface of a transport: the operations of :mod:`etdev.deployment.release` at a target."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

PIECE = 4 * 2**20
"""Number of bytes that are read or sent at a time."""


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

    A transport is a context manager. Entering it connects, and changes nothing at the target. Every method raises
    :class:`~etdev.errors.DeployError` if the target or the connection fails, and
    :class:`~etdev.errors.MissingRequirementError` for a requirement that this machine lacks.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def check(self) -> None:
        """Raise an error if a deployment would be refused. This check is fast, changes nothing and may miss reasons."""

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder, or ``[]`` if it does not exist. ``""`` is the target's own folder."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a small file, or None if it does not exist."""

    def fingerprint(self, path: str) -> Fingerprint | None:
        """Return the fingerprint of a file's content at the target, or None if the file does not exist."""

    def write(self, path: str, content: bytes) -> None:
        """Write a small file. Create missing folders."""

    def upload(self, path: str, source: Path) -> None:
        """Copy a file of this machine to the target. Create missing folders."""

    def rename(self, folder: str, to: str, last: str) -> None:
        """Give a folder a new name that is not in use.

        Under the new name, the file ``last`` appears only after all other files. The call fails if ``last`` was removed
        from the old folder in the meantime.
        """

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content. Do nothing if it does not exist."""

    def current(self) -> str | None:
        """Return the path that the pointer names (``releases/NAME``), or None if there is no pointer."""

    def switch(self, path: str, temporary: str) -> None:
        """Make the pointer name ``path``, atomically: a reader sees either the old path or the new path.

        This method may use the name ``temporary`` in the meantime.
        """

    def location(self, path: str) -> str:
        """Return the path that programs at the target must use for ``path``."""

    def run(self, command: Sequence[str], environment: dict[str, str]) -> CommandResult:
        """Run a command at the target. ``environment`` is added to the command's environment."""


class Fingerprinter:
    """Computes the fingerprint of content that arrives in pieces."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Add the next piece."""
        self._digest.update(piece)
        self._size += len(piece)

    @property
    def result(self) -> Fingerprint:
        """Return the fingerprint of the pieces so far."""
        return Fingerprint(self._size, self._digest.hexdigest())


def fingerprint_of(pieces: Iterable[bytes]) -> Fingerprint:
    """Return the fingerprint of content that is given in pieces."""
    found = Fingerprinter()
    for piece in pieces:
        found.add(piece)
    return found.result


SMOKE_SECONDS = 600
"""Time limit in seconds of a command at the target. A slower command counts as failed."""
_TAIL = 2000


def tail(output: str | bytes | None) -> str:
    """Return the end of a command's output for use in a message."""
    text = output.decode(errors="replace") if isinstance(output, bytes) else output or ""
    return text.strip()[-_TAIL:]
