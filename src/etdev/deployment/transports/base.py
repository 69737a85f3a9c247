"""What a target can do. The algorithm of :mod:`etdev.deployment.release` knows nothing else of one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

PIECE = 4 * 2**20
"""Bytes that are read or sent at a time."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A file's content, as it lies at the target."""

    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command at the target ended."""

    code: int
    output: str
    """Standard output and error together, the last part of them."""


class Transport(Protocol):
    """A folder at a target. Paths are relative to it, with ``/`` between their parts.

    Used as a context manager: entering connects, and changes nothing at the target. Every method raises
    :class:`~etdev.errors.DeployError` if the target or the way there fails, and
    :class:`~etdev.errors.MissingRequirementError` for what this machine lacks.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def check(self) -> None:
        """Find out, as far as that is cheap and changes nothing, whether a deployment would be let in."""

    def names(self, folder: str) -> list[str]:
        """What lies in a folder (``""``: in the target's own), sorted; nothing if it is not there."""

    def read(self, path: str) -> bytes | None:
        """A small file; None if it is not there."""

    def fingerprint(self, path: str) -> Fingerprint | None:
        """What lies there now, read back or computed there; None if nothing does."""

    def write(self, path: str, content: bytes) -> None:
        """Write a small file; missing folders are made."""

    def upload(self, path: str, source: Path) -> None:
        """Copy a file of this machine; missing folders are made."""

    def rename(self, folder: str, to: str, last: str) -> None:
        """Give a folder another name, which nothing has yet. The file ``last`` is there under the new name only once
        everything else is; and if it is no longer there under the old name, this fails."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing happens if it is not there."""

    def current(self) -> str | None:
        """What the pointer points at (``releases/NAME``); None if there is no pointer."""

    def switch(self, path: str, temporary: str) -> None:
        """Have the pointer point at ``path``, at once: whoever reads it sees what it was, or this. ``temporary`` is a
        name that may be used meanwhile."""

    def location(self, path: str) -> str:
        """What ``path`` is called by programs that run at the target."""

    def run(self, command: Sequence[str], environment: dict[str, str]) -> CommandResult:
        """Run a command at the target, with these variables added to its environment."""


class Fingerprinter:
    """Takes a content in pieces."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._size = 0

    def add(self, piece: bytes) -> None:
        """The next piece."""
        self._digest.update(piece)
        self._size += len(piece)

    @property
    def result(self) -> Fingerprint:
        """Of all pieces so far."""
        return Fingerprint(self._size, self._digest.hexdigest())


def fingerprint_of(pieces: Iterable[bytes]) -> Fingerprint:
    """Of a content that comes in pieces."""
    found = Fingerprinter()
    for piece in pieces:
        found.add(piece)
    return found.result


SMOKE_SECONDS = 600
"""After which a command at the target counts as failed."""
_TAIL = 2000


def tail(output: str | bytes | None) -> str:
    """The last part of what a command said."""
    text = output.decode(errors="replace") if isinstance(output, bytes) else output or ""
    return text.strip()[-_TAIL:]
