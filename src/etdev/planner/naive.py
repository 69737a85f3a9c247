"""No reuse: every buffer has bytes of its own. For comparison, and to see whether reuse is to blame."""

from __future__ import annotations

from etdev.planner.problem import Problem


def naive(problem: Problem) -> list[int]:
    """One buffer behind the other, in their order, behind all that are pinned."""
    offsets = [buffer.pin or 0 for buffer in problem.buffers]
    end = pinned_end(problem)
    for index, buffer in enumerate(problem.buffers):
        if buffer.pin is None and buffer.occupies:
            offsets[index] = -(-end // buffer.alignment) * buffer.alignment
            end = offsets[index] + buffer.size
    return offsets


def pinned_end(problem: Problem) -> int:
    """First byte behind all pinned buffers that ever hold a byte."""
    return max((b.pin + b.size for b in problem.buffers if b.pin is not None and b.occupies), default=0)
