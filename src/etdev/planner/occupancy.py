"""Which bytes are in use at which instants, while buffers are being placed.

A binary tree over the instants. A buffer's lifetime is covered by a few nodes (two per level at most); each node holds
the union of the byte ranges in use during its whole stretch of time, and the union of those in use at any time in it.
What is in use at any time of a lifetime is then found in the nodes that cover it and in those above them. Ranges that
touch are one, so a tight plan stays a few ranges per node, however many buffers it has: no list of overlapping pairs
is needed, which for thousands of buffers in use at once would not fit into memory.

Only nodes that cover some lifetime are ever looked at. Most lifetimes are short, so there are few such nodes above one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from etdev.planner.problem import Buffer


class Timeline:
    """The lifetimes of some buffers as half-open ranges of ranks, and the nodes of a tree that cover each of them.

    Ranks count the instants at which a buffer starts; two lifetimes overlap exactly if their ranges do.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        starts = sorted({buffer.start for buffer in buffers})
        rank = {start: index for index, start in enumerate(starts)}
        self.ranks = len(starts)
        self.ranges = [(rank[buffer.start], bisect_left(starts, buffer.end)) for buffer in buffers]
        self._leaves = 1 << max(self.ranks - 1, 0).bit_length()
        self.covers = [self._cover(first, last) for first, last in self.ranges]
        """By buffer. Node 1 is the root, 2n and 2n + 1 are below n."""
        self.parents = _find_parents(node for cover in self.covers for node in cover)
        """For each node of a cover the nearest such node above it, 0 if there is none."""

    def _cover(self, first: int, last: int) -> tuple[int, ...]:
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
        return tuple(nodes)


class Occupancy:
    """Bytes in use over the lifetimes of a :class:`Timeline`."""

    def __init__(self, timeline: Timeline) -> None:
        self._covers = timeline.covers
        self._parents = timeline.parents
        # By node. Flat lists of begin, end, begin, end, sorted and disjoint.
        self._always: dict[int, list[int]] = {}
        self._ever: dict[int, list[int]] = {}

    def used(self, index: int) -> list[tuple[int, int]]:
        """(begin, end) of bytes in use at any time in the lifetime of a buffer, sorted; they may overlap."""
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
        """Use the bytes from ``begin`` to before ``end`` in the lifetime of a buffer."""
        cover = self._covers[index]
        for node in cover:
            _add(self._always, node, begin, end)
            _add(self._ever, node, begin, end)
        for node in self._above(cover):
            _add(self._ever, node, begin, end)

    def coarsen(self) -> None:
        """Take all bytes below the highest one in use for used, in each node: looking and adding then take no time."""
        for unions in (self._always, self._ever):
            for node, flat in unions.items():
                unions[node] = [0, flat[-1]]

    def _above(self, nodes: Iterable[int]) -> list[int]:
        """All nodes of covers above some nodes."""
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
    """Add a range to the union of a node. A place in the flat list is odd inside of a range, even outside."""
    flat = unions.get(node)
    if flat is None:
        unions[node] = [begin, end]
        return
    low, high = bisect_left(flat, begin), bisect_right(flat, end)
    flat[low:high] = ([] if low & 1 else [begin]) + ([] if high & 1 else [end])
