"""Program joined with its data files in one temporary file, for a loader that does not take data files."""

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
    """Temporary file, written again only if the program or its data change.

    On Linux the file has no name in any folder, so it disappears with the process in all cases. Elsewhere it is in the
    folder for temporary files, where a killed process leaves it.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._path = Path()
        self._content: tuple[str, ...] | None = None
        """Digests of the joined files; None if the file is not written."""

    def path(self, file: Path, data: Sequence[Path], join: Callable[[Path, Sequence[Path]], Program]) -> Path:
        """Return the path of the file for this process and its children. Call ``join`` if it must be written.

        Raises :class:`~etdev.errors.WriteError`, and the errors of ``join``.
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
        """Remove the file."""
        self._content = None
        self._open.close()

    def _create(self) -> Path:
        files = Path(f"/proc/{os.getpid()}/fd")
        if files.is_dir():
            return files / str(self._open.enter_context(tempfile.TemporaryFile()).fileno())
        return Path(self._open.enter_context(tempfile.NamedTemporaryFile(prefix="etdev-", suffix=".pte")).name)


def _digests(*files: Path) -> tuple[str, ...] | None:
    """Return the digests, or None if a file cannot be read; joining the files then raises the error."""
    try:
        return tuple(map(file_sha256, files))
    except OSError:
        return None
