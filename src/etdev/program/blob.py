"""References to bytes that are not copied: weights, delegate blobs, initial values."""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import cast, final

CHUNK = 1 << 20
"""Number of bytes that are compared, hashed or written at a time."""
_HASHED = 64
"""Number of bytes in each of the samples that determine a blob's hash."""

_CAN_RETURN = hasattr(mmap, "MADV_DONTNEED")
"""True if the system can drop mapped pages. Windows cannot, but trims memory automatically."""

_Slice = tuple[memoryview, int | None]
"""Pair: bytes, and their position in a mapped file. The position is None for bytes that are not in a file."""


@final
class Blob:
    """Immutable bytes: a slice of a mapped file, bytes in memory, or a sequence of such parts.

    Blobs are equal if their bytes are equal. A slice keeps its mapping alive, and the mapping ends with the last slice.
    If a file is overwritten in place, the blob's bytes change, too. etdev itself replaces files by renaming.

    When a process reads a page of a mapped file, the operating system counts the page as memory of the process. To go
    through all bytes of a blob, use :meth:`pieces`. That method drops pages after use, so a large file takes little
    memory.
    """

    __slots__ = ("_ends", "_places", "_views")

    def __init__(self, content: bytes | memoryview = b"") -> None:
        self._set([(memoryview(content).toreadonly().cast("B"), None)])

    @classmethod
    def mapped(cls, mapping: mmap.mmap) -> Blob:
        """Return all bytes of a file that is mapped read-only."""
        return cls._of([(memoryview(mapping).toreadonly().cast("B"), 0)])

    @classmethod
    def joined(cls, parts: Iterable[Blob]) -> Blob:
        """Return the concatenation of several blobs, without a copy."""
        return cls._of(
            [slice_ for part in parts for slice_ in zip(part._views, part._places, strict=True) if slice_[0].nbytes]
        )

    @classmethod
    def _of(cls, slices: Sequence[_Slice]) -> Blob:
        found = cls()
        if slices:
            found._set(slices)
        return found

    def _set(self, slices: Sequence[_Slice]) -> None:
        self._views = tuple(view for view, _ in slices)
        self._places = tuple(place for _, place in slices)
        self._ends = tuple(accumulate(view.nbytes for view in self._views))

    @property
    def view(self) -> memoryview:
        """Return all bytes. If the blob consists of several slices, this makes a copy."""
        return self._views[0] if len(self._views) == 1 else memoryview(bytes(self))

    def cut(self, start: int, size: int) -> Blob:
        """Return ``size`` bytes from ``start`` on, without a copy.

        Raises :class:`ValueError` if any of these bytes is outside of the blob.
        """
        if start < 0 or size < 0 or start + size > len(self):
            raise ValueError(f"bytes {start} to {start + size} are outside a blob of {len(self)} bytes")
        return Blob._of(list(self._between(start, start + size)))

    def _between(self, start: int, end: int) -> Iterator[_Slice]:
        index = bisect_right(self._ends, start)
        while index < len(self._views) and start < end:
            view, place = self._views[index], self._places[index]
            begin = self._ends[index] - view.nbytes
            yield view[start - begin : end - begin], None if place is None else place + start - begin
            start = self._ends[index]
            index += 1

    def pieces(self, at: int = 0) -> Iterator[memoryview]:
        """Yield all bytes in pieces. Each request for a piece drops the pages of the previous piece.

        A piece ends at a multiple of ``CHUNK``, counted as if the blob began at byte ``at``.
        """
        start = 0
        while start < len(self):
            end = min(len(self), start + CHUNK - (at + start) % CHUNK)
            for view, place in self._between(start, end):
                yield view
                _return_pages(view, place)
            start = end

    def is_zero(self) -> bool:
        """Return whether all bytes are zero."""
        return not any(piece.strip(b"\0") for piece in self._copies())

    def _copies(self) -> Iterator[bytes]:
        # Compare and search copies: that is a memcmp on bytes, but a slow loop over the elements of a memoryview.
        for start in range(0, len(self), CHUNK):
            slices = list(self._between(start, min(start + CHUNK, len(self))))
            copied = b"".join(view for view, _ in slices)
            for view, place in slices:
                _return_pages(view, place)
            yield copied

    def __len__(self) -> int:
        return self._ends[-1]

    def __bytes__(self) -> bytes:
        return b"".join(self._views)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blob):
            return NotImplemented
        if len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self._copies(), other._copies(), strict=True))

    def __hash__(self) -> int:
        size = len(self)
        starts = (0, size // 3, size // 2, max(0, size - _HASHED))  # Leading rows of zeros are common.
        return hash((size, *(bytes(self.cut(at, min(_HASHED, size - at))) for at in starts)))

    def __repr__(self) -> str:
        return f"Blob({len(self)} bytes)"


def _return_pages(view: memoryview, place: int | None) -> None:
    """Drop the pages of a slice from memory. Keep the page at the slice's end, because other slices may need it."""
    if place is None or not _CAN_RETURN:
        return
    begin, end = (at // mmap.PAGESIZE * mmap.PAGESIZE for at in (place, place + view.nbytes))
    if begin < end:
        cast(mmap.mmap, view.obj).madvise(mmap.MADV_DONTNEED, begin, end - begin)
