"""Shows what a build is doing, on stderr: a live line per target on a terminal, a line per finished stage elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etdev.cli.interrupts import Interruptible
from etdev.cli.output import note, terminal_console
from etdev.pipeline.progress import WAIT, Progress, Silent
from etdev.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.spinner import Spinner

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
        """A line would only repeat what follows, unless it may be long until something follows."""
        if stage.startswith(WAIT):
            note(f"{target}: {stage}")

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Nothing that moves."""

    def finished(self, target: str, stage: str, seconds: float) -> None:
        note(f"{target}: {stage} {format_seconds(seconds)}")

    def failed(self, target: str, stage: str) -> None:
        note(f"{target}: {stage} failed")

    def ended(self, target: str) -> None:
        """Its last line says so."""


@dataclass
class _Row:
    """What is shown of one target."""

    spinner: Spinner
    doing: str = "starting"
    done: list[str] = field(default_factory=list)
    since: float = 0.0
    """When the stage's calls began."""


class _Live:
    """A line for each target that is being built, with the stage that runs; the lines of those that are done stand
    above."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._rows: dict[str, _Row] = {}
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=12.5, transient=True)
        self._live.start()

    def started(self, target: str, stage: str) -> None:
        self._row(target).doing = stage

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        row, now = self._row(target), time.monotonic()
        if done <= 1:
            row.since = now
        row.doing = f"{stage}: {describe_count(done, total, now - row.since)}"

    def finished(self, target: str, stage: str, seconds: float) -> None:
        self._row(target).done.append(f"{stage} {format_seconds(seconds)},")

    def failed(self, target: str, stage: str) -> None:
        self._row(target).done.append(f"[red]{stage} failed[/red],")

    def ended(self, target: str) -> None:
        row = self._rows.pop(target, None)
        if row is not None and row.done:
            self._console.print(f"[bold]{target}[/bold]  [dim]{' '.join(row.done).rstrip(',')}[/dim]")

    def close(self) -> None:
        """Leave the last lines behind."""
        for target in list(self._rows):
            self.ended(target)
        self._live.stop()

    def _row(self, target: str) -> _Row:
        if target not in self._rows:
            from rich.spinner import Spinner

            self._rows[target] = _Row(Spinner("dots"))
        return self._rows[target]

    def _render(self) -> Group:
        """In the thread that draws."""
        from rich.console import Group

        for target, row in list(self._rows.items()):
            done = " ".join([*row.done, ""])
            row.spinner.update(text=f"[bold]{target}[/bold]  [dim]{done}[/dim]{row.doing} …")
        return Group(*(row.spinner for row in list(self._rows.values())))
