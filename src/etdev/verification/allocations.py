"""Memory test of the check *device*: allocates planned buffers on devices, writes them, reads them back, frees them.

This module accesses devices only through their allocators. Therefore, the test also runs on simulated devices.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice

from etdev.devices import Device
from etdev.errors import EtdevError, LinkError
from etdev.pipeline.results.result_parts import AllocatedBuffer, DeviceMemory
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.storage import method_memory
from etdev.program.delegates import delegate_inputs
from etdev.runtime.allocator import Allocation, MemoryInfo, Registry
from etdev.runtime.errors import OutOfDeviceMemoryError
from etdev.runtime.memory import DeviceMemoryBuffer

_GUARD = 256
"""Number of guard bytes after each buffer's end; the test requires that they do not change."""
_PERIOD = 65_521
"""Length in bytes after which a byte pattern repeats.

The length is a prime. Therefore, the patterns differ at addresses whose distance is a power of two.
"""
_PIECE = 64 * _PERIOD
"""Largest number of bytes in one copy."""
_MOST_PROBLEMS = 20

DelegateInputs = Mapping[str, Mapping[int, int]]
"""Maps a method's name and the position of a delegate call to the number of inputs of that call."""


@dataclass(frozen=True, slots=True)
class Allocations:
    """Result of the memory test: the tested buffers, the memory of the devices, and the problems found."""

    buffers: tuple[AllocatedBuffer, ...] = ()
    devices: tuple[DeviceMemory, ...] = ()
    problems: tuple[str, ...] = ()


def check_allocations(
    program: Program, registry: Registry, *, alignment: int, inputs: DelegateInputs | None = None
) -> Allocations:
    """Allocate all planned buffers on devices at the same time, test them, and free them.

    The test checks that the buffers' addresses are multiples of ``alignment`` bytes. It also writes each storage when
    the storage's lifetime begins, and reads the storage back when its lifetime ends. Storages with overlapping
    lifetimes must not change each other's content.

    ``inputs`` states the number of inputs of each delegate call. If ``inputs`` is None, the numbers are derived from
    the file. All memory is freed even if an error is raised. Raises :class:`~etdev.errors.MissingRequirementError` if a
    device is missing or has too little free memory.
    """
    sizes = _device_buffers(program)
    devices = sorted({device for device, _ in sizes})
    _warm_up(devices, registry)
    before = {device: _info(registry, device) for device in devices}
    live_before = {device: _live(registry, device) for device in devices}
    _require_room(sizes, before)
    problems: list[str] = []
    during: dict[Device, MemoryInfo | None] = {}
    found: list[AllocatedBuffer] = []
    with ExitStack() as stack:
        try:
            buffers = {key: stack.enter_context(_allocated(*key, sizes[key], alignment, registry)) for key in sizes}
            during = {device: _info(registry, device) for device in devices}
            checks = [_BufferCheck(program, key, sizes[key], buffers[key], alignment, inputs) for key in sizes]
            for check in checks:
                with _naming(f"planned {check.label}"):
                    problems += islice(check.run(registry, live_before[check.device]), _MOST_PROBLEMS - len(problems))
                found.append(check.result)
        except OutOfDeviceMemoryError:
            raise
        except EtdevError as error:
            problems.append(f"{error.where}: {error.message}" if error.where else error.message)
    for device in devices:
        problems += _leaks(device, live_before[device], _live(registry, device))
    after = {device: _info(registry, device) for device in devices}
    return Allocations(
        tuple(found),
        tuple(_memory(device, before[device], during.get(device), after[device]) for device in devices),
        tuple(problems),
    )


def _device_buffers(program: Program) -> dict[tuple[Device, int], int]:
    """Map each device and buffer number to the buffer's size in bytes.

    If the methods state different sizes for a buffer, use the largest size.
    """
    sizes: dict[tuple[Device, int], int] = {}
    for plan in program.execution_plan:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            device = plan.buffer_device(index)
            if index and size and not device.is_host:
                sizes[device, index] = max(sizes.get((device, index), 0), size)
    return dict(sorted(sizes.items()))


def _allocated(device: Device, index: int, size: int, alignment: int, registry: Registry) -> DeviceMemoryBuffer:
    with _naming(f"planned buffer {index} on {device}"):
        return DeviceMemoryBuffer.create(size + _GUARD, device.type, device.index, alignment, registry=registry)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Inside the block, set the location of errors to ``what``, a description of the memory."""
    try:
        yield
    except EtdevError as error:
        error.where = what
        raise


def _warm_up(devices: Sequence[Device], registry: Registry) -> None:
    """Use each device once, so that the device's library allocates its own memory before the first measurement."""
    for device in devices:
        with (
            _naming(f"the first bytes on {device}"),
            DeviceMemoryBuffer.create(_GUARD, device.type, device.index, registry=registry) as buffer,
        ):
            registry.get(device.type).copy_host_to_device(buffer.data(), bytes(_GUARD), _GUARD, device.index)


def _info(registry: Registry, device: Device) -> MemoryInfo | None:
    return registry.get(device.type).memory_info(device.index)


def _live(registry: Registry, device: Device) -> tuple[Allocation, ...]:
    return tuple(item for item in registry.get(device.type).live() if item.index == device.index)


def _require_room(sizes: Mapping[tuple[Device, int], int], free: Mapping[Device, MemoryInfo | None]) -> None:
    for device, info in free.items():
        needed = sum(size + _GUARD for (of, _), size in sizes.items() if of == device)
        if info is not None and needed > info.free:
            raise OutOfDeviceMemoryError(device, needed, info.free)


def _leaks(device: Device, before: Sequence[Allocation], after: Sequence[Allocation]) -> Iterator[str]:
    left = sum(item.size for item in after) - sum(item.size for item in before)
    if left:
        yield (
            f"{device} has {left:,} more bytes allocated after the test than before, although all buffers were freed"
        )


def _memory(
    device: Device, before: MemoryInfo | None, during: MemoryInfo | None, after: MemoryInfo | None
) -> DeviceMemory:
    free = [None if info is None else info.free for info in (before, during, after)]
    return DeviceMemory(str(device), free[0], free[1], free[2], None if before is None else before.total)


class _BufferCheck:
    """The test of one allocated buffer and its content."""

    def __init__(
        self,
        program: Program,
        key: tuple[Device, int],
        size: int,
        buffer: DeviceMemoryBuffer,
        alignment: int,
        inputs: DelegateInputs | None,
    ) -> None:
        self.device, self._index = key
        self._program, self._size, self._buffer = program, size, buffer
        self._alignment, self._inputs = alignment, inputs
        self.label = f"buffer {self._index} on {self.device}"
        self._memory = ""
        self._extents = self._written = 0
        self._seconds = 0.0

    @property
    def result(self) -> AllocatedBuffer:
        """Return facts about the buffer, including the number of bytes written to it."""
        address = self._buffer.data()
        return AllocatedBuffer(
            device=str(self.device),
            index=self._index,
            size=self._size,
            alignment=address & -address,
            memory=self._memory,
            extents=self._extents,
            written=self._written,
            seconds=self._seconds,
        )

    def run(self, registry: Registry, others: Sequence[Allocation]) -> Iterator[str]:
        """Test the buffer, and yield one sentence for each problem.

        ``others`` are the allocations that already existed on the device before the test.
        """
        began = time.perf_counter()
        self._allocator = registry.get(self.device.type)
        yield from self._address_problems(others)
        self._write(self._size, _GUARD, "guard")
        for plan in self._program.execution_plan:
            if plan.buffer_device(self._index) == self.device:
                yield from self._method_problems(plan)
        if not self._holds(self._size, _GUARD, "guard"):
            yield f"{self.label}: the guard bytes after its end were overwritten"
        self._seconds = time.perf_counter() - began

    def _address_problems(self, others: Sequence[Allocation]) -> Iterator[str]:
        address = self._buffer.data()
        if address % self._alignment:
            yield f"{self.label}: its address {address:#x} is not a multiple of {self._alignment}"
        attributes = self._allocator.pointer_attributes(address)
        self._memory = f"{attributes.kind} ({attributes.source})"
        if attributes.kind != "device":
            yield f"{self.label}: according to {attributes.source}, its address is in {attributes.kind} memory"
        if attributes.device != self.device:
            yield f"{self.label}: according to {attributes.source}, its address is on {attributes.device}"
        end = address + self._buffer.size()
        mine = [item for item in self._allocator.live() if item.address == address and item.index == self.device.index]
        if [(item.address, item.end) for item in mine] != [(address, end)]:
            yield f"{self.label}: the allocator does not know its address"
        around = {item.address: item for item in (*others, *self._allocator.live()) if item not in mine}
        for item in around.values():
            if item.index == self.device.index and item.address < end and address < item.end:
                yield f"{self.label}: it overlaps another allocation of {item.size:,} bytes at {item.address:#x}"

    def _method_problems(self, plan: m.ExecutionPlan) -> Iterator[str]:
        """Test the buffer with the byte ranges that a method uses; yield one sentence for each problem.

        Write each range when its use begins, and read the range back when its use ends.
        """
        extents = _extents(self._program, plan, self._index, self._inputs)
        moments = [(item.start, 1, item) for item in extents] + [(item.end, 0, item) for item in extents]
        for _, begins, item in sorted(moments, key=lambda moment: moment[:2]):
            if begins:
                self._write(item.offset, item.size, item.name)
                self._extents += 1
                self._written += item.size
            elif not self._holds(item.offset, item.size, item.name):
                place = f"{item.size:,} bytes of {item.name} at {item.offset:,}"
                yield f"{self.label}: {place} were read back with other values than written"

    def _write(self, offset: int, size: int, name: str) -> None:
        for start, piece in _pieces(size, name):
            place = self._buffer.data() + offset + start
            self._allocator.copy_host_to_device(place, piece, len(piece), self.device.index)

    def _holds(self, offset: int, size: int, name: str) -> bool:
        for start, piece in _pieces(size, name):
            found = bytearray(len(piece))
            place = self._buffer.data() + offset + start
            self._allocator.copy_device_to_host(found, place, len(piece), self.device.index)
            if found != piece:
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Extent:
    """Bytes of a buffer that are in use from the instant ``start`` (inclusive) to the instant ``end`` (exclusive)."""

    name: str
    """Description of the stored value, such as ``value 3 of method 'forward'``; also the seed of the byte pattern."""
    offset: int
    size: int
    start: int
    end: int


def _extents(program: Program, plan: m.ExecutionPlan, buffer: int, inputs: DelegateInputs | None) -> list[_Extent]:
    """Return the byte ranges that a method uses in a buffer, each with the start and end of its use.

    If the method's data flow cannot be analyzed, return one range for each tensor. In that case, the uses of the ranges
    do not overlap in time.
    """
    known = delegate_inputs(program, plan) if inputs is None else inputs.get(plan.name, {})
    calls = sum(isinstance(call, m.DelegateCall) for call in plan.instructions)
    if calls <= len(known):
        try:
            memory = method_memory(plan, known)
        except LinkError:
            pass
        else:
            return [
                _Extent(_name(plan, item.values[0]), item.offset, item.size, item.start, max(item.end, item.start + 1))
                for item in memory.storages
                if item.memory_id == buffer
            ]
    return [
        _Extent(_name(plan, index), place.memory_offset, tensor.nbytes, index, index + 1)
        for index, tensor in plan.tensors()
        if (place := tensor.allocation_info) is not None and place.memory_id == buffer
    ]


def _name(plan: m.ExecutionPlan, value: int) -> str:
    return f"value {value} of method {plan.name!r}"


def _pieces(size: int, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the byte pattern for ``size`` bytes in pieces, each as ``(offset, bytes)``."""
    pattern = random.Random(name).randbytes(min(size, _PERIOD))
    whole = pattern * min(_PIECE // _PERIOD, size // _PERIOD + 1) if size > _PERIOD else pattern
    for start in range(0, size, _PIECE):
        yield start, whole[: size - start]
