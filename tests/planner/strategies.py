"""Strategies of hypothesis for planning problems."""

from __future__ import annotations

from hypothesis import strategies as st

from etdev.planner import Buffer, Problem


@st.composite
def buffers(draw: st.DrawFn, *, pins: bool = True) -> Buffer:
    """Draw small sizes and few instants, so that buffers meet, touch, are empty or are never in use."""
    alignment = draw(st.sampled_from([1, 1, 4, 16]))
    start = draw(st.integers(-2, 8))
    pin = draw(st.integers(0, 6)) * alignment if pins and draw(st.integers(0, 7)) == 0 else None
    return Buffer(draw(st.integers(0, 40)), start, start + draw(st.integers(0, 5)), alignment, pin)


def problems(*, most: int = 14, pins: bool = True) -> st.SearchStrategy[Problem]:
    """Return a strategy for problems whose pinned buffers may collide."""
    return st.lists(buffers(pins=pins), max_size=most).map(tuple).map(Problem)
