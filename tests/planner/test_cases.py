"""Small problems, and the size that each planner reaches."""

from __future__ import annotations

import pytest

from etdev.planner import PLANNERS, Buffer, Problem, lower_bound, make_plan
from planner import truth
from planner.truth import problem

CASES: dict[str, tuple[Problem, int, dict[str, int]]] = {
    "no buffer at all": (problem(), 0, {"naive": 0, "greedy": 0, "best": 0}),
    "one buffer": (problem((7, 0, 1)), 7, {"naive": 7, "greedy": 7, "best": 7}),
    "one ends when the next begins": (problem((8, 0, 2), (8, 2, 3)), 8, {"naive": 16, "greedy": 8, "best": 8}),
    "a chain": (problem((8, 0, 2), (8, 1, 3), (8, 2, 4)), 16, {"naive": 24, "greedy": 16, "best": 16}),
    "never in use": (problem((100, 3, 3), (8, 0, 9)), 8, {"naive": 8, "greedy": 8, "best": 8}),
    "no bytes": (problem((0, 0, 9), (8, 0, 9)), 8, {"naive": 8, "greedy": 8, "best": 8}),
    "instants below zero": (problem((8, -5, -1), (8, -1, 4)), 8, {"naive": 16, "greedy": 8, "best": 8}),
    # The two small ones are in use at different times, so one place above the large one suffices for both.
    "two on top of one": (problem((64, 0, 4), (16, 0, 2), (16, 2, 4)), 80, {"naive": 96, "greedy": 80, "best": 80}),
    # ExecuTorch puts the second small one into the large one's object, but never stacks two objects.
    "inside of a large one": (problem((64, 0, 1), (16, 1, 3), (16, 1, 2)), 64, {"naive": 96, "greedy": 64, "best": 64}),
    "over two objects": (problem((16, 0, 1), (16, 0, 1), (24, 1, 2)), 32, {"naive": 56, "greedy": 40, "best": 32}),
    "padding between, none on top": (problem((5, 0, 1), (9, 0, 1), alignment=16), 21, {"naive": 25, "best": 21}),
    # The largest padding at one instant counts; earlier padding does not.
    "padding that is over": (problem((1, 0, 1), (16, 1, 2), (16, 1, 2), alignment=16), 32, {"greedy": 32, "best": 32}),
    "alignments": (
        problem(Buffer(4, 0, 1, 4), Buffer(64, 0, 1, 64), Buffer(4, 0, 1, 4)),
        72,
        {"naive": 132, "greedy": 72, "best": 72},
    ),
    "around a pin": (
        problem(Buffer(16, 0, 2, pin=32), (32, 0, 2), (16, 1, 3)),
        64,
        {"naive": 96, "greedy": 96, "best": 64},
    ),
    "below a pin, at its time": (problem(Buffer(16, 0, 2, pin=64), (64, 2, 3)), 80, {"naive": 144, "best": 80}),
    "pins that share bytes at different times": (
        problem(Buffer(16, 0, 2, pin=16), Buffer(32, 2, 3, pin=0), (16, 0, 3)),
        48,
        {"naive": 48, "greedy": 48, "best": 48},
    ),
    "a pin of no bytes": (problem(Buffer(0, 0, 1, pin=48), (8, 0, 1)), 48, {"naive": 48, "greedy": 48, "best": 48}),
    "a pin that is never in use": (problem(Buffer(8, 1, 1, pin=48), (8, 0, 1)), 8, {"naive": 8, "best": 8}),
    "a bound that no plan meets": (problem(Buffer(8, 0, 1, 1, 8), (12, 0, 1)), 20, {"naive": 28, "best": 28}),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    planned, bound, sizes = CASES[name]
    for planner in PLANNERS:
        plan = make_plan(planned, planner)
        truth.check(planned, plan)
        assert lower_bound(planned) == bound
        assert plan.optimal or planner != "best"
        assert plan.size == sizes.get(planner, plan.size), planner
        assert plan.planner == planner
