"""A program joined with its data files in one file, for a loader that does not take them."""

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
    """Written once for each program and data, as long as no others come between.

    On Linux the file has a name in no folder, and so goes with the process, whatever ends that. Elsewhere it is in the
    folder for temporary files, where a process that is killed leaves it.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._path = Path()
        self._content: tuple[str, ...] | None = None
        """Digests of what is joined in it; None if there is none."""

    def path(self, file: Path, data: Sequence[Path], join: Callable[[Path, Sequence[Path]], Program]) -> Path:
        """The place of the file, for this process and its children; ``join`` is called if it has to be written.

        Raises :class:`~etdev.errors.WriteError`, and what ``join`` raises.
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
        """Remove it."""
        self._content = None
        self._open.close()

    def _create(self) -> Path:
        files = Path(f"/proc/{os.getpid()}/fd")
        if files.is_dir():
            return files / str(self._open.enter_context(tempfile.TemporaryFile()).fileno())
        return Path(self._open.enter_context(tempfile.NamedTemporaryFile(prefix="etdev-", suffix=".pte")).name)


def _digests(*files: Path) -> tuple[str, ...] | None:
    """Return None if a file cannot be read; joining the files then says so."""
    try:
        return tuple(map(file_sha256, files))
    except OSError:
        return None
