"""Parts of ``best``."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from etdev.planner import Problem, make_plan
from etdev.planner.fit import best_fit, first_fit
from etdev.planner.occupancy import Timeline
from etdev.planner.orders import Strategy, find_crowds
from etdev.planner.parts import find_parts
from etdev.planner.windows import Fixer
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
        ([(0, 5), (20, 30)], 8, 16, 32, 32),  # From the aligned offset, the gap is too small.
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
    """They run even if no order is as good as theirs and no search helps."""
    bad = Strategy(lambda buffer, _: (buffer.size, -buffer.start), lambda used, _, alignment: 1024 + len(used) * 1024)
    monkeypatch.setattr("etdev.planner.best.STRATEGIES", (bad,))
    monkeypatch.setattr("etdev.planner.best.Strips.plans", lambda _: iter(()))
    monkeypatch.setattr("etdev.planner.best.improve", lambda *_: None)
    sizes = {name: make_plan(planned, name).size for name in ("greedy", "naive")}
    assert min(sizes, key=lambda name: sizes[name]) == other
    plan = make_plan(planned)
    truth.check(planned, plan)
    assert plan.size == sizes[other]


@settings(max_examples=100, deadline=None)
@given(planned=problems())
def test_parts_are_never_in_use_together_but_for_what_is_below(planned: Problem) -> None:
    offsets = [buffer.pin or 0 for buffer in planned.buffers]
    parts = find_parts(planned, offsets)
    members = {index: part for part in parts for index in part.indices}
    for first, one in enumerate(planned.buffers):
        for second, other in enumerate(planned.buffers):
            if not (one.occupies and other.occupies and truth.live_together(one, other)):
                continue
            if first in members and second in members:
                assert members[first] is members[second]
            elif first in members:
                assert offsets[second] + other.size <= members[first].base


def test_what_is_always_in_use_lies_at_the_bottom() -> None:
    planned = problem((8, 0, 9), (5, 0, 4), (16, 5, 9), (8, 0, 9), (3, 6, 7))
    offsets = [0] * 5
    assert find_parts(planned, offsets) == []
    assert offsets == [0, 16, 16, 8, 32]


@pytest.mark.parametrize("capacity", [40, 48])
def test_what_lies_too_high_is_planned_anew_with_its_surroundings(capacity: int) -> None:
    """A long chain, correct except in one place, where three buffers are stacked in a bad order."""
    rows = [(8, start, start + 2) for start in range(0, 2000, 2)]
    planned = problem(*rows, (16, 1000, 1004), (16, 1002, 1006))
    order = sorted(range(len(planned.buffers)), key=lambda index: planned.buffers[index].start)
    buffers = [planned.buffers[index] for index in order]
    offsets = [100 if buffer.size == 16 else 0 for buffer in buffers]
    offsets[[buffer.size for buffer in buffers].index(16)] = 200
    fixer = Fixer(buffers, offsets, 10_000_000)
    assert fixer.fit(capacity) == []
    assert not truth.flaws(Problem(tuple(buffers)), fixer.offsets)
    assert max(offset + buffer.size for offset, buffer in zip(fixer.offsets, buffers, strict=True)) <= capacity
    assert fixer.fit(39) != []
