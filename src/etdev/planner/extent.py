"""How many bytes a plan takes."""

from __future__ import annotations

from collections.abc import Sequence

from etdev.planner.problem import Problem


def arena_size(problem: Problem, offsets: Sequence[int]) -> int:
    """Largest end, in bytes, of the buffers that are ever in use; 0 if none is."""
    ends = (
        offset + buffer.size
        for buffer, offset in zip(problem.buffers, offsets, strict=True)
        if buffer.start < buffer.end
    )
    return max(ends, default=0)
