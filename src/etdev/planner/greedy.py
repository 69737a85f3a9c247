"""ExecuTorch's own planner, ``exir/memory_planning.py: greedy`` of executorch 1.4 and 1.5, for comparison.

The planner divides the arena into objects. It adds objects as needed; the size of an object never changes. Buffers are
placed by decreasing size. Of several buffers with the same size, the last one in the problem is placed first. The
planner tries these places for a buffer in order:

1. The start of the first object that is large enough and free during the buffer's whole lifetime.
2. The first object with enough bytes above all bytes in use during that lifetime.
3. A new object.

The arena is the concatenation of the objects. ExecuTorch has one alignment and no pins. Here each size is rounded up to
the buffer's own alignment, and an object has the largest alignment of its buffers. The objects follow all pinned
buffers, as ExecuTorch's objects follow the memory of submodules.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from etdev.planner.naive import pinned_end
from etdev.planner.problem import Buffer, Problem

_SORTED_ALIGNMENT = 16
"""Before buffers are sorted, sizes are rounded up to a multiple of this number. The plan may have another alignment.

The value is ``ALIGNMENT`` of ``exir/tensor.py``.
"""


def greedy(problem: Problem) -> list[int]:
    """Return the offsets that ExecuTorch would choose."""
    buffers = problem.buffers
    objects: list[SharedObject] = []
    homes: dict[int, tuple[SharedObject, int]] = {}
    for index in order(problem.buffers):
        buffer = buffers[index]
        size = _round_up(buffer.size, buffer.alignment)
        home = find_home(objects, size, buffer.start, buffer.end, buffer.alignment)
        if home is None:
            home = (SharedObject(size), 0)
            objects.append(home[0])
        homes[index] = home
        home[0].put(buffer.start, buffer.end, home[1] + size, buffer.alignment)
    end = pinned_end(problem)
    for shared in objects:
        shared.offset = _round_up(end, shared.alignment)
        end = shared.offset + shared.size
    offsets = [buffer.pin or 0 for buffer in buffers]
    for index, (shared, inner) in homes.items():
        offsets[index] = shared.offset + inner
    return offsets


def order(buffers: Sequence[Buffer]) -> list[int]:
    """Return the buffers that are ever in use and have no pin, in the order in which they are placed."""
    free = [index for index, buffer in enumerate(buffers) if buffer.pin is None and buffer.occupies]
    return sorted(free, key=lambda index: (-_round_up(buffers[index].size, _SORTED_ALIGNMENT), -index))


class SharedObject:
    """A range of the arena. For each instant, the object stores where the bytes in use end."""

    __slots__ = ("alignment", "ends", "offset", "size", "starts", "tops")

    def __init__(self, size: int) -> None:
        self.size = size
        self.alignment = 1
        self.offset = 0
        # Disjoint, sorted ranges of instants: between starts[i] and ends[i], bytes below tops[i] are in use.
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.tops: list[int] = []

    def top(self, start: int, end: int, most: int) -> int:
        """Return the highest end of the bytes in use in a range of instants, or 0 if no bytes are in use.

        If the end exceeds ``most``, the result may be any number above ``most``.
        """
        top = 0
        for place in range(bisect_right(self.ends, start), bisect_left(self.starts, end)):
            top = max(top, self.tops[place])
            if top > most:
                break
        return top

    def put(self, start: int, end: int, top: int, alignment: int) -> None:
        """Mark the bytes below ``top`` as in use from ``start`` to ``end``. Increase ``self.alignment`` if needed.

        The bytes that are already in use at these instants must be below ``top``.
        """
        self.alignment = max(self.alignment, alignment)
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end)
        pieces = [(start, end, top)]
        if first < last and self.starts[first] < start:
            pieces.insert(0, (self.starts[first], start, self.tops[first]))
        if first < last and self.ends[last - 1] > end:
            pieces.append((end, self.ends[last - 1], self.tops[last - 1]))
        self.starts[first:last], self.ends[first:last], self.tops[first:last] = map(list, zip(*pieces, strict=True))


def find_home(
    objects: list[SharedObject], size: int, start: int, end: int, alignment: int
) -> tuple[SharedObject, int] | None:
    """Return the object for a buffer, and the buffer's offset there. Return None if no object has room."""
    above: tuple[SharedObject, int] | None = None
    for shared in objects:
        top = shared.top(start, end, shared.size - size)
        inner = _round_up(top, alignment)
        if inner + size > shared.size:
            continue
        if not top:
            return shared, 0
        above = above or (shared, inner)
    return above


def _round_up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
