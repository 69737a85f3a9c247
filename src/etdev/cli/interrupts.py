"""Handling of Ctrl-C, SIGTERM and a closed terminal.

Each of these events ends the running command in the same way: incomplete files are removed, and child processes end.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Self

from etdev.cli.rendering.display import DISPLAY
from etdev.errors import ExitCode

if TYPE_CHECKING:
    from etdev.pipeline.project.progress import Progress

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OURS = frozenset(map(int, _SIGNALS))
_STDERR = 2

_ECHO = 0.25
"""Seconds after a SIGINT during which another SIGINT counts as the same keystroke.

Some wrapper programs forward the SIGINT, so this process receives it again.
"""


class Interrupts:
    """Context manager that raises KeyboardInterrupt at the first signal, and records that a signal arrived.

    The record is necessary because libraries lose the exception: an interrupted import may swallow the
    KeyboardInterrupt or raise a KeyError instead.

    A second Ctrl-C ends the process immediately. A thread waits for the second Ctrl-C, because the main thread may be
    in a long call of a library. Incomplete files then remain until etdev writes the same file again.

    All other later signals have no effect, because another exception would stop the removal of incomplete files.
    """

    def __init__(self) -> None:
        self.seen = False
        self._pipe: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        self.seen = False
        try:
            self._before = {number: signal.signal(number, self._interrupt) for number in _SIGNALS if _is_wanted(number)}
        except ValueError:  # This is not the main thread: the surrounding program handles signals.
            self._before = {}
            return self
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._watch = threading.Thread(target=_end_at_the_second, args=(self._pipe[0],), daemon=True)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._pipe[1])
            self._watch.join()
            os.close(self._pipe[0])
            self._pipe = None

    def forget(self) -> None:
        """Close the pipe for signals in a forked process.

        While the pipe is open, signals to the forked process also reach its parent. In addition, the parent's thread
        that reads from the pipe cannot end, because it ends only when no process has the pipe open for writing.
        """
        if self._pipe is not None:
            with suppress(ValueError):
                signal.set_wakeup_fd(-1)
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self.seen:
            self.seen = True
            raise KeyboardInterrupt


def _end_at_the_second(pipe: int) -> None:
    """Read the numbers of incoming signals from a pipe, and end the process at the second Ctrl-C."""
    first: float | None = None
    while numbers := os.read(pipe, 64):
        now = time.monotonic()
        if first is not None and signal.SIGINT in numbers and now - first > _ECHO:
            with suppress(OSError):  # The terminal may be closed.
                DISPLAY.abandon()
                shown = "\x1b[?25h" if os.isatty(_STDERR) else ""  # A progress display hides the cursor.
                os.write(_STDERR, f"{shown}interrupted\n".encode())
            os._exit(ExitCode.INTERRUPTED)
        if first is None and not _OURS.isdisjoint(numbers):
            first = now


def _is_wanted(number: signal.Signals) -> bool:
    """Return True if this signal should be handled; an ignored SIGHUP stays ignored, as ``nohup`` requires."""
    return number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN


INTERRUPTS = Interrupts()
"""The only instance, because signals concern the whole process."""

os.register_at_fork(after_in_child=INTERRUPTS.forget)


class Interruptible:
    """Wrapper of a progress display. After a signal, the wrapper raises KeyboardInterrupt at each event.

    This is necessary because a library may have lost the first KeyboardInterrupt.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def started(self, target: str, stage: str) -> None:
        """Forward the event to the display. Raises KeyboardInterrupt if a signal has arrived."""
        if INTERRUPTS.seen:
            raise KeyboardInterrupt
        self._progress.started(target, stage)

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Forward the event to the display. Raises KeyboardInterrupt if a signal has arrived."""
        if INTERRUPTS.seen:
            raise KeyboardInterrupt
        self._progress.counted(target, stage, done, total)

    def finished(self, target: str, stage: str, seconds: float) -> None:
        """Forward the event to the display."""
        self._progress.finished(target, stage, seconds)

    def failed(self, target: str, stage: str) -> None:
        """Forward the event to the display. After a signal, do nothing, because the stage was interrupted."""
        if not INTERRUPTS.seen:
            self._progress.failed(target, stage)

    def ended(self, target: str) -> None:
        """Forward the event to the display."""
        self._progress.ended(target)


def ignore_from_now_on() -> None:
    """Ignore signals from now on; called at the end of the process, when only libraries still clean up."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
