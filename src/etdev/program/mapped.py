"""Mapping a file that may have come from anywhere."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from etdev.errors import ProgramError
from etdev.files import describe_os_error, open_file
from etdev.program.blob import Blob


def map_file(path: Path, what: str = "program") -> Blob:
    """The bytes of a file, which stay there; ``what`` it is is said in errors.

    Raises :class:`~etdev.errors.ProgramError` if it is not there, cannot be read or is no plain file.
    """
    try:
        with open_file(path) as file:
            empty = os.fstat(file.fileno()).st_size == 0
            return Blob() if empty else Blob.mapped(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        cause, remedy = describe_os_error(error)
        if isinstance(error, FileNotFoundError):
            cause = "there is no such file"
        raise ProgramError(f"cannot read the {what}: {cause}", where=os.fspath(path), hint=remedy) from error
