"""Mapping a file that may have come from anywhere."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from etdev.errors import ProgramError
from etdev.files import describe_os_error
from etdev.program.blob import Blob


def map_file(path: Path, what: str = "program") -> Blob:
    """The bytes of a file, which stay there; ``what`` it is is said in errors.

    Raises :class:`~etdev.errors.ProgramError` if it is not there, cannot be read or is no plain file.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ProgramError("expected a file, found a folder, a device or a pipe", where=os.fspath(path))
            return Blob(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if status.st_size else b"")
    except OSError as error:
        cause = "there is no such file" if isinstance(error, FileNotFoundError) else describe_os_error(error)[0]
        raise ProgramError(f"cannot read the {what}: {cause}", where=os.fspath(path)) from error


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for anybody at the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
