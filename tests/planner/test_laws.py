"""Laws that hold for every problem."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from etdev.planner import PLANNERS, Buffer, CollisionError, PlanError, Problem, check_plan, lower_bound, make_plan
from planner import truth
from planner.strategies import buffers, problems
from support import draws

EXAMPLES = settings(max_examples=draws.examples(480), deadline=None)


@contextmanager
def short_searches() -> Iterator[None]:
    """Limit the search of `best` without ``--slow``. It takes seconds for a few of the problems drawn here."""
    with pytest.MonkeyPatch.context() as patch:
        if draws.SHARE > 1:
            patch.setattr("etdev.planner.best._STEPS_PER_PAIR", 50)
        yield


@EXAMPLES
@given(planned=problems())
def test_every_planner_gives_a_right_plan(planned: Problem) -> None:
    pinned = [buffer.pin if buffer.pin is not None else 1 << 20 for buffer in planned.buffers]
    only_pinned = dataclasses.replace(planned, buffers=tuple(b for b in planned.buffers if b.pin is not None))
    possible = not truth.flaws(only_pinned, [offset for offset in pinned if offset != 1 << 20])
    for planner in PLANNERS:
        with short_searches(), nullcontext() if possible else pytest.raises(CollisionError, match="pinned"):
            truth.check(planned, make_plan(planned, planner))


@EXAMPLES
@given(planned=problems(), draws=st.randoms(use_true_random=False))
def test_the_checker_finds_what_is_wrong_and_nothing_else(planned: Problem, draws: random.Random) -> None:
    offsets = [
        buffer.pin if buffer.pin is not None else draws.randrange(6) * buffer.alignment for buffer in planned.buffers
    ]
    wrong = truth.flaws(planned, offsets)
    if not wrong:
        check_plan(planned, offsets)
        return
    with pytest.raises(PlanError) as caught:
        check_plan(planned, offsets)
    assert isinstance(caught.value, CollisionError)
    first, second = planned.buffers[caught.value.first], planned.buffers[caught.value.second]
    assert truth.share_bytes(planned, offsets, caught.value.first, caught.value.second)
    assert first.start <= caught.value.instant < first.end
    assert second.start == caught.value.instant < second.end


@EXAMPLES
@given(planned=problems(most=5))
def test_the_bound_is_below_every_plan(planned: Problem) -> None:
    smallest = truth.optimum(planned)
    assume(smallest is not None)
    assert smallest is not None
    assert lower_bound(planned) <= smallest <= make_plan(planned).size


@EXAMPLES
@given(planned=problems(most=6))
def test_best_finds_the_smallest_plan_of_a_few_buffers_and_says_so(planned: Problem) -> None:
    smallest = truth.optimum(planned)
    assume(smallest is not None)
    plan = make_plan(planned)
    assert (plan.size, plan.optimal) == (smallest, True)


@EXAMPLES
@given(planned=problems(pins=False))
def test_best_is_never_larger_than_the_others(planned: Problem) -> None:
    sizes = {name: make_plan(planned, name).size for name in PLANNERS}
    assert sizes["best"] == min(sizes.values())


@EXAMPLES
@given(planned=problems(), more=buffers())
def test_one_more_buffer_never_lowers_the_bound(planned: Problem, more: Buffer) -> None:
    assert lower_bound(dataclasses.replace(planned, buffers=(*planned.buffers, more))) >= lower_bound(planned)


@EXAMPLES
@given(planned=problems(pins=False), draws=st.randoms(use_true_random=False))
def test_the_order_of_buffers_does_not_matter_to_the_bound(planned: Problem, draws: random.Random) -> None:
    shuffled = list(planned.buffers)
    draws.shuffle(shuffled)
    assert lower_bound(Problem(tuple(shuffled))) == lower_bound(planned)


@EXAMPLES
@given(planned=problems(pins=False))
def test_a_plan_depends_on_the_problem_only(planned: Problem) -> None:
    moved = tuple(dataclasses.replace(b, start=3 * b.start + 7, end=3 * b.end + 7) for b in planned.buffers)
    with short_searches():
        for planner in PLANNERS:
            found = make_plan(planned, planner)
            assert make_plan(planned, planner) == found
            assert make_plan(Problem(moved), planner) == found
