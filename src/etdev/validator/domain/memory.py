"""Symbolic content of one space of memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from etdev.validator.domain.numbers import Number

Valid: TypeAlias = tuple[int, tuple[Number, ...], int] | None
"""Extent of the last write to some bytes, if the write has a dynamic length: ``(address, sizes, bytes per element)``.

Bytes after this extent can be older. None means that the last write covered all bytes.
"""
NOTHING: Valid = (0, (0,), 1)
"""Extent of a write of zero bytes."""
Cell: TypeAlias = tuple[int, int, Valid]
"""Symbolic byte, as ``(symbol, shift, valid)``: the byte at address ``a`` is byte ``a - shift`` of the symbol."""
Run: TypeAlias = tuple[int, int, int]
"""Consecutive bytes of one symbol, as ``(symbol, offset, length)``."""
Content: TypeAlias = tuple[Run, ...]
"""Consecutive bytes, as the smallest possible number of runs."""


class Memory:
    """Symbolic memory, divided into byte ranges with one cell each. The last range has no end.

    The ranges are stored in layers. A write changes only the top layer, and copies share all other layers.
    """

    __slots__ = ("_below", "cells", "starts")

    def __init__(self, starts: list[int], cells: list[Cell | None], below: Memory | None = None) -> None:
        self.starts = starts
        self.cells = cells
        """Cell of each range, or None for a range whose cells are in the layer below."""
        self._below = below

    @classmethod
    def filled(cls, symbol: int) -> Memory:
        """Return memory in which address ``a`` has byte ``a`` of the symbol."""
        return cls([0], [(symbol, 0, None)])

    def copy(self) -> Memory:
        """Return a copy that shares unchanged layers with this memory."""
        if len(self.starts) > 1 or self._below is None:
            self._below = Memory(self.starts, self.cells, self._below)
            # Each layer has at least twice as many ranges as the one above it, so there are few layers.
            while self._below._below and 2 * len(self._below.starts) > len(self._below._below.starts):
                self._below = self._below._flattened()
            self.starts, self.cells = [0], [None]
        return Memory([0], [None], self._below)

    def _flattened(self) -> Memory:
        """Return the same memory with its two top layers merged into one."""
        assert self._below is not None
        starts: list[int] = []
        cells: list[Cell | None] = []
        below = self._below
        for start, end, cell in zip(self.starts, [*self.starts[1:], None], self.cells, strict=True):
            if cell is not None:
                starts.append(start)
                cells.append(cell)
                continue
            first = bisect_right(below.starts, start) - 1
            last = len(below.starts) if end is None else bisect_left(below.starts, end)
            starts += [start, *below.starts[first + 1 : last]]
            cells += below.cells[first:last]
        return Memory(starts, cells, below._below)

    def write(self, start: int, end: int, cell: Cell) -> None:
        """Set the cell of the bytes from ``start`` to ``end`` (exclusive)."""
        starts, cells = self.starts, self.cells
        first = bisect_left(starts, start)
        last = bisect_left(starts, end, first)
        if last < len(starts) and starts[last] == end:
            starts[first:last] = (start,)
            cells[first:last] = (cell,)
        else:
            rest = cells[last - 1]
            starts[first:last] = (start, end)
            cells[first:last] = (cell, rest)

    def write_content(self, start: int, content: Content, valid: Valid = None) -> None:
        """Write ``content`` at address ``start``."""
        for symbol, offset, length in content:
            self.write(start, start + length, (symbol, start - offset, valid))
            start += length

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int, Cell]]:
        """Yield ``(start, end, cell)`` for each range between two addresses."""
        starts, cells = self.starts, self.cells
        index = bisect_right(starts, start) - 1
        while start < end:
            last = starts[index + 1] if index + 1 < len(starts) else end
            last = min(last, end)
            cell = cells[index]
            if cell is not None:
                yield start, last, cell
            else:
                assert self._below is not None
                yield from self._below.pieces(start, last)
            start, index = last, index + 1


def shifted(valid: Valid, by: int) -> Valid:
    """Move an extent by a number of bytes."""
    return valid if valid is None or valid == NOTHING else (valid[0] + by, *valid[1:])


def joined(runs: Iterable[Run]) -> Content:
    """Concatenate runs. Unite neighboring runs that are consecutive bytes of one symbol."""
    found: list[Run] = []
    for symbol, offset, length in runs:
        if found:
            before, at, count = found[-1]
            if before == symbol and at + count == offset:
                found[-1] = (symbol, at, count + length)
                continue
        found.append((symbol, offset, length))
    return tuple(found)


def part(content: Content, start: int, length: int) -> Content:
    """Return ``length`` bytes of a content, from ``start`` on."""
    found: list[Run] = []
    at = 0
    for symbol, offset, count in content:
        first, last = max(start, at), min(start + length, at + count)
        if first < last:
            found.append((symbol, offset + first - at, last - first))
        at += count
    return tuple(found)


def overlaid(content: Content, at: int, new: Content) -> Content:
    """Return ``content`` with ``new`` written over its bytes from ``at`` on. The size stays the same."""
    count = size(new)
    first, last = max(at, 0), min(at + count, size(content))
    if first >= last:
        return content
    rest = part(content, last, size(content) - last)
    return joined((*part(content, 0, first), *part(new, first - at, last - first), *rest))


def size(content: Content) -> int:
    """Return the number of bytes of a content."""
    return sum(length for _, _, length in content)


def aligned(contents: Iterable[Content]) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """Cut contents of the same size into common pieces.

    Yield ``(length, pieces)``, where ``pieces`` has one ``(symbol, offset)`` for each content.
    """
    iterators = [list(content) for content in contents]
    at = [0] * len(iterators)
    used = [0] * len(iterators)
    while at[0] < len(iterators[0]):
        heads = [iterator[at[i]] for i, iterator in enumerate(iterators)]
        length = min(head[2] - used[i] for i, head in enumerate(heads))
        yield length, tuple((head[0], head[1] + used[i]) for i, head in enumerate(heads))
        for i, head in enumerate(heads):
            used[i] += length
            if used[i] == head[2]:
                at[i], used[i] = at[i] + 1, 0
