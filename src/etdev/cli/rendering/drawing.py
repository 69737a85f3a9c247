"""Layout of the live display: a line for each target, with its finished stages and its running stage."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

from etdev.units import format_seconds

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STDERR = 2
_BETWEEN = "working"
"""Text that the display shows instead of a stage's name while no stage of a target runs."""

Piece = tuple[str, str]
"""A part of a line: its style and its text."""


@dataclass
class _Row:
    doing: str
    since: float
    done: list[Piece] = field(default_factory=list)

    def pieces(self, now: float) -> list[Piece]:
        """Return the parts of a target's line: the finished stages, and the running stage with its duration."""
        comma: list[Piece] = [("dim", ", ")] if self.done else []
        return [*_joined(self.done), *comma, ("", f"{self.doing} {int(now - self.since)} s …")]


class Drawing:
    """A live display on stderr; each drawing replaces the previous one."""

    def __init__(self, phase: str) -> None:
        self._rows: dict[str, _Row] = {}
        self._phase, self._since = phase, time.monotonic()
        self._drawn = 0
        """Number of lines of the display that are on the terminal."""
        self._styles = {"bold": "\x1b[1m", "dim": "\x1b[2m", "red": "\x1b[31m"}
        if os.environ.get("NO_COLOR"):
            self._styles = {}
        self._above: list[str] = []
        self._begun = ""
        """Incomplete line of text. When the line is complete, it is printed above the display."""
        self.is_closed = False
        """True after the event that ends the display."""

    def take(self, event: str, at: float, *arguments: str) -> None:
        """Apply an event that happened at the time ``at``. The terminal shows the change at the next drawing."""
        getattr(self, f"_take_{event}")(at, *arguments)

    def _take_phase(self, at: float, text: str) -> None:
        self._phase, self._since = text, at

    def _take_part(self, at: float, text: str) -> None:
        self._begun += text

    def _take_line(self, at: float) -> None:
        self._above.append(self._begun)
        self._begun = ""

    def _take_started(self, at: float, target: str, stage: str) -> None:
        row = self._rows.setdefault(target, _Row(stage, at))
        row.doing, row.since = stage, at

    def _take_counted(self, at: float, target: str, text: str) -> None:
        if target in self._rows:
            self._rows[target].doing = text

    def _take_finished(self, at: float, target: str, stage: str, seconds: float) -> None:
        self._over(at, target, ("dim", f"{stage} {format_seconds(seconds)}"))

    def _take_failed(self, at: float, target: str, stage: str) -> None:
        self._over(at, target, ("red", f"{stage} failed"))

    def _over(self, at: float, target: str, done: Piece) -> None:
        row = self._rows.setdefault(target, _Row(_BETWEEN, at))
        row.done.append(done)
        row.doing, row.since = _BETWEEN, at

    def _take_ended(self, at: float, target: str) -> None:
        row = self._rows.pop(target, None)
        if row is not None and row.done:
            self._above.append(self._styled([("bold", target), ("", "  "), *_joined(row.done)], None))
        self._phase, self._since = _BETWEEN, at

    def _take_closed(self, at: float) -> None:
        self.is_closed = True

    def draw(self) -> None:
        """Draw the current lines on the terminal."""
        now = time.monotonic()
        try:
            columns, height = os.get_terminal_size(_STDERR)
        except OSError:
            columns, height = 80, 24
        columns, height = columns or 80, height or 24  # A terminal may report its size as 0.
        spin = _SPINNER[int(now * 10) % len(_SPINNER)]
        shown = [[("bold", target), ("", "  "), *row.pieces(now)] for target, row in self._rows.items()]
        shown = shown or [_Row(self._phase, self._since).pieces(now)]
        lines = [self._styled([("", f"{spin} "), *pieces], columns - 1) for pieces in shown[: max(height - 1, 1)]]
        self._write(lines)

    def end(self) -> None:
        """Remove the display, but leave the lines of finished work on the terminal."""
        for target in list(self._rows):
            self._take_ended(0.0, target)
        self._write([])

    def _write(self, lines: list[str]) -> None:
        up = f"\x1b[{self._drawn - 1}A" if self._drawn > 1 else ""
        above = "".join(f"{line}\r\n" for line in self._above)
        content = f"\r{up}\x1b[J{above}" + "\r\n".join(lines)
        self._above, self._drawn = [], len(lines)
        data = content.encode("utf-8", "replace")
        while data:
            data = data[os.write(_STDERR, data) :]

    def _styled(self, pieces: list[Piece], room: int | None) -> str:
        text = ""
        for style, piece in pieces:
            shown = piece if room is None else piece[:room]
            room = None if room is None else room - len(shown)
            begin = self._styles.get(style, "")
            text += f"{begin}{shown}\x1b[0m" if begin and shown else shown
        return text


def _joined(done: list[Piece]) -> list[Piece]:
    return [(style, text if index == len(done) - 1 else f"{text}, ") for index, (style, text) in enumerate(done)]
