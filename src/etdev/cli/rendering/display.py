"""Live display on a terminal, drawn by a separate process, so that drawing continues while this process is busy.

Imports of torch hold Python's lock for seconds, which stops all threads of this process. So the drawing process is
forked before any other import. It receives events from this process through a pipe, and ends when this process
ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn, TextIO

_COMMANDS = frozenset({"build", "verify", "run", "bench", "deploy"})
"""Commands that may take long and print nothing before their results."""
_SILENT = frozenset({"-q", "--quiet", "-h", "--help"})
_CLOSE_SECONDS = 2.0
"""Time limit in seconds for drawing the remaining events after the display is closed."""
_MOST_BYTES = 4000
"""Maximum size of one event in bytes. The pipe accepts an event of this size completely or not at all."""
_MOST_CHARACTERS = 300
"""Maximum number of characters of text in one event. They fit, because JSON needs at most 12 bytes for each."""
_STDERR = 2


class Display:
    """Live display of this process. It is visible from :meth:`start` until :meth:`close`."""

    def __init__(self) -> None:
        self._pipe: int | None = None
        self._process = 0
        self._stderr: TextIO | None = None

    @property
    def is_shown(self) -> bool:
        """Return True while the display is shown."""
        return self._pipe is not None

    def start_for(self, arguments: Sequence[str]) -> None:
        """Show the display for a command line if the command may take long."""
        if arguments and arguments[0] in _COMMANDS and _SILENT.isdisjoint(arguments):
            self.start(f"etdev {arguments[0]}: starting")

    def start(self, phase: str) -> bool:
        """Show the name of a phase and its duration; return True if there is a terminal for the display."""
        if self.is_shown:
            self.tell("phase", phase)
            return True
        if not _is_wanted():
            return False
        source, self._pipe = os.pipe()
        parent = os.getpid()
        self._process = os.fork()
        if not self._process:
            _draw_until_closed(phase, source, self._pipe, parent)
        os.close(source)
        os.set_blocking(self._pipe, False)
        self._stderr, sys.stderr = sys.stderr, _Above(self, sys.stderr)
        return True

    def tell(self, event: str, *arguments: object, patience: float = 0.0) -> bool:
        """Send an event to the drawing process; return True if the pipe accepted it within ``patience`` seconds."""
        if self._pipe is None:
            return False
        content = json.dumps([event, time.monotonic(), *arguments]).encode() + b"\n"
        try:
            if patience:
                select.select([], [self._pipe], [], patience)
            return len(content) <= _MOST_BYTES and os.write(self._pipe, content) == len(content)
        except OSError:
            return False

    def close(self) -> None:
        """Remove the display; the lines of finished work stay on the terminal."""
        if self._stderr is not None:
            sys.stderr.flush()
            sys.stderr, self._stderr = self._stderr, None
        self.abandon()

    def abandon(self) -> None:
        """Remove the display without flushing standard error. Any thread may call this method."""
        if self._pipe is None:
            return
        self.tell("closed")  # Closing the pipe is not enough, because a forked process may keep it open.
        pipe, self._pipe = self._pipe, None
        os.close(pipe)
        until = time.monotonic() + _CLOSE_SECONDS
        with suppress(ChildProcessError):
            while os.waitpid(self._process, os.WNOHANG) == (0, 0):
                if time.monotonic() > until:
                    os.kill(self._process, signal.SIGKILL)
                    os.waitpid(self._process, 0)
                    return
                time.sleep(0.005)


class _Above:
    """A replacement for stderr while the display is shown; prints lines above the display."""

    def __init__(self, display: Display, stream: TextIO) -> None:
        self._display, self._stream = display, stream
        self._begun = ""

    def write(self, text: str) -> int:
        """Print the complete lines of the text, and buffer the incomplete last line."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if not self._is_told(line):
                self._stream.write(f"{line}\n")
        return len(text)

    def _is_told(self, line: str) -> bool:
        parts = [line[begin : begin + _MOST_CHARACTERS] for begin in range(0, len(line), _MOST_CHARACTERS)]
        events = [*(("part", part) for part in parts), ("line",)]
        if all(self._display.tell(*event, patience=_CLOSE_SECONDS) for event in events):
            return True
        self._display.abandon()  # Otherwise, the display would overwrite the line printed below.
        return False

    def writelines(self, lines: Sequence[str]) -> None:
        """Print all lines."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Print the buffered incomplete line."""
        if self._begun:
            self.write("\n")
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


DISPLAY = Display()
"""The only instance, because the terminal belongs to the whole process."""


def _is_wanted() -> bool:
    """Return True if the terminal can redraw lines and this process can be forked."""
    if os.environ.get("TERM") in ("dumb", "unknown") or ("threading" in sys.modules and _has_threads()):
        return False
    try:
        return sys.stderr.isatty() and os.isatty(_STDERR)
    except (AttributeError, ValueError):
        return False


def _has_threads() -> bool:
    import threading

    return threading.active_count() > 1


def _draw_until_closed(phase: str, source: int, pipe: int, parent: int) -> NoReturn:
    """Draw the display until it is closed, then exit; runs in the forked process."""
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):  # Only the parent handles these signals.
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.close(pipe)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(null, stream)
        from etdev.cli.rendering.drawing import Drawing

        _draw(Drawing(phase), source, parent)
        code = 0
    finally:
        os._exit(code)


def _draw(drawing: Any, source: int, parent: int) -> None:
    rest = b""
    while not drawing.is_closed and os.getppid() == parent:  # Another process may keep the pipe open.
        if select.select([source], [], [], 0.1)[0]:
            content = os.read(source, 1 << 16)
            if not content:
                break
            *events, rest = (rest + content).split(b"\n")
            for event in events:
                drawing.take(*json.loads(event))
        drawing.draw()
    drawing.end()
