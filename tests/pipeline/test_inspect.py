"""``etdev.inspect``: what it says of a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import etdev
from etdev.errors import ProgramError
from etdev.pipeline.inspect import Argument, MethodInfo, ProgramInfo
from etdev.program import Blob, Program, write
from etdev.program import model as m
from program.hand import everything, loop, tensor, unbounded
from program.strategies import programs
from support.files import ADD, branches, chain, counters, delegated, method, overwriting, program


def inspected(found: Program, folder: Path) -> ProgramInfo:
    """What is said of a program's file."""
    file = folder / "a.pte"
    write(found, file)
    return etdev.inspect(file)


def only_method(found: Program, folder: Path) -> MethodInfo:
    (described,) = inspected(found, folder).methods
    return described


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=programs())
def test_every_valid_file_is_described(found: Program, tmp_path: Path) -> None:
    """Law: whatever a file makes of memory, it can be looked at; the parts are the whole, and bounds are bounds."""
    described = inspected(found, tmp_path)

    sections = json.loads(described.to_json())["sections"]
    assert sum(sections.values()) == described.size == (tmp_path / "a.pte").stat().st_size
    assert min(sections.values()) >= 0
    assert [item.name for item in described.methods] == [plan.name for plan in found.execution_plan]
    for item in described.methods:
        assert all(buffer.lower_bound is None or buffer.lower_bound <= buffer.size for buffer in item.buffers)
        assert (item.memory_unknown is None) == all(buffer.lower_bound is not None for buffer in item.buffers) or (
            not item.buffers
        )


@pytest.mark.parametrize(
    ("found", "sizes"),
    [
        (chain(1), [(32, 32)]),
        (chain(10), [(176, 32)]),
        (branches(), [(192, 192)]),  # No bound is above what the file gets by with.
        (delegated(), [(96, 96)]),  # 64 of them for what XNNPACK reads behind a buffer.
        (delegated(backend="Other"), [(96, 32)]),
        (counters(), [(48, 48), (48, 48)]),
        (counters(buffer=2), [(48, 32), (16, 16), (48, 32), (16, 16)]),
    ],
)
def test_buffers_and_their_lower_bounds(found: Program, sizes: list[tuple[int, int]], tmp_path: Path) -> None:
    described = inspected(found, tmp_path)

    assert [(item.size, item.lower_bound) for one in described.methods for item in one.buffers] == sizes
    assert {item.device for one in described.methods for item in one.buffers} == {"cpu"}


def test_a_lower_bound_asks_for_no_more_alignment_than_the_file_has(tmp_path: Path) -> None:
    """At multiples of 16 these would need 20 bytes."""
    plan = method([tensor(1, at=0), tensor(1, at=4)], [m.KernelCall(1, (0, 1, 1))])

    (buffer,) = only_method(program(plan), tmp_path).buffers
    assert (buffer.size, buffer.lower_bound) == (8, 8)


def test_memory_is_the_sum_over_buffers_of_the_largest(tmp_path: Path) -> None:
    first = method([tensor(4, at=0), tensor(8, at=0, buffer=2)], [])
    second = method([tensor(16, at=0)], [], name="second")

    assert inspected(program(first, second), tmp_path).memory == {"cpu": 64 + 32}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            overwriting(),
            "the caller, reading the outputs, reads value 1 at bytes 16 to 32 of buffer 1 after instruction",
        ),
        (delegated(ambiguous=True), "the file does not say which arguments of instruction 0 (XnnpackBackend)"),
    ],
)
def test_what_cannot_be_known_is_said(found: Program, reason: str, tmp_path: Path) -> None:
    described = only_method(found, tmp_path)

    assert described.memory_unknown is not None
    assert described.memory_unknown.startswith(reason)
    assert [buffer.lower_bound for buffer in described.buffers] == [None]
    assert described.state == ()


@pytest.mark.parametrize(
    ("buffer", "expected"),
    [
        (1, [("value 1", 16, 1, 0, False, False), ("value 1", 16, 1, 16, False, False)]),
        (2, [("value 1", 16, 2, 0, True, False), ("value 1", 16, 2, 0, True, False)]),
    ],
)
def test_state(buffer: int, expected: list[tuple[object, ...]], tmp_path: Path) -> None:
    described = inspected(counters(buffer=buffer), tmp_path)

    state = [item for one in described.methods for item in one.state]
    assert [(i.name, i.size, i.buffer, i.offset, i.shared, i.initialized) for i in state] == expected


def test_named_and_initialized_state(tmp_path: Path) -> None:
    kept = tensor(2, at=0, data=1, extra_tensor_info=m.ExtraTensorInfo(fully_qualified_name="layers.0.cache"))
    plan = method([kept, tensor(2, at=16)], [m.KernelCall(1, (0, 1, 1))], inputs=())
    found = program(
        plan,
        segments=(m.Segment(0, Blob()), m.Segment(16, Blob(bytes(8)))),
        mutable_data_segments=(m.SubsegmentOffsets(1, (0, 0)),),
    )

    (state,) = only_method(found, tmp_path).state
    assert (state.name, state.initialized, state.shared) == ("layers.0.cache", True, False)


def test_inputs_and_outputs(tmp_path: Path) -> None:
    described = only_method(everything(), tmp_path)
    flag, x = only_method(branches(), tmp_path).inputs
    free, moved = (*only_method(unbounded(), tmp_path).inputs, *only_method(unbounded(), tmp_path).outputs)

    assert str(described.inputs[0]) == "float32 [2, 2] at most"
    assert [(item.memory, item.device) for item in described.outputs] == [("alias", "cuda:1"), ("constant", "cpu")]
    assert (str(flag), str(x), x.nbytes) == ("bool []", "float32 [16]", 64)
    assert (str(free), free.nbytes, free.memory) == ("float32 [-1, 3] without limit", None, "caller")
    assert moved.memory == "alias"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (m.Int(-3), "int -3"),
        (m.Bool(True), "bool true"),
        (m.Double(float("nan")), "double nan"),
        (m.String("naïve"), "string naïve"),
        (m.Null(), "null"),
    ],
)
def test_constant_outputs(value: m.Value, text: str, tmp_path: Path) -> None:
    found = program(method([value], [], inputs=(), outputs=(0,)))

    assert [str(item) for item in only_method(found, tmp_path).outputs] == [text]


def test_arguments_without_sizes() -> None:
    assert str(Argument("tensor", "float32", (), "static")) == "float32 []"


def test_operators_are_counted_and_those_without_a_call_are_named(tmp_path: Path) -> None:
    described = only_method(loop(), tmp_path)

    assert described.instructions == 5
    assert list(described.operators.items()) == [
        ("aten::add.out", 2),
        ("executorch_prim::add.Scalar", 1),
        ("executorch_prim::ge.Scalar", 1),
    ]
    assert only_method(chain(1), tmp_path).operators == {"aten::add.out": 0, "aten::cos.out": 0, "aten::sin.out": 1}


def test_delegates(tmp_path: Path) -> None:
    described = inspected(delegated(), tmp_path)
    ((delegate,),) = (item.delegates for item in described.methods)

    assert (delegate.id, delegate.calls, delegate.blob_bytes, delegate.segment) == ("XnnpackBackend", 1, 8, 1)
    assert [(item.key, item.text) for item in delegate.compile_specs] == [("target_device", "cpu")]
    assert described.segments[1].holds == ("delegates", "named_data")
    assert (described.sections.delegates, described.sections.named_data) == (8, 0)  # Nothing is counted twice.
    assert [(item.key, item.segment, item.size) for item in described.named_data] == [("weights", 1, 8)]


def test_copies_between_devices(tmp_path: Path) -> None:
    operators = (ADD, m.Operator("et_copy::_h2d_copy", "out"), m.Operator("et_copy::_d2h_copy", "out"))
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32)]
    calls = [m.KernelCall(1, (0, 1, 1)), m.KernelCall(2, (1, 2, 2)), m.KernelCall(1, (2, 1, 1))]

    copies = only_method(program(method(values, calls, operators=operators)), tmp_path).copies
    assert (copies.h2d_bytes, copies.d2h_bytes) == (32, 16)


def test_weights(tmp_path: Path) -> None:
    described = inspected(everything(), tmp_path)

    assert (described.weights_bytes, described.external_data) == (24, ("weight",))
    inline = replace(loop(), constant_buffer=(Blob(), Blob(bytes(40))), constant_segment=None, segments=())
    assert inspected(inline, tmp_path).weights_bytes == 40


def test_files_that_are_no_programs(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="there is no such file"):
        etdev.inspect(tmp_path / "nowhere.pte")
    (tmp_path / "a.pte").write_bytes(b"not a program at all")
    with pytest.raises(ProgramError, match="not an ExecuTorch program") as caught:
        etdev.inspect(tmp_path / "a.pte")
    assert caught.value.exit_code == 2
