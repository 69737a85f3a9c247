"""Ctrl-C and SIGTERM: one way out of whatever runs, which removes half-written files and ends child processes."""

from __future__ import annotations

import signal
from types import FrameType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from etdev.pipeline.progress import Progress

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Turns both signals into a KeyboardInterrupt while it is entered, and remembers that one came.

    Remembering is needed because libraries lose it: an import that is interrupted in the middle may swallow the
    KeyboardInterrupt or end in a KeyError of its own.
    """

    def __init__(self) -> None:
        self.seen = False

    def __enter__(self) -> Self:
        self.seen = False
        try:
            self._before = [signal.signal(number, self._interrupt) for number in _SIGNALS]
        except ValueError:  # Not in the main thread: someone else's process, and their signals.
            self._before = []
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(_SIGNALS, self._before, strict=False):
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        raise KeyboardInterrupt


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

    def finished(self, target: str, stage: str, seconds: float) -> None:
        """Pass on."""
        self._progress.finished(target, stage, seconds)

    def failed(self, target: str, stage: str) -> None:
        """Pass on, unless it did not fail but was stopped."""
        if not INTERRUPTS.seen:
            self._progress.failed(target, stage)


def ignore_from_now_on() -> None:
    """For the end of the process, when all is said and only libraries still tidy up."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
