"""Programs that no compiler makes: the validator answers and does not crash."""

from __future__ import annotations

import pytest

from etdev.program import model as m
from etdev.validator import Correspondence, validate_file, validate_link
from linker.programs import Method, program


def test_a_move_between_tensors_of_different_ranks_in_a_loop() -> None:
    method = Method()
    data = method.input(16)
    rows, row = method.tensor(64, dynamic=True), method.vector(16)
    with method.loop(4) as counter:
        method.move(rows, row)
        method.kernel("aten::mul.out", data, data, row, row)
        method.kernel("executorch_prim::et_copy_index.tensor", rows, row, counter)
    method.outputs = [rows]
    whole = program(method).program
    same = Correspondence({position: position for position in range(len(method.calls))})
    assert validate_link(whole, whole, {"forward": same}).proved


def test_an_operand_under_an_output_that_the_kernel_still_needs_is_said() -> None:
    method = Method()
    data = method.input(32)
    moved = method.alias(data, 32, at=16)
    method.kernel("aten::mm.out", data, data, moved, moved)
    method.outputs = [moved]
    found = validate_file(program(method).program, {})
    assert not found.violations
    overlap = found.overlapping[0]
    assert "writes value 1 over the bytes of value 0, which it still reads" in overlap.message


@pytest.mark.parametrize("moved", [m.Double(2.5), m.Bool(True), None])
@pytest.mark.parametrize("declared", [m.Null(), m.Int(0)])
def test_a_row_at_an_index_that_may_be_no_integer(declared: m.Value, moved: m.Value | None) -> None:
    method = Method()
    data, rows = method.input(16), method.tensor(64, dynamic=True)
    index = method.value(declared)
    if moved is not None:
        method.move(method.value(moved), index)
    method.kernel("executorch_prim::et_copy_index.tensor", rows, data, index)
    method.outputs = [rows]
    _require_answer(method)


@pytest.mark.parametrize("name", ["add", "mul"])
def test_a_sum_of_numbers_that_may_be_no_integers(name: str) -> None:
    method = Method()
    data, rows = method.input(16), method.tensor(64, dynamic=True)
    one, index = method.value(m.Int(0)), method.value(m.Int(0))
    method.move(method.value(m.Double(2.5)), one)
    method.kernel(f"executorch_prim::{name}.Scalar", one, one, index)
    method.kernel("executorch_prim::et_copy_index.tensor", rows, data, index)
    method.outputs = [rows]
    _require_answer(method)


def test_a_tensor_expanded_to_a_size_that_the_caller_sets() -> None:
    method = Method()
    data, wide = method.input(16), method.tensor(64, dynamic=True)
    size = method.value(m.IntList((method.value(m.Null()), method.value(m.Int(4)))))
    method.kernel("aten::expand_copy.out", data, size, method.value(m.Bool(False)), wide, wide)
    method.outputs = [wide]
    _require_answer(method)


def _require_answer(method: Method) -> None:
    whole = program(method).program
    same = Correspondence({position: position for position in range(len(method.calls))})
    assert validate_link(whole, whole, {"forward": same}).proved
    validate_file(whole, {})
