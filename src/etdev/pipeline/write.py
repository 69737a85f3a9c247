"""Stage *write*: the program as a file that is not yet at its place."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from etdev.files import temporary_beside, write_errors_named
from etdev.pipeline.artifacts import WrittenProgram
from etdev.pipeline.etrecord import InstructionMaps, delegate_outputs, read_delegates, write_record
from etdev.pipeline.link import LinkedProgram
from etdev.pipeline.objects import ObjectProgram
from etdev.pipeline.places import REJECTED_SUFFIX, record_place
from etdev.program import Program
from etdev.program.writer import write_into


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

    def withdraw(self) -> None:
        """Remove what stands at the place, and what was rejected; this file may still take the place."""
        with write_errors_named(self.target):
            self.target.unlink(missing_ok=True)
            self.rejected.unlink(missing_ok=True)

    def _settle(self, place: Path, other: Path) -> Path:
        with write_errors_named(place):
            os.replace(self.path, place)
            other.unlink(missing_ok=True)
        return place


def write_program(linked: Program, staged: StagedFile) -> WrittenProgram:
    """Stream the program out. Its digest is taken of what then lies in the file.

    Raises :class:`~etdev.errors.WriteError` with the path and the cause; nothing is left behind then.
    """
    with write_errors_named(staged.target):
        write_into(linked, staged.path)
        with staged.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
    return WrittenProgram(staged.path, size, digest)


def write_linked_record(objects: ObjectProgram, program: LinkedProgram, staged: StagedFile) -> None:
    """Write the ETRecord of a linked program: that of the object program, with the instructions where they are now.

    Raises :class:`~etdev.errors.WriteError` and, if somebody has changed the object program's record since,
    :class:`~etdev.errors.ProgramError`.
    """
    source = record_place(objects.path)
    moved = {method.name: method.renumbered for method in program.linked.methods}
    delegates = {
        name: {moved[name][position]: found for position, found in calls.items() if position in moved[name]}
        for name, calls in read_delegates(source).items()
    }
    maps = InstructionMaps(
        {name: program.debug_handles[name] for name in delegates},
        delegates,
        delegate_outputs(program.linked.program, {name: program.delegate_inputs[name] for name in delegates}),
    )
    with write_errors_named(staged.target):
        write_record(source, maps, staged.path)
        with staged.path.open("rb") as file:
            os.fsync(file.fileno())
