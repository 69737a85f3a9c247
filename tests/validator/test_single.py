"""Validation of a single file: values that are read after others were written over them (E2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.program import model as m
from etdev.program.delegates import delegate_inputs
from etdev.validator import ValidationReport, validate_file
from program.hand import loop, unbounded
from support.files import branches, chain, counters, overwriting
from validator.pairs import BOOL, Half, program


def look_at(made: m.Program) -> ValidationReport:
    """Validate a file."""
    return validate_file(made, {plan.name: delegate_inputs(made, plan) for plan in made.execution_plan})


def _branches(second: int) -> Half:
    """Build two conditions in a row, whose results are used later."""
    half = Half()
    p, x = half.input(at=512, dtype=BOOL), half.input(4, at=0)
    results = []
    for places in ((64, 128), (second, 192)):
        merged = half.tensor(4)
        other = half.jump_if_false(p)
        half.move(half.op("exp.out", x, half.tensor(4, at=places[0])), merged)
        end = half.jump()
        half.land(other)
        half.move(half.op("relu.out", x, half.tensor(4, at=places[1])), merged)
        half.land(end)
        results.append(merged)
    half.outputs = [half.op("sub.out", *results, half.integer(1), half.tensor(4, at=384))]
    return half


@pytest.mark.parametrize(
    "made",
    [chain(10), branches(), loop(), unbounded(), counters(), program(_branches(256))],
    ids=["chain", "branches", "loop", "unbounded", "counters", "conditions side by side"],
)
def test_a_good_file(made: m.Program) -> None:
    report = look_at(made)

    assert (report.violations, report.not_validated, report.never_written) == ((), (), ())
    assert report.proved


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            overwriting(),
            "the caller (outputs) reads value 1 at bytes 16 to 32 of buffer 1 after instruction 1",
        ),
        (
            program(_branches(64)),
            "instruction 12 (aten::sub.out) reads value 2 at bytes 64 to 80 of buffer 1 after instruction 7",
        ),
    ],
    ids=["an output", "the first condition's result"],
)
def test_a_value_is_overwritten(made: m.Program, message: str) -> None:
    report = look_at(made)

    found = report.violations[0]
    assert found.message.startswith(f"method 'forward': {message} (aten::")
    assert found.message.endswith(") overwrote these bytes with another value")
    assert found.kind == "clobbered"


def test_an_unknown_operator_changes_one_of_two_tensors() -> None:
    """The content of one tensor after the change does not come from the other, which the caller did not fill."""
    half = Half()
    p, x = half.input(at=512, dtype=BOOL), half.input(4, at=0)
    merged, made = half.tensor(4, at=None), half.tensor(4, at=64)
    other = half.jump_if_false(p)
    half.move(x, merged)
    end = half.jump()
    half.land(other)
    half.move(half.op("mm.out", x, x, made), merged)
    half.land(end)
    half.kernel("my::fused", merged, half.tensor(4, at=128))
    half.outputs = [x]

    assert look_at(program(half)).violations == ()


def test_a_loop_reads_one_of_two_tensors_of_which_one_is_a_view() -> None:
    half = Half()
    p, x = half.input(at=512, dtype=BOOL), half.input(4, at=0)
    view, made, merged, state = (half.tensor(2, at=at) for at in (0, 64, None, 128))
    other = half.jump_if_false(p)
    half.move(view, merged)
    end = half.jump()
    half.land(other)
    half.move(half.op("relu.out", half.tensor(2, at=192, data=1), made), merged)
    half.land(end)
    half.op("exp.out", x, half.tensor(4, at=256))
    half.op("neg.out", merged, state)
    half.jump_if_false(p, len(half.calls) - 1)
    half.outputs = [x]

    assert look_at(program(half)).violations == ()


def test_a_view_of_what_two_kernels_have_written_beside_each_other() -> None:
    """The first part of a ``cat`` is at the place of the input; no instruction writes the whole."""
    half = Half()
    half.input(4, at=0)
    whole, view = half.tensor(8, at=0), half.tensor(8)
    half.op("exp.out", half.tensor(4, data=1), half.tensor(4, at=16))
    half.view(whole, view)
    half.outputs = [half.op("neg.out", view, half.tensor(8, at=64))]

    assert look_at(program(half)).violations == ()


def view_of_condition(*, moved: bool = True) -> m.Program:
    """Build a static view of a condition's result, as ExecuTorch 1.4.1 leaves it.

    It views the place that the result has in the file, which no branch writes; or a place that a branch writes.
    """
    half = Half()
    p, x = half.input(at=512, dtype=BOOL), half.input(4, at=0)
    merged = half.tensor(4, at=256)
    other = half.jump_if_false(p)
    half.move(half.op("exp.out", x, half.tensor(4, at=64)), merged)
    end = half.jump()
    half.land(other)
    half.move(half.op("relu.out", x, half.tensor(4, at=128)), merged)
    half.land(end)
    view = half.tensor(2, 2, at=256 if moved else 64)
    half.outputs = [half.op("neg.out", view, half.tensor(2, 2, at=320))]
    return program(half)


def test_bytes_that_nothing_writes() -> None:
    report = look_at(view_of_condition())

    assert report.violations == ()
    (found,) = report.never_written
    where = "reads value 6 at bytes 256 to 272 of buffer 1"
    assert found.message == (
        f"method 'forward': instruction 6 (aten::neg.out) {where}, "
        "but no instruction writes these bytes, and they have no initial value"
    )
    assert found.kind == "never written"
    assert look_at(view_of_condition(moved=False)).never_written == ()


@pytest.mark.parametrize("named", [{"name": "table"}, {"data": 1}], ids=["a name", "an initial value"])
def test_state_that_is_only_read(named: dict[str, object]) -> None:
    half = Half()
    state = half.tensor(4, at=0, **named)  # type: ignore[arg-type]
    half.outputs = [half.op("exp.out", state, half.tensor(4, at=64))]

    assert look_at(program(half)).never_written == ()


@pytest.mark.parametrize(
    "change",
    [lambda half, x: half.kernel("aten::zero_", x, x), lambda half, x: half.kernel("my::update", x, half.truth(False))],
    ids=["in place", "by an operator that nobody knows"],
)
def test_who_changes_a_value_does_not_overwrite_it(change: Callable[[Half, int], object]) -> None:
    half = Half()
    x = half.input(4, at=0)
    y = half.op("exp.out", x, half.tensor(4, at=64))
    view = half.tensor(2, 2, at=64)
    change(half, view)
    half.outputs = [half.op("neg.out", y, half.tensor(4, at=128))]

    assert look_at(program(half)).proved


def test_delegates_that_cannot_be_split() -> None:
    half = Half()
    half.delegate([half.input(4, at=0)], [half.tensor(4, at=64)])
    report = validate_file(program(half), {})

    assert not report.proved
    assert [item.reason for item in report.not_validated] == [
        "the file does not say which arguments of instruction 0 (MyBackend) are outputs"
    ]
