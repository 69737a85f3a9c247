"""A program and its external data, read as one."""

from __future__ import annotations

import os

from etdev.errors import ProgramError
from etdev.program import flat_tensor
from etdev.program.external import internalize
from etdev.program.model import Program
from etdev.program.reader import read


def read_joined(file: str | os.PathLike[str], data: str | os.PathLike[str] | None = None) -> Program:
    """The program in a ``.pte`` with what it has in a ``.ptd`` inside; as it is without one.

    Raises :class:`~etdev.errors.ProgramError` for either file, or for data that are not those of the program.
    """
    program = read(file)
    if data is None:
        return program
    found = flat_tensor.read(data)
    try:
        return internalize(program, found)
    except ProgramError as error:
        raise ProgramError(
            error.message,
            where=os.fspath(data),
            hint=f"it does not belong to {os.fspath(file)}: give the .ptd that was written with it",
        ) from error
