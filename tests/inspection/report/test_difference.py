"""The page of ``etdev diff``: what is the same in two programs, what moved, and what only one has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etdev.inspection.report.difference import align, diff_document, diff_page
from etdev.linker import link
from etdev.page.model import DiffPage, Document, Figure, MethodDiffPage, WeightChange
from etdev.program import Blob, Program, write
from etdev.program import model as m
from inspection.report.builds import built_file, two_files
from program import test_lookups
from program.hand import everything, loop, tensor
from program.strategies import programs
from support.files import ADD, chain, copies, cos, counters, delegated, method, overwriting, sin
from support.files import program as make_program


def compared(a: Program, b: Program, folder: Path) -> tuple[Document, DiffPage]:
    write(a, folder / "a.pte")
    write(b, folder / "b.pte")
    document = diff_document(folder / "a.pte", folder / "b.pte")
    assert document.diff is not None
    return document, document.diff


def only_method(a: Program, b: Program, folder: Path) -> MethodDiffPage:
    (found,) = compared(a, b, folder)[1].methods
    return found


def steps(*calls: m.Instruction, at: tuple[int, ...] = (0, 16, 32, 48)) -> Program:
    """A method of these instructions on four tensors of four numbers."""
    return make_program(method([tensor(4, at=place) for place in at], calls, outputs=(3,)))


def keys(text: str) -> list[tuple[str, ...]]:
    return [(letter,) for letter in text]


@given(a=st.text("ab", max_size=8), b=st.text("ab", max_size=8))
def test_an_alignment_has_each_position_once_and_pairs_what_is_equal(a: str, b: str) -> None:
    rows = align(keys(a), keys(b))
    assert [one for one, _ in rows if one >= 0] == list(range(len(a)))
    assert [other for _, other in rows if other >= 0] == list(range(len(b)))
    assert all(a[one] == b[other] for one, other in rows if one >= 0 and other >= 0)
    assert all(one >= 0 or other >= 0 for one, other in rows)


def test_one_more_and_one_less() -> None:
    assert align(keys("abc"), keys("abxc")) == [(0, 0), (1, 1), (-1, 2), (2, 3)]
    assert align(keys("abc"), keys("ac")) == [(0, 0), (1, -1), (2, 1)]


def test_ten_thousand_equal_instructions_are_aligned_at_once() -> None:
    """A comparison of every pair would take minutes."""
    a = [("sin",)] * 10_000
    b = [*a[:5_000], ("cos",), *a[:4_000]]
    rows = align(a, b)
    assert sum(one >= 0 and other >= 0 for one, other in rows) == 9_000


def test_an_instruction_that_only_one_has(tmp_path: Path) -> None:
    found = only_method(steps(sin(0, 1), sin(1, 2), cos(2, 3)), steps(sin(0, 1), cos(1, 3)), tmp_path)
    assert list(zip(found.instruction_a, found.instruction_b, strict=True)) == [(0, 0), (1, -1), (2, 1)]
    assert Figure("instructions", 3, 2, nbytes=False) in found.figures
    assert Figure("calls of aten::sin.out", 2, 1, nbytes=False) in found.figures


def test_an_instruction_with_another_shape_is_another_one(tmp_path: Path) -> None:
    a = make_program(method([tensor(4, at=0), tensor(4, at=16)], [sin(0, 1)]))
    b = make_program(method([tensor(8, at=0), tensor(8, at=32)], [sin(0, 1)]))
    found = only_method(a, b, tmp_path)
    assert list(zip(found.instruction_a, found.instruction_b, strict=True)) == [(0, -1), (-1, 0)]


def test_moved_tensors_are_found_next_to_other_instructions(tmp_path: Path) -> None:
    a = steps(sin(0, 1), sin(1, 2), cos(2, 3))
    b = steps(sin(0, 1), cos(1, 3), at=(0, 64, 32, 48))
    found = only_method(a, b, tmp_path)
    assert found.matched == 3  # The input, value 1, and the output.
    assert (found.moved_a, found.moved_b) == ((1,), (1,))


def test_state_is_matched_by_its_name(tmp_path: Path) -> None:
    def stateful(at: int) -> Program:
        info = m.ExtraTensorInfo(fully_qualified_name="cache")
        values = [tensor(4, at=0), tensor(4, at=at, buffer=2, extra_tensor_info=info), tensor(4, at=16), m.Int(1)]
        call = m.KernelCall(0, (0, 1, 3, 2, 2))
        return make_program(method(values, [call], outputs=(2,), operators=(ADD,)))

    found = only_method(stateful(0), stateful(16), tmp_path)
    assert (found.matched, found.moved_a) == (3, (1,))


def test_equal_programs_have_no_difference(tmp_path: Path) -> None:
    for made in (copies(), delegated(), loop(), chain(3)):
        _, found = compared(made, made, tmp_path)
        assert found.verdict == "The files are identical, byte for byte."
        assert (found.only_a, found.only_b, found.weights) == ((), (), ())
        assert all(figure.a == figure.b for figure in found.figures)
        for one in found.methods:
            assert one.instruction_a == one.instruction_b
            assert one.moved_a == ()


def test_the_link_is_seen(tmp_path: Path) -> None:
    found = only_method(copies(), link(copies()).program, tmp_path)
    removed = [one for one, other in zip(found.instruction_a, found.instruction_b, strict=True) if other < 0]
    assert removed == [1, 4, 5]  # The view, the copy into state, and the concatenation.
    copied = next(figure for figure in found.figures if figure.name == "bytes copied in a call")
    assert copied.a is not None
    assert copied.b is not None
    assert copied.b < copied.a


def test_methods_that_only_one_has(tmp_path: Path) -> None:
    first, second = counters().execution_plan
    renamed = replace(counters(), execution_plan=(first, replace(second, name="third")))
    _, found = compared(counters(), renamed, tmp_path)
    assert (found.only_a, found.only_b) == (("second",), ("third",))
    assert [one.name for one in found.methods] == ["first"]


def test_unknown_lifetimes_are_no_obstacle(tmp_path: Path) -> None:
    document, found = compared(overwriting(), chain(2), tmp_path)
    assert document.programs[0].methods[0].unknown is not None
    (one,) = found.methods
    assert Figure("outputs in place", None, 0, nbytes=False) in one.figures


def weighted(*data: bytes, names: tuple[str, ...] = ()) -> Program:
    """The sum of an input and of constants of four numbers each."""
    infos: list[Any] = [m.ExtraTensorInfo(fully_qualified_name=name) if name else None for name in names]
    infos += [None] * (len(data) - len(infos))
    count = len(data)
    constants = [tensor(4, data=1 + at, extra_tensor_info=info) for at, info in enumerate(infos)]
    results = [tensor(4, at=16 * (at + 1)) for at in range(count)]
    values = [tensor(4, at=0), *constants, *results, m.Int(1)]
    calls = []
    for at in range(count):
        before = 0 if at == 0 else count + at
        calls.append(m.KernelCall(0, (before, 1 + at, 2 * count + 1, count + 1 + at, count + 1 + at)))
    plan = method(values, calls, outputs=(2 * count,), operators=(ADD,))
    offsets = m.SubsegmentOffsets(0, (0, *(16 * at for at in range(count))))
    return make_program(plan, segments=(m.Segment(0, Blob(b"".join(data))),), constant_segment=offsets)


ONE, TWO, THREE = (bytes([number]) * 16 for number in (1, 2, 3))


def test_weights_are_compared_by_name(tmp_path: Path) -> None:
    a = weighted(ONE, TWO, names=("w.a", "w.b"))
    b = weighted(ONE, THREE, names=("w.a", "w.b"))
    assert compared(a, b, tmp_path)[1].weights == (WeightChange("w.b", "constant", 16, 16),)
    renamed = weighted(ONE, TWO, names=("w.a", "w.c"))
    assert compared(a, renamed, tmp_path)[1].weights == ()  # Equal bytes under another name.


def test_weights_without_a_name_are_compared_by_content(tmp_path: Path) -> None:
    found = compared(weighted(ONE, TWO), weighted(TWO, THREE), tmp_path)[1].weights
    assert found == (WeightChange("constant 1", "constant", 16, None), WeightChange("constant 2", "constant", None, 16))
    assert compared(weighted(ONE, TWO), weighted(TWO, ONE), tmp_path)[1].weights == ()
    twice = compared(weighted(ONE, ONE), weighted(ONE, TWO), tmp_path)[1].weights
    assert [(one.a, one.b) for one in twice] == [(16, None), (None, 16)]


def test_delegates_and_named_data_are_weights(tmp_path: Path) -> None:
    other = replace(delegated(), segments=(delegated().segments[0], m.Segment(128, Blob(b"DELEGATE"))))
    assert compared(delegated(), other, tmp_path)[1].weights == (
        WeightChange("XnnpackBackend 0 of forward", "delegate", 8, 8),
        WeightChange("weights", "named data", 8, 8),
    )


def test_weights_that_move_are_not_lost(tmp_path: Path) -> None:
    looked_up = test_lookups.delegated("XnnpackBackend", test_lookups.xnnpack("a"), "a")
    _, found = compared(weighted(ONE, TWO), looked_up, tmp_path)
    figures = {figure.name: (figure.a, figure.b) for figure in found.figures}
    assert figures["constants and named data"] == (32, figures["constants"][1] + figures["named data"][1])
    assert figures["named data"] == (0, 4)
    _, found = compared(weighted(ONE, TWO), chain(2), tmp_path)
    assert "constants and named data" not in {figure.name for figure in found.figures}


def test_memory_inside_delegates_is_not_counted(tmp_path: Path) -> None:
    assert compared(delegated(), chain(2), tmp_path)[1].uncounted is not None
    assert compared(delegated(), delegated(), tmp_path)[1].uncounted is not None
    assert compared(chain(3), chain(2), tmp_path)[1].uncounted is None


def test_external_weights_are_compared(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    file, data = two_files(tmp_path / "with")
    alone = built_file(tmp_path, chain(2))
    found = diff_document(file, alone).diff
    assert found is not None
    assert {one.name for one in found.weights if one.kind == "external weight"} == {
        "layer.weight",
        "tied.weight",
        "blob",
    }
    data.unlink()
    found = diff_document(file, alone).diff
    assert found is not None
    assert not [one for one in found.weights if one.kind == "external weight"]


def test_names_are_those_of_the_targets(tmp_path: Path) -> None:
    file = built_file(tmp_path, chain(2))
    write(chain(3), tmp_path / "other.pte")
    assert diff_document(file, tmp_path / "other.pte").title == "cpu and other.pte"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=programs(), b=programs())
def test_any_two_programs_have_a_page(a: Program, b: Program, tmp_path: Path) -> None:
    write(a, tmp_path / "a.pte")
    write(b, tmp_path / "b.pte")
    assert diff_page(tmp_path / "a.pte", tmp_path / "b.pte").startswith("<!doctype html>")


def test_everything_that_a_file_can_have_is_compared(tmp_path: Path) -> None:
    document, _ = compared(everything(), loop(), tmp_path)
    assert document.diff is not None
