"""Bytes of a file that are referred to, not copied: weights, delegate blobs, initial values."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import final

_CHUNK = 1 << 20
_HASHED = 64
"""Bytes at each of some places that a hash is made of."""
"""Bytes that are compared at a time."""


@final
class Blob:
    """An immutable run of bytes: a slice of a mapped file, bytes in memory, or several of them. Equal if the bytes are.

    A slice keeps its mapping alive; the mapping goes with the last slice. Bytes of a file that somebody overwrites in
    place meanwhile change with it; etdev itself replaces files by renaming.
    """

    __slots__ = ("_ends", "_views")

    def __init__(self, content: bytes | memoryview | mmap.mmap = b"") -> None:
        self._views: tuple[memoryview, ...] = (memoryview(content).toreadonly().cast("B"),)
        self._ends: tuple[int, ...] = (self._views[0].nbytes,)

    @classmethod
    def joined(cls, parts: Iterable[Blob]) -> Blob:
        """One behind the other, without a copy."""
        found = cls()
        found._views = tuple(view for part in parts for view in part._views if view.nbytes) or found._views
        found._ends = tuple(accumulate(view.nbytes for view in found._views))
        return found

    @property
    def view(self) -> memoryview:
        """All bytes. Of several pieces, a copy."""
        return self._views[0] if len(self._views) == 1 else memoryview(bytes(self))

    @property
    def views(self) -> tuple[memoryview, ...]:
        """All bytes in the pieces that they are in, without a copy."""
        return self._views

    def cut(self, start: int, size: int) -> Blob:
        """``size`` bytes from ``start`` on, without a copy. Raises :class:`ValueError` if they are not all inside."""
        if start < 0 or size < 0 or start + size > len(self):
            raise ValueError(f"bytes {start} to {start + size} of a blob of {len(self)}")
        return Blob.joined(Blob(view) for view in self._between(start, start + size))

    def _between(self, start: int, end: int) -> Iterator[memoryview]:
        index = bisect_right(self._ends, start)
        while index < len(self._views) and start < end:
            begin = self._ends[index] - self._views[index].nbytes
            yield self._views[index][start - begin : end - begin]
            start = self._ends[index]
            index += 1

    def is_zero(self) -> bool:
        """Are there only zero bytes?"""
        return not any(piece.strip(b"\0") for piece in self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        # Comparing memoryviews goes element by element, comparing bytes is a memcmp.
        for start in range(0, len(self), _CHUNK):
            yield b"".join(self._between(start, min(start + _CHUNK, len(self))))

    def __len__(self) -> int:
        return self._ends[-1]

    def __bytes__(self) -> bytes:
        return b"".join(self._views)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blob):
            return NotImplemented
        if len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self._pieces(), other._pieces(), strict=True))

    def __hash__(self) -> int:
        size = len(self)
        starts = (0, size // 3, size // 2, max(0, size - _HASHED))  # Rows of zeros at the front are common.
        return hash((size, *(b"".join(self._between(at, min(at + _HASHED, size))) for at in starts)))

    def __repr__(self) -> str:
        return f"Blob({len(self)} bytes)"
