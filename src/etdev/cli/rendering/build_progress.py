"""Progress of a build on stderr: a live line for each target on a terminal, else printed lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from etdev.cli.interrupts import Interruptible
from etdev.cli.rendering.display import DISPLAY
from etdev.cli.rendering.output import note
from etdev.pipeline.project.progress import WAIT, Progress, Silent
from etdev.units import format_seconds

_FEW_CALLS = 4
"""Minimum number of calls for which the display shows a count. Fewer calls end before a user can read the count."""
_BETWEEN_COUNTS = 0.1
"""Minimum interval in seconds between two updates of a count. More frequent updates are unreadable and slow."""
_LONG = frozenset({"lower", "verify"})
"""Stages that may take minutes, in addition to waits."""
_CALLS, _CALLED = "run", "calls"
"""Texts that the display shows instead of a target and a stage while :func:`shown_calls` counts calls."""


@contextmanager
def shown_progress(doing: str | None = None, *, quiet: bool) -> Iterator[Progress]:
    """Show progress on stderr, as a live display or as lines; show nothing if ``quiet``.

    ``doing`` is shown immediately, before slow imports.
    """
    if quiet:
        yield Interruptible(Silent())
        return
    if not DISPLAY.start(doing or "working"):
        if doing is not None:
            note(doing)
        yield Interruptible(_Lines())
        return
    try:
        yield Interruptible(_Live())
    finally:
        DISPLAY.close()


@contextmanager
def shown_calls(total: int) -> Iterator[Callable[[], None]]:
    """Show on the display the number of finished calls of a method, the calls per second and the remaining time.

    The caller must call the yielded function after each call of the method.
    """
    live, done = _Live(), 0
    if total >= _FEW_CALLS:
        live.started(_CALLS, _CALLED)

    def advance() -> None:
        nonlocal done
        done += 1
        if total >= _FEW_CALLS:
            live.counted(_CALLS, _CALLED, done, total)

    yield advance


def describe_count(done: int, total: int | None, seconds: float) -> str:
    """Return a text such as ``340 of 1,000 calls, 120.5 a second, 5.5 s left``.

    ``seconds`` is the time since the end of the first call.
    """
    text = f"{done:,} of {total:,} calls" if total else f"{done:,} {'call' if done == 1 else 'calls'}"
    if done <= 1 or seconds <= 0:
        return text
    rate = (done - 1) / seconds
    left = f", {format_seconds((total - done) / rate)} left" if total and done < total else ""
    return f"{text}, {rate:,.1f} a second{left}"


class _Lines:
    """Progress as printed lines: ``xnnpack: export 0.8 s`` for a finished stage.

    A stage that may take minutes has a line when it begins, too: ``xnnpack: lower``.
    """

    def __init__(self) -> None:
        self._started: set[tuple[str, str]] = set()

    def started(self, target: str, stage: str) -> None:
        """Print a line if the stage may take minutes, but only once."""
        is_long = stage in _LONG or stage.startswith(WAIT)
        if is_long and (target, stage) not in self._started:
            self._started.add((target, stage))
            note(f"{target}: {stage}")

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Print nothing, because printed lines cannot change."""

    def finished(self, target: str, stage: str, seconds: float) -> None:
        note(f"{target}: {stage} {format_seconds(seconds)}")

    def failed(self, target: str, stage: str) -> None:
        note(f"{target}: {stage} failed")

    def ended(self, target: str) -> None:
        """Print nothing, because the line of the target's last stage is already printed."""


class _Live:
    """Progress on the live display."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        """Maps a target to the time at which the first call of its stage ended."""
        self._told: dict[str, float] = {}
        """Maps a target to the time at which the display last showed its count."""

    def started(self, target: str, stage: str) -> None:
        DISPLAY.tell("started", target, stage)

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if done <= 1:
            self._since[target] = now
        elif done != total and now - self._told.get(target, 0.0) < _BETWEEN_COUNTS:
            return
        self._told[target] = now
        text = describe_count(done, total, now - self._since.get(target, now))
        DISPLAY.tell("counted", target, f"{stage}: {text},")

    def finished(self, target: str, stage: str, seconds: float) -> None:
        DISPLAY.tell("finished", target, stage, seconds)

    def failed(self, target: str, stage: str) -> None:
        DISPLAY.tell("failed", target, stage)

    def ended(self, target: str) -> None:
        DISPLAY.tell("ended", target)
