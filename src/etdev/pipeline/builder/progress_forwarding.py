"""Forwards progress from builds in other processes, or on other machines, to the process that displays it.

Each process appends its events, as lines of JSON, to a file of its own. The folder of these files is next to the
build's outputs, so that all processes can access it. A failed write loses the event, and the build continues.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import suppress
from pathlib import Path

from etdev.pipeline.project.progress import Progress

_EVERY_SECONDS = 0.1
"""Minimum interval in seconds between two events of :meth:`ProgressWriter.counted`."""


class ProgressReader:
    """A reader of the events that other processes write to files in a folder."""

    def __init__(self, progress: Progress, folder: Path) -> None:
        self._progress, self._folder = progress, folder
        self._read: dict[Path, int] = {}
        """Number of bytes read so far from each file."""

    def report(self) -> None:
        """Report the events that other processes have written since the previous call.

        Events are reported in the caller's thread, so that an interrupt raised by the display reaches the caller.
        """
        for path in self._folder.iterdir():
            begin = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(begin)
                content = file.read()
            end = content.rfind(b"\n") + 1
            self._read[path] = begin + end
            for line in content[:end].splitlines():
                event, *arguments = json.loads(line)
                getattr(self._progress, event)(*arguments)


class ProgressWriter:
    """A :class:`~etdev.pipeline.project.progress.Progress` that writes events for a :class:`ProgressReader`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / secrets.token_hex(8)
        self._counted = 0.0

    def started(self, target: str, stage: str) -> None:
        """Write an event for the start of a stage."""
        self._write("started", target, stage)

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Write an event with the number of program calls that a stage has made.

        Skip the event if ``done`` is more than 1 and this method wrote an event less than ``_EVERY_SECONDS`` ago.
        """
        now = time.monotonic()
        if done <= 1 or now - self._counted >= _EVERY_SECONDS:
            self._counted = now
            self._write("counted", target, stage, done, total)

    def finished(self, target: str, stage: str, seconds: float) -> None:
        """Write an event for the end of a stage that raised no error."""
        self._write("finished", target, stage, seconds)

    def failed(self, target: str, stage: str) -> None:
        """Write an event for a stage that raised an error."""
        self._write("failed", target, stage)

    def ended(self, target: str) -> None:
        """Write an event for the end of the last stage of a target."""
        self._write("ended", target)

    def _write(self, *event: object) -> None:
        with suppress(OSError), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
