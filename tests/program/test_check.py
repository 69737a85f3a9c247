"""Reader and writer refuse every index and extent that is out of range, with its path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etdev.errors import ExitCode, ProgramError, UsageError
from etdev.program import Blob, Program, parse, write, writer
from etdev.program import model as m
from program import hand

Change = Callable[[Program], Program]


def program(**changes: Any) -> Change:
    """Replace fields of the program."""
    return lambda whole: replace(whole, **changes)


def plan(**changes: Any) -> Change:
    """Replace fields of the only method."""
    return lambda whole: replace(whole, execution_plan=(replace(whole.execution_plan[0], **changes),))


def value(index: int, other: m.Value) -> Change:
    """Replace a value."""

    def change(whole: Program) -> Program:
        values = list(whole.execution_plan[0].values)
        values[index] = other
        return plan(values=tuple(values))(whole)

    return change


def field(index: int, **changes: Any) -> Change:
    """Replace fields of a value."""
    return lambda whole: value(index, replace(whole.execution_plan[0].values[index], **changes))(whole)


def call(other: m.Instruction) -> Change:
    """Replace the first instruction."""
    return lambda whole: plan(
        chains=(replace(whole.execution_plan[0].chains[0], instructions=(other,), stacktrace=()),)
    )(whole)


PLACE = m.AllocationDetails
EXTERNAL = m.TensorDataLocation.EXTERNAL
UNBOUND = m.TensorShapeDynamism.DYNAMIC_UNBOUND
V = "execution_plan[0].values"
I = "execution_plan[0].chains[0].instructions[0]"  # noqa: E741 - as short as what it stands for
FLAWS: dict[str, tuple[Change, str, str]] = {
    "segments overlap": (
        program(segments=(m.Segment(0, Blob(b"12345678" * 9)), m.Segment(64, Blob(b"")))),
        "segments[1]",
        "the segment begins at 64, but the previous segment ends at 72",
    ),
    "segments without header": (program(header_length=None), "segments", "without an extended header"),
    "constant segment": (
        program(constant_segment=m.SubsegmentOffsets(3, (0,))),
        "constant_segment.segment_index",
        "3 is not an index into the 3 segments",
    ),
    "constant offset": (
        program(constant_segment=m.SubsegmentOffsets(0, (0, 25))),
        "constant_segment.offsets[1]",
        "25 is past the end of a segment of 24 bytes",
    ),
    "constants twice": (program(constant_buffer=(Blob(), Blob(bytes(8)))), "constant_buffer", "both in"),
    "state segment": (
        program(mutable_data_segments=(m.SubsegmentOffsets(9, (0,)),)),
        "mutable_data_segments[0].segment_index",
        "9 is not an index",
    ),
    "state offset": (
        program(mutable_data_segments=(m.SubsegmentOffsets(1, (0, 99)),)),
        "mutable_data_segments[0].offsets[1]",
        "99 is past the end",
    ),
    "state segment twice": (
        program(mutable_data_segments=(m.SubsegmentOffsets(1, (0, 8)),) * 2),
        "mutable_data_segments",
        "the same segment",
    ),
    "named data": (program(named_data=(m.NamedData("a", 3),)), "named_data[0].segment_index", "3 is not an index"),
    "named data twice": (program(named_data=(m.NamedData("a", 2),) * 2), "named_data", "2 items have the key 'a'"),
    "method twice": (
        lambda whole: replace(whole, execution_plan=whole.execution_plan * 2),
        "execution_plan",
        "2 items have the name 'forward'",
    ),
    "method without name": (plan(name=""), "execution_plan[0].name", "empty"),
    "method's name": (plan(name="a\0b"), "execution_plan[0].name", "zero byte"),
    "buffer size": (
        plan(non_const_buffer_sizes=(0, 1 << 33, -1)),
        "execution_plan[0].non_const_buffer_sizes[2]",
        "expected a size of 0 or more, found -1",
    ),
    "buffer's device": (
        plan(non_const_buffer_device=(m.NonConstBufferDevice(3),)),
        "execution_plan[0].non_const_buffer_device[0].buffer_idx",
        "3 is not an index into the 3 non_const_buffer_sizes",
    ),
    "reserved buffer's device": (
        plan(non_const_buffer_device=(m.NonConstBufferDevice(0),)),
        "execution_plan[0].non_const_buffer_device[0].buffer_idx",
        "reserved",
    ),
    "two devices": (
        plan(non_const_buffer_device=(m.NonConstBufferDevice(1),) * 2),
        "execution_plan[0].non_const_buffer_device[1].buffer_idx",
        "already",
    ),
    "operator": (
        plan(operators=(m.Operator("a"), m.Operator(""))),
        "execution_plan[0].operators[1].name",
        "empty",
    ),
    "delegate's inline data": (
        lambda whole: replace(whole, backend_delegate_data=whole.backend_delegate_data[:1]),
        "execution_plan[0].delegates[0].processed.index",
        "1 is not an index into the 1 backend_delegate_data",
    ),
    "delegate's segment": (
        lambda whole: replace(whole, segments=whole.segments[:2], named_data=()),
        "execution_plan[0].delegates[1].processed.index",
        "2 is not an index into the 2 segments",
    ),
    "inputs": (plan(inputs=(0, 15)), "execution_plan[0].inputs[1]", "15 is not an index into the 15 values"),
    "outputs": (plan(outputs=(-1,)), "execution_plan[0].outputs[0]", "-1 is not an index into the 15 values"),
    "no chain": (plan(chains=()), "execution_plan[0].chains", "at least one"),
    "chain's inputs": (
        plan(chains=(m.Chain((), inputs=(99,)),)),
        "execution_plan[0].chains[0].inputs[0]",
        "99 is not an index",
    ),
    "dim order too short": (field(4, dim_order=(0, 1)), f"{V}[4].tensor.dim_order", "each of 3 dimensions once"),
    "dim order twice": (field(4, dim_order=(0, 1, 1)), f"{V}[4].tensor.dim_order", "found (0, 1, 1)"),
    "storage offset": (field(4, storage_offset=1), f"{V}[4].tensor.storage_offset", "expected 0, the only offset"),
    "size": (field(4, sizes=(1, -2, 3)), f"{V}[4].tensor.sizes[1]", "found -2"),
    "too many bytes": (field(4, sizes=((1 << 31) - 1,) * 3), f"{V}[4].tensor.sizes", "more than a signed 64-bit"),
    "planned buffer 0": (
        field(0, allocation_info=PLACE(0, 0)),
        f"{V}[0].tensor.allocation_info.memory_id",
        "expected a buffer from 1 to 2, found 0",
    ),
    "planned buffer": (
        field(0, allocation_info=PLACE(3, 0)),
        f"{V}[0].tensor.allocation_info.memory_id",
        "expected a buffer from 1 to 2, found 3",
    ),
    "planned extent": (
        field(0, allocation_info=PLACE(2, 52)),
        f"{V}[0].tensor.allocation_info",
        "16 bytes at offset 52 do not fit in buffer 2, which has 64 bytes",
    ),
    "planned far away": (
        field(0, allocation_info=PLACE(1, (1 << 33) - 15)),
        f"{V}[0].tensor.allocation_info",
        "in buffer 1, which has 8589934592",
    ),
    "unbounded, behind the end": (
        field(0, shape_dynamism=UNBOUND, allocation_info=PLACE(2, 65)),
        f"{V}[0].tensor.allocation_info",
        "0 bytes at offset 65",
    ),
    "constant's index": (field(1, data_buffer_idx=2), f"{V}[1].tensor.data_buffer_idx", "2 is not an index into the 2"),
    "constant's extent": (
        field(1, sizes=(3,)),
        f"{V}[1].tensor.data_buffer_idx",
        "12 bytes at offset 16 reach past the end of a segment of 24 bytes",
    ),
    "initial value's index": (field(2, data_buffer_idx=2), f"{V}[2].tensor.data_buffer_idx", "2 is not an index"),
    "initial value's segment": (
        field(2, extra_tensor_info=m.ExtraTensorInfo(1)),
        f"{V}[2].tensor.extra_tensor_info.mutable_data_segments_idx",
        "1 is not an index into the 1 mutable_data_segments",
    ),
    "external without name": (
        field(3, extra_tensor_info=m.ExtraTensorInfo(location=EXTERNAL)),
        f"{V}[3].tensor.extra_tensor_info.fully_qualified_name",
        "needs a name",
    ),
    "integer list": (value(10, m.IntList((15,))), f"{V}[10].int_list.items[0]", "15 is not an index"),
    "tensor list": (value(13, m.TensorList((0, -1))), f"{V}[13].tensor_list.items[1]", "-1 is not an index"),
    "tensor list of another": (
        value(13, m.TensorList((6,))),
        f"{V}[13].tensor_list.items[0]",
        "expected a tensor, but value 6 is a Int",
    ),
    "tensor list before": (
        value(9, m.TensorList((9,))),
        f"{V}[9].tensor_list.items[0]",
        "must have a lower index than its list",
    ),
    "optional list": (
        value(14, m.OptionalTensorList((-2,))),
        f"{V}[14].optional_tensor_list.items[0]",
        "-2 is not an index",
    ),
    "kernel": (call(m.KernelCall(2, ())), f"{I}.kernel_call.op_index", "2 is not an index into the 2 operators"),
    "kernel's arguments": (call(m.KernelCall(0, (0, 15))), f"{I}.kernel_call.args[1]", "15 is not an index"),
    "delegate": (call(m.DelegateCall(-1, ())), f"{I}.delegate_call.delegate_index", "-1 is not an index"),
    "delegate's arguments": (call(m.DelegateCall(0, (-1,))), f"{I}.delegate_call.args[0]", "-1 is not an index"),
    "move from": (call(m.MoveCall(15, 0)), f"{I}.move_call.move_from", "15 is not an index"),
    "move to": (call(m.MoveCall(0, -1)), f"{I}.move_call.move_to", "-1 is not an index"),
    "condition": (call(m.JumpFalseCall(15, 0)), f"{I}.jump_false_call.cond_value_index", "15 is not an index"),
    "jump": (
        call(m.JumpFalseCall(7, 2)),
        f"{I}.jump_false_call.destination_instruction",
        "instruction 2, but the chain has 1",
    ),
    "jump before": (
        call(m.JumpFalseCall(7, -1)),
        f"{I}.jump_false_call.destination_instruction",
        "instruction -1, but the chain has 1",
    ),
    "a constant without sizes": (
        field(1, shape_dynamism=UNBOUND),
        f"{V}[1].tensor.shape_dynamism",
        "a tensor with data in the file must have known sizes",
    ),
    "a buffer on a device that cannot be": (
        plan(non_const_buffer_device=(m.NonConstBufferDevice(2, m.DeviceType.CUDA, -1),)),
        "execution_plan[0].non_const_buffer_device[0].device_index",
        "-1 is not an index of a device of type CUDA: expected 0 to 127",
    ),
    "a buffer on another host": (
        plan(non_const_buffer_device=(m.NonConstBufferDevice(2, m.DeviceType.CPU, 1),)),
        "execution_plan[0].non_const_buffer_device[0].device_index",
        "1 is not an index of a device of type CPU: expected 0 to 0",
    ),
    "a tensor on a device that cannot be": (
        field(0, extra_tensor_info=m.ExtraTensorInfo(device_type=m.DeviceType.CUDA, device_index=-128)),
        f"{V}[0].tensor.extra_tensor_info.device_index",
        "-128 is not an index of a device of type CUDA: expected 0 to 127",
    ),
    "a tensor on another host": (
        field(0, extra_tensor_info=m.ExtraTensorInfo(device_index=1)),
        f"{V}[0].tensor.extra_tensor_info.device_index",
        "1 is not an index of a device of type CPU",
    ),
    "a move from a number to a tensor": (
        call(m.MoveCall(6, 0)),
        f"{I}.move_call.move_from",
        "the move sets value 0 (a tensor) to value 6 (an integer)",
    ),
    "a move of a list": (call(m.MoveCall(10, 10)), f"{I}.move_call.move_from", "a list of integers"),
    "a condition that is a number": (
        call(m.JumpFalseCall(6, 0)),
        f"{I}.jump_false_call.cond_value_index",
        "value 6 is an integer",
    ),
    "a condition of floats": (
        call(m.JumpFalseCall(1, 0)),
        f"{I}.jump_false_call.cond_value_index",
        "value 1 is a tensor of FLOAT",
    ),
    "a list of integers that has a tensor": (
        value(10, m.IntList((6, 0))),
        f"{V}[10].int_list.items[1]",
        "expected an integer, but value 0 is a tensor",
    ),
    "free": (call(m.FreeCall(15)), f"{I}.free_call.value_index", "15 is not an index"),
}


@pytest.mark.parametrize("name", FLAWS)
def test_flaws(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, path, message = FLAWS[name]
    flawed = change(hand.everything())
    with pytest.raises(ProgramError) as refused:
        write(flawed, tmp_path / "a.pte")
    assert (refused.value.path, refused.value.exit_code) == (path, ExitCode.CONFIG)
    assert message in refused.value.message
    assert str(refused.value).startswith(f"{path}: ")
    assert not list(tmp_path.iterdir())
    if name in {"segments without header", "segments overlap"}:
        return  # No file can express it.
    monkeypatch.setattr(writer, "check_program", lambda _: None)
    with pytest.raises(ProgramError) as found:
        parse(Blob(hand.content(flawed, tmp_path)), where="some.pte")
    assert (found.value.path, found.value.message, found.value.where) == (path, refused.value.message, "some.pte")


NUMBERS: dict[str, tuple[Change, str, str]] = {
    "rank": (value(4, hand.tensor(*[1] * 17)), f"{V}[4].tensor.sizes", "at most 16 dimensions, found 17"),
    "size": (field(4, sizes=(1, 2, 1 << 31)), f"{V}[4].tensor.sizes", "format requires"),
    "integer": (value(6, m.Int(1 << 63)), f"{V}[6].int.int_val", "9223372036854775808"),
    "offset": (field(0, allocation_info=PLACE(1, -1)), f"{V}[0].tensor.allocation_info", "at offset -1"),
    "device": (
        plan(non_const_buffer_device=(m.NonConstBufferDevice(1, 2),)),  # type: ignore[arg-type]
        "execution_plan[0].non_const_buffer_device[0].device_type",
        "expected a DeviceType, found 2",
    ),
    "string": (value(9, m.String("\ud800")), f"{V}[9].string.string_val", "UTF-8"),
    "value": (value(9, "a string"), f"{V}[9]", "expected one of Null, Int"),  # type: ignore[arg-type]
    "version": (program(version=-1), "version", "-1"),
    "header": (program(header_length=28), "header_length", "expected 24, 32 or None"),
    "alignment": (program(segment_alignment=48), "segment_alignment", "power of two"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_no_file_can_hold(name: str, tmp_path: Path) -> None:
    change, path, message = NUMBERS[name]
    with pytest.raises(ProgramError) as refused:
        write(change(hand.everything()), tmp_path / "a.pte")
    assert refused.value.path == path
    assert message in refused.value.message
    assert not list(tmp_path.iterdir())


def test_unbounded_sizes_say_nothing(tmp_path: Path) -> None:
    unbounded = field(0, sizes=(-1, 1 << 30), shape_dynamism=UNBOUND)(hand.everything())
    assert hand.again(unbounded, tmp_path) == unbounded


def test_an_external_tensors_index_says_nothing(tmp_path: Path) -> None:
    external = field(3, data_buffer_idx=1234)(hand.everything())
    assert hand.again(external, tmp_path) == external


def test_old_constants_inside_the_flatbuffer(tmp_path: Path) -> None:
    old = replace(
        hand.everything(), constant_segment=None, constant_buffer=(Blob(), Blob(b"12345678")), header_length=24
    )
    assert hand.again(old, tmp_path) == old
    with pytest.raises(ProgramError, match="8 bytes, but its data has 7"):
        write(replace(old, constant_buffer=(Blob(), Blob(b"1234567"))), tmp_path / "a.pte")


def test_methods_are_found_by_name() -> None:
    whole = hand.everything()
    assert whole.method("forward") is whole.execution_plan[0]
    with pytest.raises(UsageError, match="no method 'backward'\n  help: use a method of the program: 'forward'"):
        whole.method("backward")


def test_tensors_of_a_method() -> None:
    tensors = dict(hand.everything().execution_plan[0].tensors())
    assert list(tensors) == [0, 1, 2, 3, 4]
    assert [tensor.nbytes for tensor in tensors.values()] == [16, 8, 8, 12, 6]
    assert [index for index, tensor in tensors.items() if tensor.is_constant] == [1, 3]
    assert [index for index, tensor in tensors.items() if tensor.is_external] == [3]
