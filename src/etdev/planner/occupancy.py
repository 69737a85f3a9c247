"""Which bytes are in use at which instants, while buffers are being placed.

A binary tree over the instants. A buffer's lifetime is covered by a few nodes (two per level at most); each node holds
the union of the byte ranges in use during its whole stretch of time, and the union of those in use at any time in it.
What is in use at any time of a lifetime is then found in the nodes that cover it and in those above them. Ranges that
touch are one, so a tight plan stays a few ranges per node, however many buffers it has: no list of overlapping pairs
is needed, which for thousands of buffers in use at once would not fit into memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from etdev.planner.problem import Buffer


class Timeline:
    """The lifetimes of some buffers as half-open ranges of ranks.

    Ranks count the instants at which a buffer starts; two lifetimes overlap exactly if their ranges do.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        starts = sorted({buffer.start for buffer in buffers})
        rank = {start: index for index, start in enumerate(starts)}
        self.ranks = len(starts)
        self.ranges = [(rank[buffer.start], bisect_left(starts, buffer.end)) for buffer in buffers]


class Occupancy:
    """Bytes in use over the ranks of a :class:`Timeline`; the buffers of a lifetime are told apart by nothing else."""

    def __init__(self, ranks: int) -> None:
        self._leaves = 1 << max(ranks - 1, 0).bit_length()
        # By node: 1 is the root, 2n and 2n + 1 are below n. Flat lists of begin, end, begin, end, sorted and disjoint.
        self._always: dict[int, list[int]] = {}
        self._ever: dict[int, list[int]] = {}

    def used(self, first: int, last: int) -> list[tuple[int, int]]:
        """(begin, end) of bytes in use at any rank from ``first`` to before ``last``, sorted; they may overlap."""
        nodes = self._cover(first, last)
        lists = [self._ever.get(node) for node in nodes]
        lists += [self._always.get(node) for node in _above(nodes)]
        found: list[tuple[int, int]] = []
        for flat in lists:
            if flat:
                found += zip(flat[::2], flat[1::2], strict=True)
        found.sort()
        return found

    def use(self, first: int, last: int, begin: int, end: int) -> None:
        """Use the bytes from ``begin`` to before ``end`` at the ranks from ``first`` to before ``last``."""
        nodes = self._cover(first, last)
        for node in nodes:
            _add(self._always, node, begin, end)
            _add(self._ever, node, begin, end)
        for node in _above(nodes):
            _add(self._ever, node, begin, end)

    def _cover(self, first: int, last: int) -> list[int]:
        """The fewest nodes whose stretches of time make up that one."""
        nodes = []
        low, high = first + self._leaves, last + self._leaves
        while low < high:
            if low & 1:
                nodes.append(low)
                low += 1
            if high & 1:
                high -= 1
                nodes.append(high)
            low >>= 1
            high >>= 1
        return nodes


def _above(nodes: Iterable[int]) -> set[int]:
    """All nodes above some nodes."""
    above: set[int] = set()
    for node in nodes:
        parent = node >> 1
        while parent and parent not in above:
            above.add(parent)
            parent >>= 1
    return above


def _add(unions: dict[int, list[int]], node: int, begin: int, end: int) -> None:
    """Add a range to the union of a node. A place in the flat list is odd inside of a range, even outside."""
    flat = unions.get(node)
    if flat is None:
        unions[node] = [begin, end]
        return
    low, high = bisect_left(flat, begin), bisect_right(flat, end)
    flat[low:high] = ([] if low & 1 else [begin]) + ([] if high & 1 else [end])
