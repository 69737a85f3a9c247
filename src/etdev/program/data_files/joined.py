"""Reader that joins a program with its data files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from etdev.errors import ProgramError
from etdev.program import flat_tensor
from etdev.program.data_files.external import internalize
from etdev.program.model import Program
from etdev.program.reader import read

DataArgument: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""Data files of a program as an argument of the API: one path, or several paths."""


def data_paths(data: DataArgument) -> tuple[Path, ...]:
    """Return the paths of the data files from an argument of the API."""
    return (Path(data),) if isinstance(data, str | os.PathLike) else tuple(map(Path, data))


def names_in(file: Path | None) -> frozenset[str]:
    """Return the names of the data in a ``.ptd`` file. If ``file`` is None, there are none.

    Raises :class:`~etdev.errors.ProgramError` for a malformed file.
    """
    return frozenset() if file is None else frozenset(item.key for item in flat_tensor.read(file).named_data)


def read_joined(file: str | os.PathLike[str], data: DataArgument = ()) -> Program:
    """Read a ``.pte`` and move the data of its ``.ptd`` files, if any, into the program.

    Raises :class:`~etdev.errors.ProgramError` for a malformed file, or for data that does not belong to the program.
    """
    program, paths = read(file), data_paths(data)
    if not paths:
        return program
    files = [flat_tensor.read(path) for path in paths]
    try:
        return internalize(program, *files)
    except ProgramError as error:
        raise ProgramError(
            error.message,
            where=", ".join(map(str, paths)),
            hint=f"give the .ptd {'file' if len(paths) == 1 else 'files'} that "
            f"{'was' if len(paths) == 1 else 'were'} written with {os.fspath(file)}",
        ) from error
