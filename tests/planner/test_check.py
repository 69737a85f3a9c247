"""Messages of the checker, and answers that are not plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from etdev.planner import Buffer, CollisionError, OffsetError, PlanError, Problem, ProblemError, check_plan, make_plan
from planner.truth import problem

PAIR = problem(Buffer(64, 0, 4, name="conv"), Buffer(32, 3, 5), Buffer(32, 4, 6, 32, name="relu"))


def test_a_right_plan() -> None:
    check_plan(PAIR, (0, 64, 0))


@pytest.mark.parametrize("planned", [problem(), problem((0, 0, 5), (8, 2, 2), (8, 0, 5))])
def test_nothing_to_collide(planned: Problem) -> None:
    check_plan(planned, [0] * len(planned.buffers))


def test_a_collision_names_both_buffers_the_instant_and_the_bytes() -> None:
    with pytest.raises(CollisionError) as caught:
        check_plan(PAIR, [0, 48, 0])
    assert str(caught.value) == (
        "collision at instant 3: buffer 0 'conv' at bytes [0, 64) and buffer 1 at bytes [48, 80) are both in use"
    )
    assert (caught.value.first, caught.value.second, caught.value.instant) == (0, 1, 3)


def test_colliding_pins_are_called_pinned() -> None:
    planned = problem(Buffer(64, 0, 4, pin=0), Buffer(64, 0, 4, pin=32))
    with pytest.raises(CollisionError, match=r"\[0, 64\) \(pinned\) and buffer 1 at .* \(pinned\)"):
        make_plan(planned)


def test_the_first_collision_in_time_is_named() -> None:
    planned = problem((8, 5, 9), (8, 5, 9), (8, 0, 9), (8, 2, 4))
    with pytest.raises(CollisionError) as caught:
        check_plan(planned, [0, 0, 8, 12])
    assert (caught.value.first, caught.value.second, caught.value.instant) == (2, 3, 2)


@pytest.mark.parametrize(
    ("offsets", "message", "index"),
    [
        ([0, 64, -32], "buffer 2 'relu' is at offset -32, before the start of the arena", 2),
        ([0, 64, 2**63 - 32], "buffer 2 'relu' is at offset 9223372036854775776, which is too large for a file", 2),
        ([0, 64, 16], "buffer 2 'relu' is at offset 16, which is not a multiple of its alignment 32", 2),
        ([0, 64.0, 0], "buffer 1 has the offset 64.0 of type float; expected an integer", 1),
        ([False, 64, 0], "buffer 0 'conv' has the offset False of type bool; expected an integer", 0),
        ([0, None, 0], "buffer 1 has the offset None of type NoneType; expected an integer", 1),
        ("abc", "buffer 0 'conv' has the offset 'a' of type str; expected an integer", 0),
    ],
)
def test_a_wrong_offset(offsets: Sequence[Any], message: str, index: int) -> None:
    with pytest.raises(OffsetError) as caught:
        check_plan(PAIR, offsets)
    assert (str(caught.value), caught.value.buffer) == (message, index)


def test_a_pin_that_is_not_kept() -> None:
    with pytest.raises(OffsetError, match=r"^buffer 0 is at offset 0, but is pinned to 64$"):
        check_plan(problem(Buffer(1, 2, 2, pin=64)), [0])


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 64], "expected one offset for each of 3 buffers, found 2 offsets"),
        ([0, 64, 0, 0], "expected one offset for each of 3 buffers, found 4 offsets"),
        (None, "expected a sequence of offsets, found NoneType"),
        ({0: 0, 1: 64, 2: 0}, "expected a sequence of offsets, found dict"),
        ({0, 64, 128}, "expected a sequence of offsets, found set"),
        (iter([0, 64, 0]), "expected a sequence of offsets, found list_iterator"),
    ],
)
def test_no_offsets(offsets: Any, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        check_plan(PAIR, offsets)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (Buffer(-1, 0, 1), "buffer 1 has the size -1; expected 0 or more"),
        (Buffer(8, 3, 2, name="x"), "buffer 1 'x' ends at 2, before its start at 3"),
        (Buffer(8, 0, 1, 24), "buffer 1 has the alignment 24; expected a power of two"),
        (Buffer(8, 0, 1, 0), "buffer 1 has the alignment 0; expected a power of two"),
        (Buffer(8, 0, 1, 16, 8), "buffer 1 is pinned to 8; expected a nonnegative multiple of its alignment 16"),
        (Buffer(8, 0, 1, 16, -16), "buffer 1 is pinned to -16; expected a nonnegative multiple of its alignment 16"),
        (Buffer(8.0, 0, 1), "buffer 1 has the size 8.0; expected an integer"),  # type: ignore[arg-type]
        (Buffer(8, 0, True), "buffer 1 has the end True; expected an integer"),
    ],
)
def test_a_buffer_that_cannot_be(buffer: Buffer, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        problem((8, 0, 1), buffer)
    assert str(caught.value) == message


def test_a_capacity_that_cannot_be() -> None:
    with pytest.raises(ProblemError, match=r"^capacity: expected None or a number of at least 0, found -1$"):
        Problem((), -1)
