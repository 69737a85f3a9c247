"""The size of a plan in bytes."""

from __future__ import annotations

from collections.abc import Sequence

from etdev.planner.problem import Problem


def arena_size(problem: Problem, offsets: Sequence[int]) -> int:
    """Return the largest end, in bytes, of the buffers that are ever in use. Without such buffers, return 0."""
    ends = (
        offset + buffer.size
        for buffer, offset in zip(problem.buffers, offsets, strict=True)
        if buffer.start < buffer.end
    )
    return max(ends, default=0)
