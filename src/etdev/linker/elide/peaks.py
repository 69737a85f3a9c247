"""Segment tree of the bytes in use at each instant, with range updates and range maxima."""

from __future__ import annotations

from collections.abc import Sequence


class Peaks:
    """Bytes in use at each instant, as a segment tree. Updates and queries take logarithmic time."""

    def __init__(self, in_use: Sequence[int]) -> None:
        self._size = 1 << max(len(in_use) - 1, 1).bit_length()
        self._added = [0] * (2 * self._size)
        """For each node of the tree, the bytes added to every instant below the node."""
        self._peak = [0] * self._size + [*in_use] + [0] * (self._size - len(in_use))
        """For each node, the peak of the instants below the node, without bytes added at an ancestor of the node."""
        for node in range(self._size - 1, 0, -1):
            self._peak[node] = max(self._peak[2 * node], self._peak[2 * node + 1])

    def add(self, start: int, end: int, size: int) -> None:
        """Add ``size`` bytes to the instants from ``start`` to before ``end``."""
        if start >= end:
            return
        low, high = start + self._size, end + self._size
        while low < high:
            if low & 1:
                self._add_to(low, size)
                low += 1
            if high & 1:
                high -= 1
                self._add_to(high, size)
            low, high = low >> 1, high >> 1
        for leaf in (start + self._size, end - 1 + self._size):
            node = leaf
            while node > 1:
                node >>= 1
                self._peak[node] = max(self._peak[2 * node], self._peak[2 * node + 1]) + self._added[node]

    def _add_to(self, node: int, size: int) -> None:
        self._peak[node] += size
        self._added[node] += size

    def peak(self, start: int, end: int) -> int:
        """Return the peak number of bytes in use from ``start`` to before ``end``."""
        low, high = start + self._size, end - 1 + self._size
        left, right = self._peak[low], self._peak[high]
        while low >> 1 != high >> 1 and low != high:
            if not low & 1:
                left = max(left, self._peak[low + 1])
            if high & 1:
                right = max(right, self._peak[high - 1])
            low, high = low >> 1, high >> 1
            left, right = left + self._added[low], right + self._added[high]
        found = max(left, right)
        while low > 1:
            low >>= 1
            found += self._added[low]
        return found
