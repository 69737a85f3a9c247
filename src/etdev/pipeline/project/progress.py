"""Progress of a build. The command line shows it; the Python API shows it only if the caller passes a display."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

Count = Callable[[int, int | None], None]
"""A callback that takes the number of program calls so far, and the total number; the total is None if unknown."""


WAIT = "wait for another build of this target"
"""Name of the stage in which a build waits until another build of the same target ends.

The other build's process id is appended if it is known.
"""


def uncounted(done: int, total: int | None) -> None:
    """Ignore the number of calls."""


class Progress(Protocol):
    """A receiver of a build's events, in order."""

    def started(self, target: str, stage: str) -> None:
        """Report that a stage of a target begins."""

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Report the number of program calls that a stage has made so far, and the total if known."""

    def finished(self, target: str, stage: str, seconds: float) -> None:
        """Report that a stage has ended without an error."""

    def failed(self, target: str, stage: str) -> None:
        """Report that a stage raised an error."""

    def ended(self, target: str) -> None:
        """Report that no further stage of the target follows."""


class Silent:
    """A :class:`Progress` that shows nothing."""

    def started(self, target: str, stage: str) -> None:
        """Ignore the start of a stage."""

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Ignore the number of program calls."""

    def finished(self, target: str, stage: str, seconds: float) -> None:
        """Ignore the end of a stage."""

    def failed(self, target: str, stage: str) -> None:
        """Ignore the failure of a stage."""

    def ended(self, target: str) -> None:
        """Ignore the end of a target's last stage."""


class StageClock:
    """A timer for the stages of one target, which reports each stage to a :class:`Progress`."""

    def __init__(self, target: str, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self._target, self._progress = target, progress
        self._open: list[tuple[str, float]] = []
        """The running stages, outermost first, each with the seconds spent in stages inside it."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the time of the block as one stage.

        Times of repeated stages add up. A stage inside another is not counted in the outer stage's time.
        """
        self._progress.started(self._target, name)
        self._open.append((name, 0.0))
        start = time.perf_counter()
        try:
            yield
        except BaseException:
            self._open.pop()
            self._progress.failed(self._target, name)
            raise
        elapsed = time.perf_counter() - start
        seconds = elapsed - self._open.pop()[1]
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._progress.finished(self._target, name, seconds)
        if self._open:
            outer, inside = self._open[-1]
            self._open[-1] = outer, inside + elapsed
            self._progress.started(self._target, outer)

    def include(self, others: Sequence[Mapping[str, float]]) -> None:
        """Add the times of stages that ran in parallel elsewhere: for each stage, the longest time."""
        for name in dict.fromkeys(name for seconds in others for name in seconds):
            longest = max(seconds.get(name, 0.0) for seconds in others)
            self.seconds[name] = self.seconds.get(name, 0.0) + longest

    def count(self, stage: str) -> Count:
        """Return a callback that reports the number of program calls that a stage has made."""
        return lambda done, total: self._progress.counted(self._target, stage, done, total)
