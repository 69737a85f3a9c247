"""Programs that no compiler makes: the validator answers and does not crash."""

from __future__ import annotations

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
