"""Shows what a build is doing: a live line on a terminal, one line per finished stage elsewhere. All on stderr."""

from __future__ import annotations

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


class _Lines:
    """``xnnpack: export 0.8 s`` when a stage is done; nothing that moves."""

    def started(self, target: str, stage: str) -> None:
        """A line would only repeat what follows."""

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

    def started(self, target: str, stage: str) -> None:
        if target != self._target:
            self._flush()
            self._target = target
        done = " ".join([*self._done, ""])
        self._status.update(f"[bold]{target}[/bold]  [dim]{done}[/dim]{stage} …")

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
