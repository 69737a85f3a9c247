"""Planning without reuse of bytes, to measure the effect of reuse or to exclude reuse as the cause of an error."""

from __future__ import annotations

from etdev.planner.problem import Problem


def naive(problem: Problem) -> list[int]:
    """Return offsets that place the buffers one after another in their order, above all pinned buffers."""
    offsets = [buffer.pin or 0 for buffer in problem.buffers]
    end = pinned_end(problem)
    for index, buffer in enumerate(problem.buffers):
        if buffer.pin is None and buffer.occupies:
            offsets[index] = -(-end // buffer.alignment) * buffer.alignment
            end = offsets[index] + buffer.size
    return offsets


def pinned_end(problem: Problem) -> int:
    """Return the largest end of the pinned buffers that are ever in use, or 0 if there are none."""
    return max((b.pin + b.size for b in problem.buffers if b.pin is not None and b.occupies), default=0)
