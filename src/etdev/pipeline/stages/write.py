"""Stage *write*: writes the program to temporary files; staging moves them to their final paths."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from etdev.files import write_errors_named
from etdev.pipeline.project.places import record_place
from etdev.pipeline.stages.artifacts import WrittenFile, WrittenProgram
from etdev.pipeline.stages.emit import ObjectProgram
from etdev.pipeline.stages.etrecord import InstructionMaps, delegate_outputs, read_delegates, write_record
from etdev.pipeline.stages.link.linking import LinkedProgram
from etdev.pipeline.stages.selected_operators import operators_yaml
from etdev.pipeline.stages.staging import StagedFile, StagedTarget
from etdev.program import Program, flat_tensor
from etdev.program.data_files.assignment import DataFiles
from etdev.program.writer import write_into


def write_files(linked: Program, data: DataFiles, staged: StagedTarget) -> WrittenProgram:
    """Write a linked program and its data files to the temporary paths in ``staged``.

    Raises the errors of :func:`write_program`.
    """
    rest, files = data.split(linked)
    program = write_program(rest, staged.program)
    return WrittenProgram(
        program,
        tuple(_written(staged.data[name], partial(flat_tensor.write_into, file)) for name, file in files.items()),
        None if data.weights is None else staged.data[data.weights].path,
    )


def write_program(program: Program, staged: StagedFile) -> WrittenFile:
    """Write a program to its temporary path, and compute the digest of the written file.

    Raises :class:`~etdev.errors.WriteError` with the path and the cause; the temporary file is then removed.
    """
    return _written(staged, partial(write_into, program))


def write_operators(written: Program, program: Path, staged: StagedFile) -> WrittenFile:
    """Write the list of operators that a program needs; ``program`` is the program's final path.

    Raises the errors of :func:`write_program`.
    """
    text = operators_yaml(written, program.name)
    return _written(staged, lambda path: path.write_text(text, encoding="utf-8"))


def _written(staged: StagedFile, write: Callable[[Path], object]) -> WrittenFile:
    with write_errors_named(staged.target):
        write(staged.path)
        with staged.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            return WrittenFile(staged.path, os.fstat(file.fileno()).st_size, digest)


def write_linked_record(objects: ObjectProgram, program: LinkedProgram, staged: StagedFile) -> None:
    """Write the ETRecord of a linked program.

    This is the object program's record with the new positions of instructions. Raises
    :class:`~etdev.errors.WriteError` if writing fails, and :class:`~etdev.errors.ProgramError` if the object program's
    record was changed after emission.
    """
    source = record_place(objects.path)
    moved = {method.name: method.renumbered for method in program.linked.methods}
    delegates = {
        name: {moved[name][position]: found for position, found in calls.items() if position in moved[name]}
        for name, calls in read_delegates(source).items()
    }
    maps = InstructionMaps(
        {name: program.notes[name].debug_handles for name in delegates},
        delegates,
        delegate_outputs(program.linked.program, {name: program.notes[name].delegate_inputs for name in delegates}),
    )
    with write_errors_named(staged.target):
        write_record(source, maps, staged.path)
        with staged.path.open("rb") as file:
            os.fsync(file.fileno())
