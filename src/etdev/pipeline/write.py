"""Stage *write*: the program as a file that is not yet at its place."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from etdev.files import temporary_beside, write_errors_named
from etdev.pipeline.artifacts import EmittedProgram, WrittenProgram

REJECTED_SUFFIX = ".rejected"


class StagedFile:
    """A file that stands beside its place until it is accepted or rejected; gone if neither happens.

    A context manager: leaving it without a verdict (an error, Ctrl-C) removes the file and leaves whatever stood at
    ``target`` as it was.
    """

    path: Path
    """Where the file stands until the verdict; known once entered."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.rejected = target.with_name(target.name + REJECTED_SUFFIX)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with write_errors_named(self.target):
            self.path = self._stack.enter_context(temporary_beside(self.target))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def accept(self) -> Path:
        """Put the file at its place; a rejected one of an earlier build goes."""
        return self._settle(self.target, self.rejected)

    def reject(self) -> Path:
        """Put the file beside its place as ``NAME.pte.rejected``; the artifact of an earlier build goes, so that nobody
        takes it for this one."""
        return self._settle(self.rejected, self.target)

    def _settle(self, place: Path, other: Path) -> Path:
        with write_errors_named(place):
            os.replace(self.path, place)
            other.unlink(missing_ok=True)
        return place


def write_program(emitted: EmittedProgram, staged: StagedFile) -> WrittenProgram:
    """Stream the program out, hashing it on the way.

    Raises :class:`~etdev.errors.WriteError` with the path and the cause; nothing is left behind then.
    """
    with write_errors_named(staged.target), staged.path.open("wb") as file:
        digest = _HashingWriter(file)
        emitted.manager.write_to_file(cast(BinaryIO, digest))
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return WrittenProgram(staged.path, size, digest.hexdigest())


class _HashingWriter:
    """The part of a binary file that ExecuTorch's writer uses, with a SHA-256 of what went through."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()
