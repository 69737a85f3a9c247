"""Temporary file with a program and its data files, for a loader that accepts no data files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from etdev.files import file_sha256, write_errors_named
from etdev.program import Program
from etdev.program.writer import write_into


class JoinedFile:
    """Temporary file that contains a program and its data; written again only when one of the files has changed.

    On Linux, the file has no name in a folder, so it disappears with the process. On other systems, the file is in the
    temporary folder, and remains there if the process is killed.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._path = Path()
        self._content: tuple[str, ...] | None = None
        """Digests of the files that are joined; None before the first join."""

    def path(self, file: Path, data: Sequence[Path], join: Callable[[Path, Sequence[Path]], Program]) -> Path:
        """Return a path to the joined file. This process and its children can open the file.

        ``join`` returns the joined program. Raises :class:`~etdev.errors.WriteError` and the errors of ``join``.
        """
        content = _digests(file, *data)
        if content is None or content != self._content:
            program = join(file, data)
            self.close()
            with write_errors_named(Path(tempfile.gettempdir())):
                self._path = self._create()
                write_into(program, self._path)
            self._content = content
        return self._path

    def close(self) -> None:
        """Delete the file."""
        self._content = None
        self._open.close()

    def _create(self) -> Path:
        files = Path(f"/proc/{os.getpid()}/fd")
        if files.is_dir():
            return files / str(self._open.enter_context(tempfile.TemporaryFile()).fileno())
        return Path(self._open.enter_context(tempfile.NamedTemporaryFile(prefix="etdev-", suffix=".pte")).name)


def _digests(*files: Path) -> tuple[str, ...] | None:
    """Return the digests of files; None if a file cannot be read, so that ``join`` reports the error."""
    try:
        return tuple(map(file_sha256, files))
    except OSError:
        return None
