"""Validation of a single file: values that are read without being written, from bytes of others (E2)."""

from __future__ import annotations

import pytest

from etdev.validator import ValidationReport
from validator.pairs import BOOL, LONG, Half, program
from validator.test_single import look_at


def _look(half: Half) -> ValidationReport:
    return look_at(program(half))


def stale(*, unread: bool = True, again: bool = False, sizes: tuple[int, ...] = (4,)) -> Half:
    """Build a program without the instruction that writes value 4, over the bytes of value 1, which were read before.

    The missing instruction would have read value 2. ``unread``: no other instruction reads it. ``again``: value 1 is
    read afterwards, too, so that its bytes are not free for another value.
    """
    half = Half()
    x = half.input(4, at=0)
    first = half.op("exp.out", x, half.tensor(4, at=16))
    lost = half.op("relu.out", first, half.tensor(4, at=32))
    after = half.op("neg.out", first if unread else lost, half.tensor(4, at=48))
    half.outputs = [half.tensor(*sizes, at=16), after]
    if again:
        half.outputs.append(half.op("sin.out", first, half.tensor(4, at=64)))
    return half


def test_a_value_that_no_instruction_writes_is_pointed_out() -> None:
    report = _look(stale())

    assert report.violations == ()
    (found,) = report.unwritten
    assert found.kind == "unwritten"
    assert found.message == (
        "method 'forward': the caller (outputs) reads value 4 at bytes 16 to 32 of buffer 1, but no "
        "instruction writes this value: instruction 1 (aten::relu.out) wrote value 2, which no instruction reads"
    )


@pytest.mark.parametrize(
    "half",
    [stale(unread=False), stale(sizes=(2, 2)), stale(sizes=(2,))],
    ids=["nothing was computed for nothing", "a view", "a slice"],
)
def test_values_that_share_bytes_are_not_pointed_out(half: Half) -> None:
    report = _look(half)

    assert (report.violations, report.unwritten) == ((), ())


def test_a_value_that_is_in_use_with_another_shares_its_bytes_on_purpose() -> None:
    """No instruction writes the value, which is read before and after the value that shares its bytes."""
    half = Half()
    x = half.input(4, at=0)
    first = half.op("exp.out", x, half.tensor(4, at=16))
    half.op("relu.out", first, half.tensor(4, at=32))
    same = half.op("neg.out", half.tensor(4, at=16), half.tensor(4, at=48))
    half.outputs = [same, half.op("sin.out", first, half.tensor(4, at=64))]

    assert _look(half).unwritten == ()


def test_bytes_of_another_element_type() -> None:
    half = Half()
    x, indices = half.input(4, at=0), half.input(4, at=64, dtype=LONG)
    half.outputs = [half.op("gather.out", x, half.integer(0), indices, half.truth(False), half.tensor(4, at=16))]
    half.outputs.append(half.op("exp.out", half.tensor(4, at=64), half.tensor(4, at=32)))
    (found,) = _look(half).violations

    assert found.kind == "unwritten"
    assert found.message == (
        "method 'forward': instruction 1 (aten::exp.out) reads value 5 at bytes 64 to 80 of buffer 1, but no "
        "instruction writes this value: the caller (inputs) wrote value 1 of another element type to these bytes"
    )


def test_bytes_of_another_element_type_on_one_path() -> None:
    half = Half()
    p, x = half.input(at=512, dtype=BOOL), half.input(4, at=0)
    other = half.jump_if_false(p)
    half.op("exp.out", x, half.tensor(2, 2, at=64))
    end = half.jump()
    half.land(other)
    half.op("eq.Tensor_out", x, x, half.tensor(16, at=64, dtype=BOOL))
    half.land(end)
    half.outputs = [half.op("neg.out", half.tensor(4, at=64), half.tensor(4, at=128))]

    assert [item.kind for item in _look(half).violations] == ["unwritten"]


def test_an_operator_that_nobody_knows_may_have_written_it() -> None:
    half = Half()
    indices = half.input(4, at=64, dtype=LONG)
    value = half.tensor(4, at=64)
    half.kernel("my::convert", indices, value, half.truth(False))
    half.outputs = [half.op("exp.out", value, half.tensor(4, at=32))]

    assert _look(half).violations == ()
