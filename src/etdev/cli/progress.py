"""Shows what a build is doing: a live line on a terminal, one line per finished stage elsewhere. All on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from etdev.cli.interrupts import Interruptible
from etdev.cli.output import note, terminal_console
from etdev.pipeline.progress import Progress, Silent
from etdev.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from etdev.pipeline.run import CallProgress

_FEW_CALLS = 4
"""That are over before anybody looks."""


@contextmanager
def shown_progress(*, quiet: bool) -> Iterator[Progress]:
    """The right display for where stderr goes."""
    if quiet:
        yield Interruptible(Silent())
        return
    console = terminal_console()
    if console is None:
        yield Interruptible(_Lines())
        return
    live = _Live(console)
    try:
        yield Interruptible(live)
    finally:
        live.close()


def shown_calls(*, quiet: bool) -> CallProgress:
    """A bar with rate and remaining time for many calls, where stderr is a terminal; else nothing."""

    @contextmanager
    def shown(total: int) -> Iterator[Callable[[], None]]:
        console = None if quiet or total < _FEW_CALLS else terminal_console()
        if console is None:
            yield lambda: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("calls", total=total, rate="")

            def advance() -> None:
                speed = bar.tasks[task].speed
                bar.update(task, advance=1, rate=f"{speed:,.1f} calls a second" if speed else "")

            yield advance

    return shown


def describe_count(done: int, total: int | None, seconds: float) -> str:
    """``340 of 1,000 calls, 120.5 a second, 5.5 s left``; the first call was made ``seconds`` ago."""
    text = f"{done:,} of {total:,} calls" if total else f"{done:,} {'call' if done == 1 else 'calls'}"
    if done <= 1 or seconds <= 0:
        return text
    rate = (done - 1) / seconds
    left = f", {format_seconds((total - done) / rate)} left" if total and done < total else ""
    return f"{text}, {rate:,.1f} a second{left}"


class _Lines:
    """``xnnpack: export 0.8 s`` when a stage is done; nothing that moves."""

    def started(self, target: str, stage: str) -> None:
        """A line would only repeat what follows."""

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Nothing that moves."""

    def finished(self, target: str, stage: str, seconds: float) -> None:
        note(f"{target}: {stage} {format_seconds(seconds)}")

    def failed(self, target: str, stage: str) -> None:
        note(f"{target}: {stage} failed")


class _Live:
    """A spinner with the stage that runs; finished stages stand above it, one line per target."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("starting")
        self._status.start()
        self._target = ""
        self._done: list[str] = []
        self._since = 0.0
        """When the stage's calls began."""

    def started(self, target: str, stage: str) -> None:
        if target != self._target:
            self._flush()
            self._target = target
        self._show(stage)

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if done <= 1:
            self._since = now
        self._show(f"{stage}: {describe_count(done, total, now - self._since)}")

    def _show(self, doing: str) -> None:
        done = " ".join([*self._done, ""])
        self._status.update(f"[bold]{self._target}[/bold]  [dim]{done}[/dim]{doing} …")

    def finished(self, target: str, stage: str, seconds: float) -> None:
        self._done.append(f"{stage} {format_seconds(seconds)},")

    def failed(self, target: str, stage: str) -> None:
        self._done.append(f"[red]{stage} failed[/red],")

    def close(self) -> None:
        """Stop the spinner and leave the last line behind."""
        self._flush()
        self._status.stop()

    def _flush(self) -> None:
        if self._done:
            self._console.print(f"[bold]{self._target}[/bold]  [dim]{' '.join(self._done).rstrip(',')}[/dim]")
        self._done = []
