"""What ``best`` is made of."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from etdev.planner import Problem, make_plan
from etdev.planner.fit import best_fit, first_fit
from etdev.planner.occupancy import Timeline
from etdev.planner.orders import Strategy, find_crowds
from planner import truth
from planner.strategies import problems
from planner.truth import problem


@pytest.mark.parametrize(
    ("used", "size", "alignment", "first", "best"),
    [
        ([], 8, 1, 0, 0),
        ([(8, 16)], 8, 1, 0, 0),
        ([(0, 8)], 8, 1, 8, 8),
        ([(7, 9)], 8, 1, 9, 9),
        ([(20, 30), (38, 40), (48, 50)], 8, 1, 0, 30),  # Gaps of 20, 8 and 8 bytes.
        ([(0, 30), (10, 20), (40, 50)], 8, 1, 30, 30),  # A range inside of another one.
        ([(0, 5), (20, 30)], 8, 16, 32, 32),  # From the aligned offset on, the gap is too small.
    ],
)
def test_fits(used: list[tuple[int, int]], size: int, alignment: int, first: int, best: int) -> None:
    assert first_fit(used, size, alignment) == first
    assert best_fit(used, size, alignment) == best


@settings(max_examples=100, deadline=None)
@given(planned=problems())
def test_a_crowd_is_the_most_that_is_in_use_during_a_lifetime(planned: Problem) -> None:
    crowds = find_crowds(planned.buffers, Timeline(planned.buffers))
    live = {instant: sum(b.size for b in planned.buffers if b.start <= instant < b.end) for instant in range(-2, 14)}
    assert crowds == [max((live[i] for i in range(b.start, b.end)), default=0) for b in planned.buffers]


@pytest.mark.parametrize(
    ("planned", "other"),
    [
        (problem((64, 0, 4), (16, 0, 2), (32, 1, 3), (24, 2, 4)), "greedy"),
        (problem((16, 0, 1), (17, 0, 1), alignment=16), "naive"),
    ],
)
def test_the_other_planners_are_asked_too(planned: Problem, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if no order is as good as theirs, and no search helps."""
    bad = Strategy(lambda buffer, _: (buffer.size, -buffer.start), lambda used, _, alignment: 1024 + len(used) * 1024)
    monkeypatch.setattr("etdev.planner.best.STRATEGIES", (bad,))
    monkeypatch.setattr("etdev.planner.best.improve", lambda *_: None)
    sizes = {name: make_plan(planned, name).size for name in ("greedy", "naive")}
    assert min(sizes, key=lambda name: sizes[name]) == other
    plan = make_plan(planned)
    truth.check(planned, plan)
    assert plan.size == sizes[other]
