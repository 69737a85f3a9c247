"""State across methods and across calls, and programs as a whole (E2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etdev.program import Blob
from etdev.program import model as m
from etdev.validator import Correspondence, validate_link
from validator.pairs import DATA, Half, only, program, validate


def _counter(name: str, at: int, *, temporary: int = 64, buffer: int = 1, state: str = "count") -> Half:
    """Build a method that adds its input to its state."""
    half = Half(name)
    count = half.tensor(4, at=at, buffer=buffer, name=state)
    x = half.input(4, at=128)
    y = half.op("add.out", count, x, half.integer(1), half.tensor(4, at=temporary))
    half.copy(count, y)
    half.outputs = [y]
    return half


def _writer(name: str, at: int, *, buffer: int = 1, state: str = "count") -> Half:
    """Build a method that writes its input to its state without reading the state."""
    half = Half(name)
    half.copy(half.tensor(4, at=at, buffer=buffer, name=state), half.input(4, at=128))
    return half


BEFORE = (_counter("one", 0), _counter("two", 0))


SAME_BUFFERS = "if a loader gives all methods the same buffers"


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ((_counter("one", 0, buffer=2), _counter("two", 16, buffer=2)), None),
        ((_counter("one", 0), _counter("two", 16)), None),
        (
            (_counter("one", 0), _counter("two", 0)),
            f"method 'one': it overwrites the state of method 'two' at bytes 0 to 16 of buffer 1 {SAME_BUFFERS}",
        ),
        (
            (_counter("one", 0), _counter("two", 16, temporary=0)),
            f"method 'two': it overwrites the state of method 'one' at bytes 0 to 16 of buffer 1 {SAME_BUFFERS}",
        ),
    ],
    ids=["apart, in a buffer of its own", "apart", "over each other", "temporaries over state"],
)
def test_private_state(after: tuple[Half, ...], message: str | None) -> None:
    report = validate(BEFORE, after)

    assert [item.message for item in report.violations][:1] == ([message] if message else [])


@pytest.mark.parametrize(
    ("after", "good"),
    [
        ((_counter("one", 0, buffer=2), _writer("two", 0, buffer=2)), True),
        ((_counter("one", 0, buffer=2), _writer("two", 16, buffer=2)), False),
    ],
    ids=["together", "apart"],
)
def test_shared_state(after: tuple[Half, ...], good: bool) -> None:
    """The second method only writes the state that the first one keeps."""
    report = validate((_counter("one", 0), _writer("two", 0)), after, shared=["count"])

    assert report.proved is good
    if not good:
        assert "it changes the state of method 'two'" in only(report).message


@pytest.mark.parametrize(("second_at", "good"), [(32, True), (48, False)], ids=["the same place", "another one"])
def test_state_of_other_files_is_shared_by_address(second_at: int, good: bool) -> None:
    before = _counter("one", 0, buffer=2), _writer("two", 0, buffer=2)
    after = _counter("one", 32, buffer=2), _writer("two", second_at, buffer=2)

    assert validate(before, after, foreign=True).proved is good


def test_what_was_disturbed_before_may_be_so_afterwards() -> None:
    """A file whose private state is separate only with some loaders is linked method by method."""
    assert validate(BEFORE, BEFORE, foreign=True).proved


def test_a_method_without_a_correspondence_is_not_validated() -> None:
    made = program(*BEFORE)
    report = validate_link(made, made, {"one": Correspondence({0: 0, 1: 1})})

    assert not report.proved
    assert [(item.method, item.reason) for item in report.not_validated] == [
        ("two", "the correspondence of its instructions is unknown")
    ]


def test_programs_with_other_methods() -> None:
    report = validate_link(program(*BEFORE), program(*BEFORE[::-1]), {})

    assert only(report).message == "the program has the methods two, one instead of one, two"


@pytest.mark.parametrize(
    ("after", "what"),
    [([("key", b"data")], None), ([], "is missing"), ([("key", b"Data")], "differs from the data before the link")],
    ids=["there", "missing", "other bytes"],
)
def test_data_that_delegates_look_up(after: list[tuple[str, bytes]], what: str | None) -> None:
    def named(items: list[tuple[str, bytes]]) -> m.Program:
        made = program(BEFORE[0])
        place = 8192
        segments = [m.Segment(place + 64 * index, Blob(data)) for index, (_, data) in enumerate(items)]
        names = [m.NamedData(key, len(made.segments) + index) for index, (key, _) in enumerate(items)]
        return replace(made, segments=(*made.segments, *segments), named_data=tuple(names))

    report = validate_link(named([("key", b"data")]), named(after), {"one": Correspondence({0: 0, 1: 1})})

    assert [item.message for item in report.violations] == (
        [f"the data 'key', which delegates look up by name, {what}"] if what else []
    )


def test_constants_are_compared_by_their_bytes() -> None:
    """Their location in the file does not matter."""
    half = Half()
    x = half.input(4, at=0)
    half.outputs = [half.op("mul.out", x, half.tensor(4, data=1), half.tensor(4, at=64))]
    other = Half()
    x = other.input(4, at=0)
    other.outputs = [other.op("mul.out", x, other.tensor(4, data=2), other.tensor(4, at=64))]

    assert validate(half, half, data=bytes(DATA)).proved
    assert not validate(half, other).proved
    assert validate(half, other, data=bytes(64) + DATA[:1984]).proved


def test_what_is_left_for_the_next_call_is_left_the_same() -> None:
    """A loop leaves a counter at its end, and the next call finds it."""

    def counting(step: int) -> Half:
        half = Half()
        count, result = half.integer(0), half.truth(False)
        x, y = half.input(4, at=0), half.tensor(4, at=64)
        half.op("exp.out", x, y)
        half.kernel("executorch_prim::add.Scalar", count, half.integer(step), count)
        half.kernel("executorch_prim::eq.Scalar", count, half.integer(3), result)
        jump = half.jump_if_false(result)
        half.op("relu.out", x, y)
        half.land(jump)
        half.outputs = [y]
        return half

    assert validate(counting(1), counting(1)).proved
    assert not validate(counting(1), counting(2)).proved
