"""Constants and named data in their own file: a round trip loses nothing (E2)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, given, settings

from etdev.errors import ProgramError
from etdev.program import Blob, Program, flat_tensor, read
from etdev.program import model as m
from etdev.program.check import check_program
from etdev.program.constants import constant_data
from etdev.program.data_files.external import (
    external_names,
    externalize,
    internalize,
    returns_external_constant,
    without_constant_names,
)
from etdev.program.flat_tensor import FlatTensor
from etdev.program.flat_tensor.check import check_flat_tensor
from etdev.program.footprint import constant_bytes
from program.hand import tensor
from program.strategies import programs
from support.draws import examples

if TYPE_CHECKING:
    from program.real import RealFile


def program(*tensors: m.Tensor, named: tuple[m.NamedData, ...] = (), outputs: tuple[int, ...] = ()) -> Program:
    """Build constants of 16 bytes at 0, 16 and 32, with a delegate and the data that it looks up."""
    delegate = m.BackendDelegate("Backend", m.BackendDelegateDataReference(m.DataLocation.SEGMENT, 1))
    plan = m.ExecutionPlan("forward", tensors, (), outputs, (m.Chain(()),), (), (delegate,), (0,))
    segments = (m.Segment(0, Blob(bytes(range(48)))), m.Segment(128, Blob(b"blob")), m.Segment(256, Blob(b"looked up")))
    return Program(
        (plan,), segments=segments, constant_segment=m.SubsegmentOffsets(0, (0, 0, 16, 32)), named_data=named
    )


def constant(index: int, name: str | None = None, *sizes: int) -> m.Tensor:
    return replace(
        tensor(*(sizes or (4,)), data=index), extra_tensor_info=name and m.ExtraTensorInfo(fully_qualified_name=name)
    )


def external(name: str) -> m.ExtraTensorInfo:
    return m.ExtraTensorInfo(fully_qualified_name=name, location=m.TensorDataLocation.EXTERNAL)


def content(found: Program) -> list[object]:
    """Return everything in a program, with bytes of constants and named data instead of references."""
    check_program(found)
    plans = []
    for plan in without_constant_names(found).execution_plan:
        values = [
            (replace(value, data_buffer_idx=0), data)
            if isinstance(value, m.Tensor) and (data := constant_data(found, value)) is not None
            else value
            for value in plan.values
        ]
        blobs = [
            found.segments[item.processed.index].data
            if item.processed.location is m.DataLocation.SEGMENT
            else item.processed
            for item in plan.delegates
        ]
        plans.append((replace(plan, values=(), delegates=()), values, [item.id for item in plan.delegates], blobs))
    named = {item.key: found.segments[item.segment_index].data for item in found.named_data}
    state = [
        (item.offsets and found.segments[item.segment_index].data, item.offsets) for item in found.mutable_data_segments
    ]
    return [plans, named, state, found.constant_buffer, found.backend_delegate_data, found.version]


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(before=programs())
def test_nothing_is_lost(before: Program) -> None:
    assume(not external_names(before))
    outside, data = externalize(before)
    check_program(outside)
    check_flat_tensor(data)
    after = internalize(outside, data)
    assert content(after) == content(before)
    assert externalize(after) == (outside, data)
    assert internalize(*externalize(after)) == after


def test_keys_are_names_and_digests() -> None:
    outside, data = externalize(program(constant(1, "a"), constant(2), named=(m.NamedData("key", 2),)))
    first, second, third = (item.key for item in data.named_data)
    assert (first, third) == ("a", "key")
    assert re.fullmatch("[0-9a-f]{64}", second)
    assert external_names(outside) == tuple(sorted([first, second]))
    assert not outside.named_data
    assert [bytes(segment.data) for segment in outside.segments] == [b"", b"blob"]


def test_tensors_of_the_same_bytes_share_them() -> None:
    same_layout = externalize(program(constant(1, "a"), constant(1), constant(1, "a")))[1]
    assert [item.key for item in same_layout.named_data] == ["a"]
    other_name = externalize(program(constant(1, "a"), constant(1, "b")))[1]
    assert [(item.key, item.segment_index) for item in other_name.named_data] == [("a", 0), ("b", 0)]
    other_layout = externalize(program(constant(1, "a"), constant(1, "a", 2, 2)))[1]
    assert [item.segment_index for item in other_layout.named_data] == [0, 0]
    assert other_layout.named_data[1].key != "a"


def test_names_of_the_same_bytes_share_them_inside_too() -> None:
    before = program(constant(1, "a"), constant(1, "b"), constant(1, "c", 2, 2))
    before = replace(before, segments=(m.Segment(0, Blob(bytes(16))), *before.segments[1:]))
    before = replace(before, constant_segment=m.SubsegmentOffsets(0, (0, 0)))
    after = internalize(*externalize(before))
    assert content(after) == content(before)
    assert constant_bytes(after) == constant_bytes(before) == 16


def test_what_is_joined_is_no_larger_than_the_two_files() -> None:
    """A small file of external data cannot ask for much memory, whatever lengths its names give the same bytes."""
    mebibyte = 1 << 20
    names = {f"w{index}": (mebibyte // 4 - index,) for index in range(200)}
    outside = program(
        *(replace(constant(0, name, *sizes), extra_tensor_info=external(name)) for name, sizes in names.items())
    )
    layouts = {name: flat_tensor.TensorLayout(m.ScalarType.FLOAT, sizes, (0,)) for name, sizes in names.items()}
    data = tuple(flat_tensor.NamedData(name, 0, layout) for name, layout in layouts.items())
    after = internalize(outside, FlatTensor((m.Segment(0, Blob(bytes(mebibyte))),), data))
    check_program(after)
    assert constant_bytes(after) == constant_bytes(outside) + mebibyte


def test_a_name_that_others_have_is_not_used() -> None:
    data = externalize(program(constant(1, "a"), constant(2, "a"), constant(3, "k"), named=(m.NamedData("k", 2),)))[1]
    keys = [item.key for item in data.named_data]
    assert keys[0] == "a"
    assert keys[3] == "k"
    assert len(set(keys)) == 4


def test_the_order_is_that_of_the_program() -> None:
    data = externalize(program(constant(2), constant(1, "b"), constant(3, "a")))[1]
    assert [item.key for item in data.named_data][1:] == ["b", "a"]
    assert [segment.offset for segment in data.segments] == [0, 128, 256]


def test_data_that_something_else_uses_stays() -> None:
    outside, data = externalize(program(named=(m.NamedData("blob", 1), m.NamedData("own", 2))))
    assert [item.key for item in outside.named_data] == ["blob"]
    assert [item.key for item in data.named_data] == ["own"]


def test_data_in_the_segment_of_constants_that_leave_is_moved_too() -> None:
    before = program(constant(1, "a"), named=(m.NamedData("constants", 0),))
    outside, data = externalize(before)
    assert [item.key for item in data.named_data] == ["a", "constants"]
    assert externalize(internalize(outside, data)) == (outside, data)


def test_a_returned_constant_stays() -> None:
    """Loaders would replace its bytes by memory of the caller."""
    before = program(constant(1, "a"), constant(2, "b"), constant(3, "c"), constant(2, "d"), outputs=(1, 2))
    outside, data = externalize(before)
    check_program(outside)
    assert [item.key for item in data.named_data] == ["a", "d"]
    assert external_names(outside) == ("a", "d")
    assert not returns_external_constant(outside)
    assert [bytes(constant_data(outside, value) or b"") for _, value in outside.execution_plan[0].tensors()] == [
        b"",
        bytes(range(16, 32)),
        bytes(range(32, 48)),
        b"",
    ]
    after = internalize(outside, data)
    assert content(after) == content(before)
    assert externalize(after) == (outside, data)


def test_what_is_outside_is_not_moved_again() -> None:
    outside, _ = externalize(program(constant(1, "a")))
    with pytest.raises(ProgramError, match="already in a data file"):
        externalize(outside)


def _data(change: Callable[[flat_tensor.NamedData], flat_tensor.NamedData]) -> tuple[Program, FlatTensor]:
    outside, data = externalize(program(constant(1, "a"), named=(m.NamedData("key", 2),)))
    return outside, replace(data, named_data=tuple(map(change, data.named_data)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda item: replace(item, key=f"no {item.key}"),
            "'a', the data of value 0 of method 'forward', is missing",
        ),
        (lambda item: replace(item, tensor_layout=None), "exists, but is not a tensor"),
        (
            lambda item: replace(item, tensor_layout=flat_tensor.TensorLayout(m.ScalarType.INT, (4,), (0,))),
            "is int [4], expected float [4]",
        ),
        (
            lambda item: replace(item, tensor_layout=flat_tensor.TensorLayout(m.ScalarType.FLOAT, (2, 2), (1, 0))),
            "is float [2, 2] in the order [1, 0], expected float [4]",
        ),
    ],
)
def test_data_that_do_not_fit(change: Callable[[flat_tensor.NamedData], flat_tensor.NamedData], message: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(message)):
        internalize(*_data(change))


def test_data_in_both_files() -> None:
    before = program(constant(1, "a"), named=(m.NamedData("key", 2),))
    outside, data = externalize(before)
    double = replace(outside, segments=(*outside.segments, m.Segment(512, Blob(b"x"))))
    double = replace(double, named_data=(m.NamedData("key", len(double.segments) - 1),))
    with pytest.raises(ProgramError, match="the data 'key' is both in the program and in the data file"):
        internalize(double, data)


def test_names_of_constants_inside_can_be_left_out() -> None:
    device = m.ExtraTensorInfo(fully_qualified_name="b", device_index=1)
    found = without_constant_names(program(constant(1, "a"), replace(constant(2), extra_tensor_info=device)))
    assert [value.extra_tensor_info for _, value in found.execution_plan[0].tensors()] == [
        None,
        m.ExtraTensorInfo(device_index=1),
    ]


def test_what_the_wheel_makes_is_joined(make_real: Callable[[str], RealFile]) -> None:
    real = make_real("external")
    assert real.ptd is not None
    outside = read(real.pte)
    inside = internalize(outside, flat_tensor.read(real.ptd))
    assert external_names(outside)
    assert not external_names(inside)
    assert content(internalize(*externalize(inside))) == content(inside)


@pytest.mark.parametrize("name", ["portable", "state", pytest.param("xnnpack", marks=pytest.mark.integration)])
def test_real_files_go_there_and_back(make_real: Callable[[str], RealFile], name: str, tmp_path: Path) -> None:
    before = read(make_real(name).pte)
    outside, data = externalize(before)
    assert data.named_data
    flat_tensor.write(data, tmp_path / "a.ptd")
    assert content(internalize(outside, flat_tensor.read(tmp_path / "a.ptd"))) == content(before)
