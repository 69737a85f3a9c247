"""The exact search, in Python and compiled."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings

import etdev.planner
from etdev.planner import Buffer, Problem, check_plan, make_plan
from etdev.planner.kernel import LARGEST, PLAIN, Runner, compiled_runner
from etdev.planner.restarts import Restarts, restart_lengths
from etdev.planner.search import FOUND, NONE, STOPPED, Rule, search
from etdev.planner.state import make_state
from etdev.planner.tables import convert, find_sections, make_tables
from planner import truth
from planner.strategies import problems

RULES = [Rule(1, 0), Rule(1, 0, 0, 1), Rule(1, 1), Rule(0, 1), Rule(0, 0, 1)]


def blocks(count: int, height: int = 64) -> Problem:
    """Cut a rectangle of ``height`` bytes into buffers, some of them aligned; a plan without a gap exists."""
    draws = random.Random(count)
    pieces = [(0, height, 0, 4 * count)]
    while len(pieces) < count:
        low, high, start, end = pieces.pop(draws.randrange(len(pieces)))
        if high - low > 1 and draws.random() < 0.5:
            cut = draws.randrange(low + 1, high)
            pieces += [(low, cut, start, end), (cut, high, start, end)]
        elif end - start > 1:
            cut = draws.randrange(start + 1, end)
            pieces += [(low, high, start, cut), (low, high, cut, end)]
        else:
            pieces.append((low, high, start, end))
    return Problem(tuple(Buffer(high - low, start, end, 1) for low, high, start, end in sorted(pieces)))


def run(planned: Problem, capacity: int, rule: Rule, runner: Runner, most: int = 20_000) -> tuple[int, list[int], int]:
    """Return result, lowest offsets and steps."""
    buffers = [buffer for buffer in planned.buffers if buffer.occupies]
    tables = make_tables(buffers, 10_000)
    assert tables is not None
    state = make_state(tables, runner)
    rank = runner.table(range(len(buffers)))
    result = runner.call(search, convert(tables, runner), state, rank, capacity, *rule, most, LARGEST)
    if result == FOUND:
        check_plan(Problem(tuple(buffers)), [int(low) for low in state.low])
        assert max(int(low) + b.size for low, b in zip(state.low, buffers, strict=True)) <= capacity
    return int(result), [int(low) for low in state.low], int(state.used[3])


@settings(max_examples=150, deadline=None)
@given(planned=problems(most=6))
def test_a_search_finds_a_plan_if_there_is_one_and_proves_it_if_there_is_none(planned: Problem) -> None:
    smallest = truth.optimum(Problem(tuple(b for b in planned.buffers if b.occupies)))
    if smallest is None or not smallest:
        return
    for rule in RULES:
        assert run(planned, smallest, rule, PLAIN)[0] in ({FOUND} if rule in RULES[:2] else {FOUND, STOPPED})
        assert run(planned, smallest - 1, rule, PLAIN)[0] in ({NONE} if rule in RULES[:2] else {NONE, STOPPED})


@pytest.mark.parametrize("rule", RULES)
def test_compiled_searches_take_the_same_steps(rule: Rule) -> None:
    runner = compiled_runner()
    if runner is None:
        pytest.skip("numba is not installed")
    for count in (5, 20, 60):
        planned = blocks(count)
        for capacity in (63, 64, 70):
            assert run(planned, capacity, rule, runner, 3_000) == run(planned, capacity, rule, PLAIN, 3_000)


def test_plans_are_the_same_with_and_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled_runner() is None:
        pytest.skip("numba is not installed")
    monkeypatch.setattr("etdev.planner.restarts._PLAIN_STEPS", 0)
    compiled = [make_plan(blocks(count)) for count in (20, 60, 100)]
    monkeypatch.setattr("etdev.planner.restarts.compiled_runner", lambda: None)
    assert [make_plan(blocks(count)) for count in (20, 60, 100)] == compiled


def test_without_numba_there_is_no_compiled_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiled_runner.__wrapped__() is None


def test_a_cache_that_cannot_be_written_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = compiled_runner()
    if runner is None:
        pytest.skip("numba is not installed")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runner, "_functions", dict.fromkeys(runner._functions, full))  # type: ignore[attr-defined]
    assert run(blocks(5), 64, RULES[0], runner) == run(blocks(5), 64, RULES[0], PLAIN)


def test_small_problems_do_not_import_numba() -> None:
    source = str(Path(etdev.planner.__file__).parents[2])
    script = f"""
import sys; sys.path.insert(0, {source!r})
from etdev.planner import Buffer, Problem, make_plan
plan = make_plan(Problem((Buffer(8, 0, 1, 1, 8), Buffer(12, 0, 1))))
print(plan.optimal, "numba" in sys.modules, "numpy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "False"]


def test_astronomic_numbers_are_planned_without_a_search() -> None:
    planned = Problem(tuple(Buffer(b.size << 59, b.start, b.end, 1) for b in blocks(12, 8).buffers))
    assert make_tables(planned.buffers, 1_000) is None
    truth.check(planned, make_plan(planned))


@pytest.mark.parametrize("count", [10, 40, 120])
def test_what_was_cut_is_put_together_again(count: int) -> None:
    planned = blocks(count)
    plan = make_plan(planned)
    truth.check(planned, plan)
    assert (plan.size, plan.optimal) == (64, True)


def test_too_many_pairs_make_no_tables() -> None:
    assert make_tables(blocks(40).buffers, 10) is None


@settings(max_examples=100, deadline=None)
@given(planned=problems())
def test_buffers_share_a_section_exactly_if_they_are_in_use_together(planned: Problem) -> None:
    buffers = [buffer for buffer in planned.buffers if buffer.occupies]
    if not buffers:
        return
    first, last, count = find_sections(buffers)
    assert max(last) == count
    for i, one in enumerate(buffers):
        for j, other in enumerate(buffers):
            assert (max(first[i], first[j]) < min(last[i], last[j])) == truth.live_together(one, other)


@pytest.mark.parametrize(
    ("others", "pin", "smallest"),
    [
        ((Buffer(12, 0, 2, 1), Buffer(21, 0, 1, 1), Buffer(1, 1, 2, 1)), 32, 45),
        ((Buffer(1, 0, 1, 1), Buffer(1, 0, 1, 1), Buffer(17, 0, 2, 1), Buffer(1, 1, 2, 1)), 16, 34),
    ],
)
def test_few_buffers_around_a_pinned_one_are_proved(others: tuple[Buffer, ...], pin: int, smallest: int) -> None:
    plan = make_plan(Problem((*others, Buffer(1, 0, 1, 16, pin))))

    assert (plan.size, plan.optimal) == (smallest, True)


def test_lengths_of_restarts() -> None:
    """After both halves of a sequence comes twice the length of their last search."""
    assert [*islice(restart_lengths(), 15)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]


@pytest.mark.parametrize("most_steps", [0, 1_000, 20_000])
def test_restarts_end_within_their_steps(most_steps: int) -> None:
    """One search of many buffers needs more steps than allowed, and is stopped in the middle."""
    planned = blocks(300, height=100_000)
    tables = make_tables(planned.buffers, 100_000)
    assert tables is not None
    restarts = Restarts(tables)
    most_of_one_answer = 4 * len(planned.buffers) ** 2 // 10
    assert restarts.fit(99_999, most_steps)[0] != FOUND
    assert restarts.steps <= most_steps + most_of_one_answer


def test_a_pinned_buffer_may_not_be_exchanged_with_a_free_one() -> None:
    free = Buffer(64, 0, 2, alignment=16)
    tables = make_tables([free, replace(free, pin=0), free], 100)
    assert tables is not None
    first, pinned, second = tables.kind
    assert first == second != pinned
