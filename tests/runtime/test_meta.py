"""What a method needs, before it is loaded (A7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etdev.devices import HOST, Device, DeviceType
from etdev.errors import UsageError
from etdev.program import model as m
from etdev.runtime.meta import MethodMeta
from program.hand import tensor
from support.files import method, sin

CUDA1 = Device(DeviceType.CUDA, 1)


def _plan() -> m.ExecutionPlan:
    on_device = m.ExtraTensorInfo(device_type=DeviceType.CUDA, device_index=1)
    values = [tensor(2, 3, at=0), replace(tensor(4, at=0, buffer=2), extra_tensor_info=on_device), m.Int(3)]
    devices = (m.NonConstBufferDevice(2, DeviceType.CUDA, 1),)
    return method(values, [sin(0, 1)], inputs=(0, 2), outputs=(1,), non_const_buffer_device=devices)


def test_buffers_are_counted_from_zero_and_each_says_where_it_is() -> None:
    meta = MethodMeta(_plan())
    assert meta.num_memory_planned_buffers() == 2
    assert [meta.memory_planned_buffer_size(i) for i in range(2)] == [24, 16]
    assert [meta.memory_planned_buffer_device(i) for i in range(2)] == [HOST, CUDA1]


def test_a_file_without_the_table_answers_the_host() -> None:
    meta = MethodMeta(replace(_plan(), non_const_buffer_device=()))
    assert [meta.memory_planned_buffer_device(i) for i in range(2)] == [HOST, HOST]


@pytest.mark.parametrize("index", [-1, 2])
def test_a_buffer_that_is_not_there_is_an_error(index: int) -> None:
    for ask in (MethodMeta.memory_planned_buffer_device, MethodMeta.memory_planned_buffer_size):
        with pytest.raises(UsageError, match=f"no planned buffer of method 'forward' with index {index}"):
            ask(MethodMeta(_plan()), index)


def test_tensors_carry_their_device() -> None:
    meta = MethodMeta(_plan())
    assert meta.input_tensor_meta(0).device == HOST
    assert meta.input_tensor_meta(0).sizes == (2, 3)
    assert meta.output_tensor_meta(0).device == CUDA1
    assert meta.output_tensor_meta(0).is_memory_planned
    with pytest.raises(UsageError, match="is a Int, not a tensor"):
        meta.input_tensor_meta(1)
