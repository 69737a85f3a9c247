"""Charts of planned memory over the instructions, as plain text: ``etdev inspect --chart``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TextIO

from etdev.cli.rendering.text import line
from etdev.units import format_size

if TYPE_CHECKING:
    from etdev.program.analysis.storage import MethodMemory, Storage
    from etdev.program.info import BufferInfo, MethodInfo

_BARS, _SHADES, _BOUND = " ▁▂▃▄▅▆▇█", " ░▒▓█", "┄"
_PLAIN_BARS, _PLAIN_SHADES, _PLAIN_BOUND = " .:-=+*#@", " .:+#", "_"
"""Characters for a stream that cannot encode block characters: for bars, for shades and for the lower bound."""
_LIVE_ROWS, _MAP_ROWS = 6, 10
_LABELS = 12
"""Number of text columns at the left of a chart, for the indentation and a label."""
_NARROWEST, _WIDEST = 16, 120
"""Minimum and maximum number of columns of a chart."""


def chart_lines(method: MethodInfo, memory: MethodMemory | str, stream: TextIO) -> Iterator[str]:
    """Yield two charts for each planned buffer: bytes in use and addresses in use, at each instruction."""
    if isinstance(memory, str):
        return
    width = min(max(shutil.get_terminal_size().columns - _LABELS - 2, _NARROWEST), _WIDEST)
    for buffer in method.buffers:
        storages = [storage for storage in memory.storages if storage.memory_id == buffer.index]
        if storages and buffer.size:
            stretched = memory.instants * max(width // memory.instants, 1)
            yield from _buffer_lines(buffer, storages, memory.instants, min(width, stretched), stream)


def _buffer_lines(
    buffer: BufferInfo, storages: Sequence[Storage], instants: int, columns: int, stream: TextIO
) -> Iterator[str]:
    blocks = _takes_blocks(stream)
    yield line("chart", f"{buffer.label} on {buffer.device}: bytes in use, and below that the tensors by address")
    bound = buffer.lower_bound if buffer.lower_bound != buffer.size else None
    bars, mark = (_BARS, _BOUND) if blocks else (_PLAIN_BARS, _PLAIN_BOUND)
    yield from _framed(_bars(_most_in_use(storages, instants, columns), buffer.size, bound, bars, mark), buffer.size)
    shades = _SHADES if blocks else _PLAIN_SHADES
    yield from _framed(_map(storages, instants, columns, buffer.size, shades), buffer.size)
    first, last = "in", "out"
    yield f"{'':{_LABELS}} {first}{f'{instants - 2:,} instructions':^{max(columns - len(first + last), 0)}}{last}"
    if bound is not None:
        yield f"{'':{_LABELS}} {mark} lower bound for any plan, {format_size(bound)}"


def _takes_blocks(stream: TextIO) -> bool:
    try:
        f"{_BARS}{_SHADES}{_BOUND}".encode(stream.encoding or "ascii")
    except UnicodeError:
        return False
    return True


def _framed(rows: Sequence[str], top: int) -> Iterator[str]:
    """Yield the rows of a chart in a frame, with the label ``top`` at the top row and ``0`` at the bottom row."""
    for index, row in enumerate(rows):
        label = format_size(top) if index == 0 else "0" if index == len(rows) - 1 else ""
        yield f"{label:>{_LABELS - 1}} |{row}|"


def _most_in_use(storages: Sequence[Storage], instants: int, columns: int) -> list[int]:
    """Return, for each column of the chart, the largest number of bytes in use at any instant in the column."""
    changes = [0] * (instants + 1)
    for storage in storages:
        changes[storage.start] += storage.size
        changes[storage.end] -= storage.size
    live = list(accumulate(changes[:instants]))
    edges = [column * instants // columns for column in range(columns + 1)]
    return [max(live[low : max(high, low + 1)]) for low, high in pairwise(edges)]


def _bars(heights: Sequence[int], top: int, bound: int | None, bars: str, mark: str) -> list[str]:
    steps = len(bars) - 1
    filled = [-(-height * _LIVE_ROWS * steps // top) for height in heights]
    at = None if bound is None else min(bound * _LIVE_ROWS // top, _LIVE_ROWS - 1)
    rows = []
    for row in reversed(range(_LIVE_ROWS)):
        cells = [bars[min(max(height - row * steps, 0), steps)] for height in filled]
        rows.append("".join(mark if cell == " " and row == at else cell for cell in cells))
    return rows


def _map(storages: Sequence[Storage], instants: int, columns: int, top: int, shades: str) -> list[str]:
    """Return the rows of the chart of addresses. The first row shows the highest addresses.

    Each cell covers an interval of time and of addresses. Its shade shows the fraction of the cell that is in use.
    """
    steps = len(shades) - 1
    rows = []
    for row in reversed(range(_MAP_ROWS)):
        low, high = row * top / _MAP_ROWS, (row + 1) * top / _MAP_ROWS
        parts = _shares(storages, instants, columns, low, high)
        rows.append("".join(shades[min(steps, max(1, round(part * steps))) if part > 1e-9 else 0] for part in parts))
    return rows


def _shares(storages: Sequence[Storage], instants: int, columns: int, low: float, high: float) -> list[float]:
    """Return, for each column, the share of the addresses from ``low`` to ``high`` that is in use."""
    at_start = [0.0] * (columns + 2)

    for storage in storages:
        share = (min(high, storage.offset + storage.size) - max(low, storage.offset)) / (high - low)
        if share > 0:
            for instant, sign in ((storage.start, 1), (storage.end, -1)):
                place = instant * columns / instants
                column = int(place)
                late = place - column
                at_start[column] += sign * share * (1 - late)
                at_start[column + 1] += sign * share * late
    shares = []
    live = 0.0
    for change in at_start[:columns]:
        live += change
        shares.append(live)
    return shares
