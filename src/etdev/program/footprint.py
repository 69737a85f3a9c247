"""Memory figures of a program: planned bytes per device, and bytes of constants and named data."""

from __future__ import annotations

from collections.abc import Collection

from etdev.devices import HOST, Device
from etdev.program.blob import Blob
from etdev.program.constants import constant_data
from etdev.program.info import BufferInfo
from etdev.program.model import ExecutionPlan, Program


def planned_buffers(plan: ExecutionPlan) -> tuple[BufferInfo, ...]:
    """Return the planned buffers of a method, each with its index, device and size."""
    sizes = enumerate(plan.non_const_buffer_sizes)
    return tuple(BufferInfo(index, str(plan.buffer_device(index)), size) for index, size in sizes if index)


def program_buffers(program: Program) -> tuple[BufferInfo, ...]:
    """Return the planned buffers of a program, each with its largest size in any method."""
    found: dict[int, BufferInfo] = {}
    for plan in program.execution_plan:
        for buffer in planned_buffers(plan):
            if buffer.index not in found or buffer.size > found[buffer.index].size:
                found[buffer.index] = buffer
    return tuple(buffer for _, buffer in sorted(found.items()))


def buffer_sizes(program: Program) -> dict[int, int]:
    """Map the memory id of each planned buffer to its largest size in any method, in bytes."""
    return {buffer.index: buffer.size for buffer in program_buffers(program)}


def planned_memory(program: Program) -> dict[str, int]:
    """Return the planned bytes per device.

    Methods share buffers of the same index. So each index counts once, with its largest size in any method. The result
    always contains ``cpu``.
    """
    largest: dict[tuple[Device, int], int] = {}
    for plan in program.execution_plan:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            if index:
                key = (plan.buffer_device(index), index)
                largest[key] = max(largest.get(key, 0), size)
    memory = {str(HOST): 0}
    for (device, _), size in sorted(largest.items()):
        memory[str(device)] = memory.get(str(device), 0) + size
    return memory


def constant_bytes(program: Program) -> int:
    """Return the number of bytes of tensor constants, in the segment and in the flatbuffer.

    Constants inside delegates or other files do not count.
    """
    inline = sum(len(blob) for blob in program.constant_buffer)
    constants = program.constant_segment
    if constants is None or not constants.offsets:
        return inline
    return inline + len(program.segments[constants.segment_index].data)


def repeated_bytes(program: Program, keys: Collection[str]) -> int:
    """Return the total size of the constants that :func:`repeated_constants` returns, in bytes.

    An example is a weight that an embedding kernel and a delegate use. A ``.pte`` stores such bytes twice, and a data
    file stores them once.
    """
    return sum(map(len, repeated_constants(program, keys).values()))


def repeated_constants(program: Program, keys: Collection[str]) -> dict[int, Blob]:
    """Return the constants whose bytes equal those of named data with a key in ``keys``.

    The result maps a constant's buffer index to the constant's bytes. Constants that a method returns are left out,
    because they never move to a data file.
    """
    named = {program.segments[item.segment_index].data for item in program.named_data if item.key in keys}
    sizes = set(map(len, named))
    constants = {
        tensor.data_buffer_idx: constant_data(program, tensor)
        for plan in program.execution_plan
        for value, tensor in plan.tensors()
        if tensor.is_constant and tensor.nbytes in sizes and value not in plan.outputs
    }
    return {index: blob for index, blob in constants.items() if blob is not None and blob in named}


def named_bytes(program: Program) -> int:
    """Return the number of bytes of the named data in the file. A segment with several names counts once.

    Delegates look up named data. For example, some backends use named data for weights that several delegates share.
    """
    segments = {item.segment_index for item in program.named_data}
    return sum(len(program.segments[index].data) for index in segments)
