"""What ExecuTorch's own planner does, ``exir/memory_planning.py: greedy`` of executorch 1.4.1. For comparison.

Objects, which are stretches of the arena, are made as needed and never grow. The largest buffer comes first; of equal
ones the last. A buffer goes to the start of the first object that is free during its whole lifetime; else into the
first object that has enough bytes left above everything that is in use there during its lifetime; else it becomes an
object of its own. The arena is the objects, one behind the other.

ExecuTorch knows one alignment and no pins. Here each size is rounded up to its own alignment, an object has the largest
alignment of what is in it, and the objects lie behind all pinned buffers, as ExecuTorch's lie behind the memory of
submodules.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from etdev.planner.naive import pinned_end
from etdev.planner.problem import Problem

_SORTED_ALIGNMENT = 16
"""Bytes. ``exir/tensor.py: ALIGNMENT``: what sizes are rounded up to for sorting, whatever alignment is planned for."""


def greedy(problem: Problem) -> list[int]:
    """Offsets as ExecuTorch would choose them."""
    buffers = problem.buffers
    objects: list[_SharedObject] = []
    homes: dict[int, tuple[_SharedObject, int]] = {}
    for index in _order(problem):
        buffer = buffers[index]
        size = _round_up(buffer.size, buffer.alignment)
        home = _find_home(objects, size, buffer.start, buffer.end, buffer.alignment)
        if home is None:
            home = (_SharedObject(size), 0)
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


def _order(problem: Problem) -> list[int]:
    free = [index for index, buffer in enumerate(problem.buffers) if buffer.pin is None and buffer.occupies]
    return sorted(free, key=lambda index: (-_round_up(problem.buffers[index].size, _SORTED_ALIGNMENT), -index))


class _SharedObject:
    """A stretch of the arena, and up to where it is in use at each instant."""

    __slots__ = ("alignment", "ends", "offset", "size", "starts", "tops")

    def __init__(self, size: int) -> None:
        self.size = size
        self.alignment = 1
        self.offset = 0
        # Disjoint stretches of time, sorted: in [starts[i], ends[i]) bytes below tops[i] are in use.
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.tops: list[int] = []

    def top(self, start: int, end: int, most: int) -> int:
        """Largest top in a stretch of time, 0 if nothing is in use; any number above ``most`` if it is above that."""
        top = 0
        for place in range(bisect_right(self.ends, start), bisect_left(self.starts, end)):
            top = max(top, self.tops[place])
            if top > most:
                break
        return top

    def put(self, start: int, end: int, top: int, alignment: int) -> None:
        """Use the bytes below ``top``, which is above everything that is in use in that stretch of time."""
        self.alignment = max(self.alignment, alignment)
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end)
        pieces = [(start, end, top)]
        if first < last and self.starts[first] < start:
            pieces.insert(0, (self.starts[first], start, self.tops[first]))
        if first < last and self.ends[last - 1] > end:
            pieces.append((end, self.ends[last - 1], self.tops[last - 1]))
        self.starts[first:last], self.ends[first:last], self.tops[first:last] = map(list, zip(*pieces, strict=True))


def _find_home(
    objects: list[_SharedObject], size: int, start: int, end: int, alignment: int
) -> tuple[_SharedObject, int] | None:
    """The object that a buffer goes into, and where in it."""
    above: tuple[_SharedObject, int] | None = None
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
