"""Memory mapping of untrusted files."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from etdev.errors import ProgramError
from etdev.files import describe_os_error, open_file
from etdev.program.blob import Blob


def map_file(path: Path, what: str = "program") -> Blob:
    """Map a file and return its bytes. ``what`` describes the file in errors.

    Raises :class:`~etdev.errors.ProgramError` if the file does not exist, cannot be read or is not a regular file.
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
