"""How a build tells what it is doing; the command line shows it, the Python API is silent unless asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

Count = Callable[[int, int | None], None]
"""Takes how many calls of a program were made, and how many there will be if that is known."""


WAIT = "wait for another build of it"
"""Begins the name of the stage in which a build of the same output runs elsewhere."""


def uncounted(done: int, total: int | None) -> None:
    """Tells nobody."""


class Progress(Protocol):
    """Receives what happens in a build, in order."""

    def started(self, target: str, stage: str) -> None:
        """A stage of a target begins."""

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """So many calls were made in it, of so many if that is known."""

    def finished(self, target: str, stage: str, seconds: float) -> None:
        """It is done."""

    def failed(self, target: str, stage: str) -> None:
        """It raised."""

    def ended(self, target: str) -> None:
        """No further stage of the target comes."""


class Silent:
    """Shows nothing."""

    def started(self, target: str, stage: str) -> None:
        """Nothing."""

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Nothing."""

    def finished(self, target: str, stage: str, seconds: float) -> None:
        """Nothing."""

    def failed(self, target: str, stage: str) -> None:
        """Nothing."""

    def ended(self, target: str) -> None:
        """Nothing."""


class StageClock:
    """Times the stages of one target and passes them on to a :class:`Progress`."""

    def __init__(self, target: str, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self._target, self._progress = target, progress
        self._open: list[tuple[str, float]] = []
        """The stages that run, one inside the other, each with the seconds of those that ran inside it."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage; a stage entered twice adds up. The time of one that runs inside another counts only there."""
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
        """Count in stages that ran elsewhere at the same time: the longest of each."""
        for name in dict.fromkeys(name for seconds in others for name in seconds):
            longest = max(seconds.get(name, 0.0) for seconds in others)
            self.seconds[name] = self.seconds.get(name, 0.0) + longest

    def count(self, stage: str) -> Count:
        """What passes on how many calls were made in a stage."""
        return lambda done, total: self._progress.counted(self._target, stage, done, total)
