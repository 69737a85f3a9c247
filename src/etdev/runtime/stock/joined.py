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
    """Temporary file with a program and its data. It is written again only when their content changes.

    On Linux the file has no name in a folder, so it disappears with the process. Elsewhere it is in the temporary
    folder, where a killed process leaves it.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._path = Path()
        self._content: tuple[str, ...] | None = None
        """Digests of the joined files; None if nothing is written."""

    def path(self, file: Path, data: Sequence[Path], join: Callable[[Path, Sequence[Path]], Program]) -> Path:
        """Return a path to the joined file, for this process and its children. ``join`` makes the joined program.

        Raises :class:`~etdev.errors.WriteError` and the errors of ``join``.
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
    """Return the digests of files, or None if one cannot be read. ``join`` then raises the error."""
    try:
        return tuple(map(file_sha256, files))
    except OSError:
        return None
