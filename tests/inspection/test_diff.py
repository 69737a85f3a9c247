"""``etdev.diff``: what differs between two files, and nothing that does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import etdev
from etdev.errors import ProgramError
from etdev.inspection.diff import MethodDiff, Pair, PlanDiff, ProgramDiff
from etdev.program import Blob, Program, write
from etdev.program import model as m
from program.hand import everything, loop, tensor
from program.strategies import programs
from support.files import SIN, chain, copies, counters, delegated, method, overwriting, program, sin


def compared(a: Program, b: Program, folder: Path) -> ProgramDiff:
    """The difference of two programs' files."""
    write(a, folder / "a.pte")
    write(b, folder / "b.pte")
    return etdev.diff(folder / "a.pte", folder / "b.pte")


def only_method(a: Program, b: Program, folder: Path) -> MethodDiff:
    (found,) = compared(a, b, folder).methods
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=programs(), b=programs())
def test_any_two_files_can_be_compared(a: Program, b: Program, tmp_path: Path) -> None:
    """Laws: the difference of the same is none; both directions see the same."""
    there, back = compared(a, b, tmp_path), compared(b, a, tmp_path)

    assert json.loads(there.to_json())["same_program"] == back.same_program == (a == b)
    assert (there.size.a, there.size.b) == (back.size.b, back.size.a)
    assert [item.same for item in there.methods] == [item.same for item in back.methods] or len(there.methods) > 1
    same = compared(a, a, tmp_path)
    assert same.identical
    assert all(item.same for item in same.methods)
    assert (same.named_data, same.methods_only_in_a, same.external_only_in_b) == ({}, (), ())


def test_other_addresses(tmp_path: Path) -> None:
    """The same code with a smaller plan."""
    write(chain(10), tmp_path / "a.pte")
    etdev.relink(tmp_path / "a.pte", tmp_path / "b.pte")
    found = etdev.diff(tmp_path / "a.pte", tmp_path / "b.pte")

    (item,) = found.methods
    assert (found.identical, found.same_program, item.same) == (False, False, False)
    assert item.plan.same_code
    assert item.plan.tensors == 11
    assert item.plan.moved is not None
    assert item.plan.moved > 0
    assert found.memory == {"cpu": Pair(176, 16)}
    assert (item.inplace, item.copied_bytes) == (Pair(0, 10), Pair(0, 0))
    assert (item.inputs, item.delegates) == ((), ())
    assert item.operators == {"aten::add.out": Pair(0, None), "aten::cos.out": Pair(0, None)}
    (buffer,) = item.buffers
    assert (buffer.size, buffer.lower_bound) == (Pair(176, 16), Pair(32, 16))


def test_copies_and_outputs_in_place(tmp_path: Path) -> None:
    write(copies(), tmp_path / "a.pte")
    etdev.relink(tmp_path / "a.pte", tmp_path / "b.pte")

    (item,) = etdev.diff(tmp_path / "a.pte", tmp_path / "b.pte").methods
    assert (item.copied_bytes, item.inplace) == (Pair(280, 224), Pair(0, 2))
    unknown = only_method(overwriting(), chain(1), tmp_path)
    assert (unknown.inplace, unknown.copied_bytes) == (Pair(None, 0), Pair(0, 0))


def test_other_layout_of_the_file_only(tmp_path: Path) -> None:
    found = compared(delegated(), replace(delegated(), segment_alignment=4096), tmp_path)

    assert (found.identical, found.same_program) == (False, True)
    assert all(item.same for item in found.methods)


def test_other_code(tmp_path: Path) -> None:
    longer = only_method(chain(2), chain(3), tmp_path)

    assert longer.instructions == Pair(2, 3)
    assert longer.operators == {"aten::sin.out": Pair(2, 3)}
    assert longer.plan == PlanDiff(same_code=False, tensors=None, moved=None)


def test_an_operator_of_one_file_only(tmp_path: Path) -> None:
    values = [tensor(4, at=0), tensor(4, at=16)]
    a = program(method(values, [sin(0, 1)]))
    b = program(method(values, [m.KernelCall(1, (0, 1, 1))], operators=(SIN, m.Operator("my::sine", "out"))))

    found = only_method(a, b, tmp_path).operators
    assert found == {
        "aten::add.out": Pair(0, None),
        "aten::cos.out": Pair(0, None),
        "aten::sin.out": Pair(1, 0),
        "my::sine.out": Pair(None, 1),
    }


def test_inputs_and_outputs(tmp_path: Path) -> None:
    a = program(method([tensor(4, at=0), tensor(4, at=16)], [sin(0, 1)], inputs=(0,)))
    b = program(method([tensor(8, at=0), tensor(4, at=32)], [sin(0, 1)], inputs=(0, 1)))
    found = only_method(a, b, tmp_path)

    assert [(item.position, str(item.a), str(item.b)) for item in found.inputs] == [
        (0, "float32 [4]", "float32 [8]"),
        (1, "None", "float32 [4]"),
    ]
    assert found.outputs == ()


def test_methods_of_one_file_only(tmp_path: Path) -> None:
    first, second = counters().execution_plan
    found = compared(program(first), program(replace(first, name="third"), second), tmp_path)

    assert (found.methods_only_in_a, found.methods_only_in_b, found.methods) == (("first",), ("third", "second"), ())


@pytest.mark.parametrize(
    ("data", "backend", "expected"),
    [
        (b"delegate", "XnnpackBackend", []),
        (b"DELEGATE", "XnnpackBackend", [("XnnpackBackend", Pair(1, 1), Pair(8, 8), False)]),
        (b"longer data", "XnnpackBackend", [("XnnpackBackend", Pair(1, 1), Pair(8, 11), False)]),
        (
            b"delegate",
            "Other",
            [("Other", Pair(0, 1), Pair(0, 8), False), ("XnnpackBackend", Pair(1, 0), Pair(8, 0), False)],
        ),
    ],
)
def test_delegates(data: bytes, backend: str, expected: list[tuple[object, ...]], tmp_path: Path) -> None:
    other = delegated(backend=backend)
    other = replace(other, segments=(other.segments[0], m.Segment(128, Blob(data))))
    found = compared(delegated(), other, tmp_path)

    (item,) = found.methods
    assert [(part.id, part.calls, part.blob_bytes, part.same_data) for part in item.delegates] == expected
    assert item.same is not bool(expected)
    assert bool(found.named_data) == (data != b"delegate")


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
    assert found.named_data == {}


def test_weights(tmp_path: Path) -> None:
    changed = everything()
    segments = (m.Segment(0, Blob(bytes(24))), *changed.segments[1:])
    found = compared(everything(), replace(changed, segments=segments), tmp_path)

    assert (found.same_weights, found.weights_bytes) == (False, Pair(24, 24))
    assert [item.same for item in found.methods] == [True]
    assert not found.same_program


def test_the_parts_of_the_files(tmp_path: Path) -> None:
    found = compared(loop(), everything(), tmp_path)

    assert found.header_bytes == Pair(None, 32)
    assert found.schema_version == Pair(0, 1)
    assert found.sections["constants"] == Pair(0, 24)
    assert found.memory == {"cpu": Pair(32, 1 << 33), "cuda:1": Pair(0, 64)}
    assert (found.external_only_in_a, found.external_only_in_b) == ((), ("weight",))
    assert found.named_data == {"blob": Pair(None, 8)}


def test_a_file_that_is_none(tmp_path: Path) -> None:
    write(loop(), tmp_path / "a.pte")
    with pytest.raises(ProgramError, match="there is no such file"):
        etdev.diff(tmp_path / "a.pte", tmp_path / "b.pte")
