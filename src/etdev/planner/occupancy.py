"""Bytes in use at each instant, while buffers are being placed.

This is a segment tree over the instants. A few nodes cover a buffer's lifetime, at most two per level. Each node has
two unions of byte ranges. One has the bytes in use during all instants of the node. The other has the bytes in use at
any instant of the node. So the nodes that cover a lifetime, and the ancestors of these nodes, store all ranges in use
at any time in the lifetime.

Adjacent ranges are joined, so a tight plan needs only a few ranges per node for any number of buffers. A list of all
overlapping pairs would not fit into memory if thousands of buffers are in use at the same time.

Queries and updates visit only nodes that cover the lifetime of some buffer. Most lifetimes are short, so a node has few
ancestors of this kind.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from etdev.planner.problem import Buffer


class Timeline:
    """Lifetimes of buffers as half-open ranges of ranks, and the tree nodes that cover each lifetime.

    A rank is the position of a start instant among all distinct start instants. Two lifetimes overlap if and only if
    their ranges of ranks overlap.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        starts = sorted({buffer.start for buffer in buffers})
        rank = {start: index for index, start in enumerate(starts)}
        self.ranks = len(starts)
        self.ranges = [(rank[buffer.start], bisect_left(starts, buffer.end)) for buffer in buffers]
        self._leaves = 1 << max(self.ranks - 1, 0).bit_length()
        self.covers = [self._cover(first, last) for first, last in self.ranges]
        """For each buffer, the nodes that cover its lifetime. Node 1 is the root. Node n has children 2n and 2n + 1."""
        self.parents = _find_parents(node for cover in self.covers for node in cover)
        """For each node that covers a lifetime: its nearest ancestor that also covers a lifetime, or 0."""

    def _cover(self, first: int, last: int) -> tuple[int, ...]:
        """Return the smallest set of nodes that together cover exactly a range of ranks."""
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
        return tuple(nodes)


class Occupancy:
    """Bytes in use over the lifetimes of a :class:`Timeline`."""

    def __init__(self, timeline: Timeline) -> None:
        self._covers = timeline.covers
        self._parents = timeline.parents
        # By node: a flat list of begin, end, begin, end of its ranges, which are sorted and disjoint.
        self._always: dict[int, list[int]] = {}
        self._ever: dict[int, list[int]] = {}

    def used(self, index: int) -> list[tuple[int, int]]:
        """Return the ranges of bytes in use at any time in the lifetime of a buffer, as ``(begin, end)``.

        The ranges are sorted and may overlap.
        """
        cover = self._covers[index]
        found: list[tuple[int, int]] = []
        for node in cover:
            flat = self._ever.get(node)
            if flat:
                found += zip(flat[::2], flat[1::2], strict=True)
        for node in self._above(cover):
            flat = self._always.get(node)
            if flat:
                found += zip(flat[::2], flat[1::2], strict=True)
        found.sort()
        return found

    def use(self, index: int, begin: int, end: int) -> None:
        """Mark the half-open range of bytes as used during the lifetime of a buffer."""
        cover = self._covers[index]
        for node in cover:
            _add(self._always, node, begin, end)
            _add(self._ever, node, begin, end)
        for node in self._above(cover):
            _add(self._ever, node, begin, end)

    def coarsen(self) -> None:
        """In each node, treat all bytes below the highest used byte as used. This makes queries and updates fast."""
        for unions in (self._always, self._ever):
            for node, flat in unions.items():
                unions[node] = [0, flat[-1]]

    def _above(self, nodes: Iterable[int]) -> list[int]:
        """Return the ancestors of ``nodes`` that also cover a lifetime."""
        above: list[int] = []
        parents = self._parents
        for node in nodes:
            parent = parents[node]
            while parent and parent not in above:
                above.append(parent)
                parent = parents[parent]
        return above


def _find_parents(nodes: Iterable[int]) -> dict[int, int]:
    parents = dict.fromkeys(sorted(nodes), 0)
    for node in parents:
        above = node >> 1
        while above and above not in parents:
            above >>= 1
        parents[node] = above
    return parents


def _add(unions: dict[int, list[int]], node: int, begin: int, end: int) -> None:
    """Add a range to a node's union, which is a flat list: begin, end, begin, end, and so on."""
    flat = unions.get(node)
    if flat is None:
        unions[node] = [begin, end]
        return
    low, high = bisect_left(flat, begin), bisect_right(flat, end)
    flat[low:high] = ([] if low & 1 else [begin]) + ([] if high & 1 else [end])
