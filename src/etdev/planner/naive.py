"""Planning without reuse, for comparison and to exclude reuse as the cause of a fault."""

from __future__ import annotations

from etdev.planner.problem import Problem


def naive(problem: Problem) -> list[int]:
    """Return the offsets of buffers one after another, in their order, after all pinned buffers."""
    offsets = [buffer.pin or 0 for buffer in problem.buffers]
    end = pinned_end(problem)
    for index, buffer in enumerate(problem.buffers):
        if buffer.pin is None and buffer.occupies:
            offsets[index] = -(-end // buffer.alignment) * buffer.alignment
            end = offsets[index] + buffer.size
    return offsets


def pinned_end(problem: Problem) -> int:
    """Return the largest end of the pinned buffers that ever hold a byte; 0 without any."""
    return max((b.pin + b.size for b in problem.buffers if b.pin is not None and b.occupies), default=0)
