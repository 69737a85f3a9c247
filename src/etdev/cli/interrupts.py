"""Ctrl-C, SIGTERM and a closed terminal: one way out of whatever runs, which removes half-written files and ends child
processes."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from etdev.pipeline.progress import Progress

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_PATIENCE = 3.0
"""Seconds that the way out may take before a third Ctrl-C ends the process on the spot."""


class Interrupts:
    """Turns the first signal into a KeyboardInterrupt while it is entered, and remembers that one came.

    Later signals change nothing: raised again, they would stop the removal of half-written files. Only a third Ctrl-C
    when the way out seems to hang kills. Remembering is needed because libraries lose the exception: an import that is
    interrupted in the middle may swallow the KeyboardInterrupt or end in a KeyError of its own.
    """

    def __init__(self) -> None:
        self.seen = False
        self._first = 0.0
        self._keystrokes = 0

    def __enter__(self) -> Self:
        self.seen = False
        self._keystrokes = 0
        try:
            self._before = {number: signal.signal(number, self._interrupt) for number in _SIGNALS if _is_wanted(number)}
        except ValueError:  # Not in the main thread: someone else's process, and their signals.
            self._before = {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._keystrokes += number == signal.SIGINT
        if not self.seen:
            self.seen, self._first = True, time.monotonic()
            raise KeyboardInterrupt
        if self._keystrokes >= 3 and time.monotonic() - self._first > _PATIENCE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _is_wanted(number: signal.Signals) -> bool:
    """``nohup`` ignores SIGHUP so that what it starts outlives the terminal."""
    return number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN


INTERRUPTS = Interrupts()
"""The one of this process: signals are process-wide, too."""


class Interruptible:
    """A progress display that stops the build at the next stage if an interrupt got lost in the one before."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def started(self, target: str, stage: str) -> None:
        """Pass on, unless the user wants no more."""
        if INTERRUPTS.seen:
            raise KeyboardInterrupt
        self._progress.started(target, stage)

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Pass on, unless the user wants no more."""
        if INTERRUPTS.seen:
            raise KeyboardInterrupt
        self._progress.counted(target, stage, done, total)

    def finished(self, target: str, stage: str, seconds: float) -> None:
        """Pass on."""
        self._progress.finished(target, stage, seconds)

    def failed(self, target: str, stage: str) -> None:
        """Pass on, unless it did not fail but was stopped."""
        if not INTERRUPTS.seen:
            self._progress.failed(target, stage)

    def ended(self, target: str) -> None:
        """Pass on."""
        self._progress.ended(target)


def ignore_from_now_on() -> None:
    """For the end of the process, when all is said and only libraries still tidy up."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
