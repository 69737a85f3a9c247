"""Hazards between tasks: two tasks that use the same bytes run in order if at least one of them writes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from etdev.runtime.orchestrator.handles import Access, Key, Use


class Ending(Protocol):
    """Interface that :class:`Hazards` requires of a node."""

    @property
    def ended(self) -> bool:
        """True if the node is done or failed."""


NodeT = TypeVar("NodeT", bound=Ending)


@dataclass(slots=True)
class _Segment(Generic[NodeT]):
    """A byte range of a buffer, with the last writer and all readers since that write."""

    start: int
    stop: int
    writer: NodeT | None = None
    readers: list[NodeT] = field(default_factory=list)
    """Nodes that read the bytes after the last write."""
    limit: int = 16
    """If ``readers`` has this length, the next read first removes the ended nodes from the list."""

    def read(self, node: NodeT) -> None:
        if len(self.readers) >= self.limit:
            self.readers = [reader for reader in self.readers if not reader.ended]
            self.limit = max(16, 2 * len(self.readers))
        self.readers.append(node)


class Hazards(Generic[NodeT]):
    """Record of each byte's last writer, and of the readers since then. It determines what a new node waits for.

    Nodes that use different bytes of a buffer do not wait for each other.
    """

    def __init__(self) -> None:
        self._buffers: dict[Key, list[_Segment[NodeT]]] = {}
        self._last: NodeT | None = None
        """The newest node."""
        self._entered: tuple[Use, ...] = ()
        """The :class:`Use` objects of the newest node."""
        self._replaced: list[tuple[Use, list[_Segment[NodeT]]]] = []
        """Each write of the newest node, with the segments that the write replaced."""

    def enter(self, node: NodeT, uses: Iterable[Use]) -> dict[NodeT, bool]:
        """Add a node. The keys of the returned map are the nodes that the new node must wait for.

        A value is True if the new node reads the output of that earlier node.
        """
        uses = tuple(uses)
        self._entered, self._replaced, self._last = uses, [], node
        found: dict[NodeT, bool] = {}
        for use in uses:
            for segment in self._segments(use):
                if segment.writer is not None:
                    found[segment.writer] = found.get(segment.writer, False) or use.access is not Access.WRITE
                if use.access is not Access.READ:
                    for reader in segment.readers:
                        found.setdefault(reader, False)
        for use in uses:
            if use.access is not Access.READ:
                self._write(node, use)
                continue
            for segment in self._segments(use):
                # A node that also writes these bytes already waits for all earlier nodes.
                if segment.writer is not node:
                    segment.read(node)
        return found

    def undo(self, node: NodeT) -> None:
        """Remove the newest node, even if adding it failed halfway."""
        if self._last is not node:
            return
        for use, before in reversed(self._replaced):
            self._put(use, self._segments(use), before)
        for use in self._entered:
            for segment in self._segments(use):
                segment.readers = [reader for reader in segment.readers if reader is not node]
        self._entered, self._replaced, self._last = (), [], None

    def drop(self, key: Key) -> None:
        """Remove a freed or lost buffer."""
        self._buffers.pop(key, None)

    def buffers(self) -> tuple[Key, ...]:
        """Return the keys of all buffers that nodes have used, except removed buffers."""
        return tuple(self._buffers)

    def _write(self, node: NodeT, use: Use) -> None:
        """Make the node the writer of the bytes in ``use``."""
        written = self._segments(use)
        if written:
            self._replaced.append((use, written))
            self._put(use, written, [_Segment(use.start, use.stop, node)])

    def _put(self, use: Use, old: list[_Segment[NodeT]], new: list[_Segment[NodeT]]) -> None:
        segments = self._buffers[use.key]
        first = bisect_left(segments, use.start, key=lambda segment: segment.start)
        segments[first : first + len(old)] = new

    def _segments(self, use: Use) -> list[_Segment[NodeT]]:
        """Return the segments for exactly the bytes in ``use``; split and add segments as needed."""
        if use.start >= use.stop:
            return []
        segments = self._buffers.setdefault(use.key, [])
        self._split(segments, use.start)
        self._split(segments, use.stop)
        first = bisect_left(segments, use.start, key=lambda segment: segment.start)
        found, at, position = [], use.start, first
        while at < use.stop:
            if position == len(segments) or segments[position].start > at:
                stop = min(use.stop, segments[position].start) if position < len(segments) else use.stop
                segments.insert(position, _Segment(at, stop))
            found.append(segments[position])
            at = segments[position].stop
            position += 1
        return found

    def _split(self, segments: list[_Segment[NodeT]], at: int) -> None:
        position = bisect_right(segments, at, key=lambda segment: segment.start) - 1
        if position < 0:
            return
        segment = segments[position]
        if segment.start < at < segment.stop:
            behind = _Segment(at, segment.stop, segment.writer, list(segment.readers), segment.limit)
            segment.stop = at
            segments.insert(position + 1, behind)
