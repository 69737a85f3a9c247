"""Bytes of a file that are referred to, not copied: weights, delegate blobs, initial values."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import final

_CHUNK = 1 << 20
"""Bytes that are compared at a time."""


@final
class Blob:
    """An immutable run of bytes: a slice of a mapped file, or bytes in memory. Equal if the contents are.

    A slice keeps its mapping alive; the mapping goes with the last slice. Bytes of a file that somebody overwrites in
    place meanwhile change with it; etdev itself replaces files by renaming.
    """

    __slots__ = ("_view",)

    def __init__(self, content: bytes | memoryview | mmap.mmap = b"") -> None:
        self._view = memoryview(content).toreadonly().cast("B")

    @property
    def view(self) -> memoryview:
        """All bytes, without a copy."""
        return self._view

    def cut(self, start: int, size: int) -> Blob:
        """``size`` bytes from ``start`` on, without a copy. Raises :class:`ValueError` if they are not all inside."""
        if start < 0 or size < 0 or start + size > len(self):
            raise ValueError(f"bytes {start} to {start + size} of a blob of {len(self)}")
        return Blob(self._view[start : start + size])

    def is_zero(self) -> bool:
        """Are there only zero bytes?"""
        return not any(piece.strip(b"\0") for piece in self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        # Comparing memoryviews goes element by element, comparing bytes is a memcmp.
        return (bytes(self._view[start : start + _CHUNK]) for start in range(0, len(self), _CHUNK))

    def __len__(self) -> int:
        return self._view.nbytes

    def __bytes__(self) -> bytes:
        return bytes(self._view)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blob):
            return NotImplemented
        if len(self) != len(other):
            return False
        return all(mine == theirs for mine, theirs in zip(self._pieces(), other._pieces(), strict=True))

    def __hash__(self) -> int:
        return hash((len(self), bytes(self._view[:64])))

    def __repr__(self) -> str:
        return f"Blob({len(self)} bytes)"
