"""``etdev.diff``: what differs between two files, and nothing that does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import etdev
from etdev.errors import ProgramError
from etdev.inspection.diff import MethodDiff, ProgramDiff
from etdev.program import Blob, Program, write
from etdev.program import model as m
from etdev.program.info import MethodInfo
from program.hand import everything, loop
from program.strategies import programs
from support.draws import examples
from support.files import chain, counters, delegated, program


def compared(a: Program, b: Program, folder: Path) -> ProgramDiff:
    """The difference of two programs' files."""
    write(a, folder / "a.pte")
    write(b, folder / "b.pte")
    return etdev.diff(folder / "a.pte", folder / "b.pte")


def only_method(a: Program, b: Program, folder: Path) -> tuple[MethodDiff, MethodInfo, MethodInfo]:
    """The comparison of the only method, and its two descriptions."""
    found = compared(a, b, folder)
    (method,) = found.methods
    return method, found.a.method(method.name), found.b.method(method.name)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=programs(), b=programs())
def test_any_two_files_can_be_compared(a: Program, b: Program, tmp_path: Path) -> None:
    """Laws: the difference of the same is none; both directions see the same."""
    there, back = compared(a, b, tmp_path), compared(b, a, tmp_path)

    assert json.loads(there.to_json())["same_program"] == back.same_program == (a == b)
    assert (there.a.size, there.b.size) == (back.b.size, back.a.size)
    assert [item.same for item in there.methods] == [item.same for item in back.methods] or len(there.methods) > 1
    same = compared(a, a, tmp_path)
    assert same.identical
    assert all(item.same for item in same.methods)
    assert replace(same.a, file=same.b.file) == same.b
    assert same.changed_data == ()


def test_other_addresses(tmp_path: Path) -> None:
    """The same code with a smaller plan."""
    write(chain(10), tmp_path / "a.pte")
    etdev.relink(tmp_path / "a.pte", tmp_path / "b.pte")
    found = etdev.diff(tmp_path / "a.pte", tmp_path / "b.pte")

    (item,) = found.methods
    assert (found.identical, found.same_program, item.same) == (False, False, False)
    assert item.same_code
    assert item.planned == 11
    assert item.moved is not None
    assert item.moved > 0
    assert item.delegates == ()
    a, b = found.a.method("forward"), found.b.method("forward")
    assert (found.a.memory, found.b.memory) == ({"cpu": 176}, {"cpu": 16})
    assert (len(a.inplace), len(b.inplace)) == (0, 10)
    assert a.inputs == b.inputs
    assert a.operators.keys() - b.operators.keys() == {"aten::add.out", "aten::cos.out"}
    assert [(buffer.size, buffer.lower_bound) for buffer in (*a.buffers, *b.buffers)] == [(176, 32), (16, 16)]


def test_other_layout_of_the_file_only(tmp_path: Path) -> None:
    found = compared(delegated(), replace(delegated(), segment_alignment=4096), tmp_path)

    assert (found.identical, found.same_program) == (False, True)
    assert all(item.same for item in found.methods)


def test_other_code(tmp_path: Path) -> None:
    longer, a, b = only_method(chain(2), chain(3), tmp_path)

    assert (a.instructions, b.instructions) == (2, 3)
    assert (longer.same_code, longer.planned, longer.moved) == (False, None, None)


def test_methods_of_one_file_only(tmp_path: Path) -> None:
    first, second = counters().execution_plan

    assert compared(program(first), program(replace(first, name="third"), second), tmp_path).methods == ()


@pytest.mark.parametrize(
    ("data", "backend", "expected"),
    [
        (b"delegate", "XnnpackBackend", []),
        (b"DELEGATE", "XnnpackBackend", ["XnnpackBackend"]),
        (b"longer data", "XnnpackBackend", ["XnnpackBackend"]),
        (b"delegate", "Other", ["Other", "XnnpackBackend"]),
    ],
)
def test_delegates(data: bytes, backend: str, expected: list[str], tmp_path: Path) -> None:
    other = delegated(backend=backend)
    other = replace(other, segments=(other.segments[0], m.Segment(128, Blob(data))))
    found = compared(delegated(), other, tmp_path)

    (item,) = found.methods
    assert list(item.delegates) == expected
    assert item.same is not bool(expected)
    assert bool(found.changed_data) == (data != b"delegate")


def test_data_that_lies_elsewhere_in_the_file_is_the_same(tmp_path: Path) -> None:
    moved = delegated()
    empty, data = moved.segments
    (plan,) = moved.execution_plan
    (part,) = plan.delegates
    at_the_end = replace(part, processed=replace(part.processed, index=2))
    moved = replace(
        moved,
        execution_plan=(replace(plan, delegates=(at_the_end,)),),
        segments=(empty, m.Segment(128, Blob(b"12")), m.Segment(256, data.data)),
        named_data=(m.NamedData("weights", 2),),
    )
    found = compared(delegated(), moved, tmp_path)

    assert [item.same for item in found.methods] == [True]
    assert found.changed_data == ()


def test_weights(tmp_path: Path) -> None:
    changed = everything()
    segments = (m.Segment(0, Blob(bytes(24))), *changed.segments[1:])
    found = compared(everything(), replace(changed, segments=segments), tmp_path)

    assert (found.same_weights, found.a.weights_bytes, found.b.weights_bytes) == (False, 24, 24)
    assert [item.same for item in found.methods] == [True]
    assert not found.same_program


def test_a_file_that_is_none(tmp_path: Path) -> None:
    write(loop(), tmp_path / "a.pte")
    with pytest.raises(ProgramError, match="there is no such file"):
        etdev.diff(tmp_path / "a.pte", tmp_path / "b.pte")
