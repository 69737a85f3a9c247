"""Data of constants, and initial values of state."""

from __future__ import annotations

from collections.abc import Mapping

from etdev.devices import HOST, Device
from etdev.errors import EtdevError, MissingRequirementError
from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.program.constants import constant_data
from etdev.runtime.allocator import DEFAULT_ALIGNMENT, Registry
from etdev.runtime.errors import DeviceCopyError, RunError
from etdev.runtime.hostmem import quiet_read_only
from etdev.runtime.interpreter.tensors import Memory
from etdev.runtime.memory import DeviceMemoryBuffer
from etdev.runtime.owners import MoveOnly


def constant_bytes(program: Program, value: int, tensor: m.Tensor) -> Blob:
    """Return the data of a constant.

    Raises :class:`~etdev.errors.MissingRequirementError` if the data is in a data file.
    """
    if tensor.is_external:
        raise MissingRequirementError(
            f"the data of value {value} ({tensor.name!r}) is in another file",
            hint="pass that file: `--data FILE.ptd`",
        )
    if program.constant_buffer:
        return program.constant_buffer[tensor.data_buffer_idx].cut(0, tensor.nbytes)
    data = constant_data(program, tensor)
    if data is None:
        raise RunError(f"value {value} is a constant, but the program has no data for it")
    return data


def initial_bytes(program: Program, value: int, tensor: m.Tensor) -> Blob:
    """Return the bytes of a state tensor's initial value.

    The bytes are in the program's first mutable data segment. Raises :class:`~etdev.errors.MissingRequirementError` if
    the bytes are in a data file.
    """
    if tensor.is_external:
        return constant_bytes(program, value, tensor)
    if not program.mutable_data_segments:
        raise RunError(f"value {value} is a state, but the program has no initial data for it")
    table = program.mutable_data_segments[0]
    return program.segments[table.segment_index].data.cut(table.offsets[tensor.data_buffer_idx], tensor.nbytes)


class Constants(MoveOnly):
    """Constants of a method: the file's bytes on the host, or copies in device memory.

    A second call of :meth:`close` has no effect.
    """

    def __init__(self, program: Program, plan: m.ExecutionPlan, home: Device, registry: Registry) -> None:
        self.memories: dict[int, Memory] = {}
        """Maps the value index of a constant to the memory that contains its data."""
        self._buffer = DeviceMemoryBuffer()
        data = {value: constant_bytes(program, value, tensor) for value, tensor in plan.tensors() if tensor.is_constant}
        if home == HOST:
            self.memories = {value: _host_memory(blob) for value, blob in data.items()}
            return
        try:
            self._copy(data, home, registry)
        except EtdevError as error:
            self.close()
            failure = DeviceCopyError(
                f"the constants of method {plan.name!r} cannot be copied to {home}: {error.message}", hint=error.hint
            )
            failure.exit_code = error.exit_code
            raise failure from error

    def _copy(self, data: Mapping[int, Blob], home: Device, registry: Registry) -> None:
        starts: dict[int, int] = {}
        end = 0
        for value, blob in data.items():
            starts[value] = end
            end += -(-len(blob) // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT
        self._buffer = DeviceMemoryBuffer.create(end, home.type, home.index, registry=registry)
        allocator = registry.get(home.type)
        for value, blob in data.items():
            address = self._buffer.data() + starts[value]
            if len(blob):
                allocator.copy_host_to_device(address, blob.view, len(blob), home.index)
            self.memories[value] = Memory(home, address, len(blob), allocator=allocator)

    def close(self) -> None:
        """Free the copies in device memory."""
        self.memories.clear()
        self._buffer.close()


def _host_memory(blob: Blob) -> Memory:
    import torch

    if not len(blob):
        return Memory.of(torch.empty(0, dtype=torch.uint8))
    with quiet_read_only():
        return Memory.of(torch.frombuffer(blob.view, dtype=torch.uint8))
