"""Wrong links that the validator once accepted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from validator.pairs import BOOL, Half, only, validate


def test_loops_in_loops() -> None:
    """The outer loop changes in each iteration, to its ``sin``, a tensor that the inner loop leaves as it is."""

    def method(*, wrong: bool) -> Half:
        half = Half()
        given, again, more = half.input(4, at=1024), half.input(4, at=512), half.input(4, at=600)
        x, y, merged, out = half.tensor(4, at=0), half.tensor(4, at=64), half.tensor(4), half.tensor(4, at=128)
        half.copy(x, given)
        outer = len(half.calls)
        half.view_copy(x, y)
        half.move(x, merged)
        inner = len(half.calls)
        half.op("exp.out", given if wrong else merged, out)
        half.move(y, merged)
        half.jump_if_false(more, inner)
        half.op("sin.out", y, x)
        half.jump_if_false(again, outer)
        half.outputs = [out]
        return half

    assert validate(method(wrong=False), method(wrong=False)).proved
    assert only(validate(method(wrong=False), method(wrong=True))).kind == "content"


class _Over:
    """Static tensor that a dynamic one overlaps on some path.

    It may then hold something older at its end: a temporary, if that is at 0, too.
    """

    def __init__(self, temporary: int) -> None:
        self.half = half = Half()
        self.one, self.two = half.input(at=512, dtype=BOOL), half.input(at=520, dtype=BOOL)
        self.x, self.y = half.input(8, at=1024), half.input(8, at=1100, dynamic=True)
        self.static, self.dynamic = half.tensor(8, at=0), half.tensor(8, at=0, dynamic=True)
        self.other, self.temporary = half.tensor(8, at=128), temporary
        half.op("sin.out", self.x, self.other)

    def use(self) -> None:
        """Write the temporary and read it."""
        made = self.half.op("exp.out", self.x, self.half.tensor(8, at=self.temporary))
        self.half.outputs.append(self.half.op("neg.out", made, self.half.tensor(8, at=300)))

    def cover(self) -> None:
        """Write the dynamic tensor."""
        self.half.op("cos.out", self.y, self.dynamic)

    def choose(self, condition: int, then: Callable[[], int], other: Callable[[], int]) -> int:
        """Return a value that is one of two tensors."""
        merged = self.half.tensor(8)
        jump = self.half.jump_if_false(condition)
        self.half.move(then(), merged)
        end = self.half.jump()
        self.half.land(jump)
        self.half.move(other(), merged)
        self.half.land(end)
        return merged

    def read(self, value: int) -> Half:
        """Return the method with an output that depends on the value."""
        self.half.outputs.append(self.half.op("tan.out", value, self.half.tensor(8, at=400)))
        return self.half

    def covered(self) -> int:
        """Return the static tensor, with the dynamic one written over it."""
        self.cover()
        return self.static


def _read_through_the_merge(temporary: int) -> Half:
    over = _Over(temporary)
    over.half.op("relu.out", over.x, over.static)
    over.use()
    return over.read(over.choose(over.one, over.covered, lambda: over.other))


def _written_through_the_merge(temporary: int) -> Half:
    over = _Over(temporary)
    over.half.op("relu.out", over.x, over.static)
    over.use()

    def elsewhere() -> int:
        over.cover()
        return over.other

    merged = over.choose(over.one, elsewhere, lambda: over.static)
    over.half.op("abs.out", over.x, merged)
    return over.read(over.static)


def _behind_another_merge(temporary: int) -> Half:
    over = _Over(temporary)

    def made(operator: str, value: int) -> Callable[[], int]:
        return lambda: (over.half.op(operator, over.x, over.static), value)[1]

    merged = over.choose(over.one, made("sqrt.out", over.static), made("ceil.out", over.other))
    jump = over.half.jump_if_false(over.two)
    over.use()
    over.cover()
    over.half.land(jump)
    return over.read(merged)


@pytest.mark.parametrize("method", [_read_through_the_merge, _written_through_the_merge, _behind_another_merge])
def test_what_is_behind_the_end_of_a_dynamic_tensor(method: Callable[[int], Half]) -> None:
    assert not validate(method(64), method(0)).proved


@pytest.mark.parametrize("at", [128, 132])
def test_an_unknown_operator_may_change_each_of_its_operands(at: int) -> None:
    """Both operands hold the same, but in different bytes."""

    def method(place: int) -> Half:
        half = Half()
        x = half.input(4, at=0)
        one = half.op("exp.out", x, half.tensor(4, at=128))
        other = half.op("exp.out", x, half.tensor(4, at=place))
        half.kernel("my::update", one, other, half.truth(False))
        half.outputs = [other]
        return half

    assert validate(method(192), method(256)).proved
    assert not validate(method(192), method(at)).proved


def test_a_view_of_another_tensor_may_fail() -> None:
    """No instruction reads the view, but the program fails if the sizes do not fit."""

    def method(*, other: bool) -> Half:
        half = Half()
        x, y = half.input(4, at=0, dynamic=True), half.input(4, at=64, dynamic=True)
        half.view(y if other else x, half.tensor(4))
        half.outputs = [half.op("exp.out", x, half.tensor(4, at=128, dynamic=True))]
        return half

    found = only(validate(method(other=False), method(other=True)))
    assert found.kind == "size"
    assert found.message.endswith(
        "makes a view of value 1; the view may have a different number of elements than this value"
    )


def _sizes_of_what_a_view_writes(*, wrong: bool) -> Half:
    """Build a loop that changes the sizes of one of two tensors through a value that may be either."""
    half = Half()
    x, again = half.input(4, 4, at=1024, dynamic=True), half.input(at=512, dtype=BOOL)
    one, two = half.tensor(4, 4, at=0, dynamic=True), half.tensor(4, 4, at=64, dynamic=True)
    merged, out = half.tensor(4, 4, dynamic=True), half.tensor(4, 4, at=192, dynamic=True)
    half.op("sin.out", x, one)
    half.op("sin.out", x, two)
    half.move(one, merged)
    head = len(half.calls)
    half.op("view_copy.out", x, half.integers(-1, 1), merged)
    half.op("exp.out", x if wrong else merged, out)
    half.op("sin.out", x, two)
    half.move(two, merged)
    half.jump_if_false(again, head)
    half.outputs = [out]
    return half


def _a_view_that_comes_to_lie_elsewhere(*, wrong: bool) -> Half:
    """Build a loop that moves a view to other bytes; a merged value is that view in the first iteration."""
    half = Half()
    x, y, again = half.input(4, at=1024), half.input(4, at=1100), half.input(at=512, dtype=BOOL)
    view, other, merged, out = half.tensor(4, at=0), half.tensor(4, at=64), half.tensor(4), half.tensor(4, at=192)
    half.op("sin.out", x, other)
    half.view(x, view)
    half.move(view, merged)
    head = len(half.calls)
    half.view(x if wrong else y, view)
    half.op("exp.out", merged, out)
    half.view(x, view)
    half.move(other, merged)
    half.jump_if_false(again, head)
    half.outputs = [out]
    return half


@pytest.mark.parametrize("method", [_sizes_of_what_a_view_writes, _a_view_that_comes_to_lie_elsewhere])
def test_what_one_of_two_tensors_becomes_in_a_loop(method: Callable[..., Half]) -> None:
    assert validate(method(wrong=False), method(wrong=False)).proved
    assert not validate(method(wrong=False), method(wrong=True)).proved
