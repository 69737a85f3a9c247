"""The allocating half of CUDA allocation verification, on simulated devices (A2, A6, A9, E4)."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from etdev.devices import DeviceType
from etdev.errors import EtdevError
from etdev.program import Program
from etdev.program import model as m
from etdev.runtime.allocator import PointerAttributes, Registry
from etdev.runtime.errors import NoAllocatorError, OutOfDeviceMemoryError
from etdev.runtime.simulated import Fault, Operation, SimulatedDevice
from etdev.verification import allocations
from etdev.verification.allocations import Allocations, check_allocations
from support.files import chain
from support.on_devices import across, two_devices, two_devices_plan

GUARD = 256


def check(found: Program, device: SimulatedDevice, *, alignment: int = 16) -> Allocations:
    """Whatever comes of it, nothing stays allocated."""
    registry = Registry()
    registry.register(device)
    try:
        return check_allocations(found, registry, alignment=alignment, inputs={"forward": {1: 1, 5: 1}})
    finally:
        assert device.counters.live_allocations == 0


def test_every_buffer_is_written_and_read_back() -> None:
    device = SimulatedDevice(count=2, capacity=4096)

    found = check(two_devices(), device, alignment=512)

    assert found.problems == ()
    assert [(item.device, item.index, item.size, item.extents, item.written) for item in found.buffers] == [
        ("cuda:0", 2, 32, 2, 32),
        ("cuda:1", 3, 32, 2, 32),
    ]
    assert all(item.memory == "device (simulated)" and item.alignment >= 512 for item in found.buffers)
    assert [(item.free_before, item.free_during, item.free_after) for item in found.devices] == [
        (4096, 4096 - 32 - GUARD, 4096)
    ] * 2
    assert device.counters.allocations == 4  # Both buffers, and one of each device before anything is counted.


def test_a_program_of_the_host_allocates_nothing() -> None:
    device = SimulatedDevice()

    assert check(chain(3), device) == Allocations()
    assert device.counters.allocations == 0


def planned(value: int, offset: int) -> Program:
    """:func:`two_devices` with a tensor elsewhere in its buffer."""
    plan = two_devices_plan()
    values = list(plan.values)
    tensor = values[value]
    assert isinstance(tensor, m.Tensor)
    assert tensor.allocation_info is not None
    values[value] = replace(tensor, allocation_info=replace(tensor.allocation_info, memory_offset=offset))
    return across(replace(plan, values=tuple(values)))


def test_what_lies_over_a_neighbour_in_use_is_found() -> None:
    (problem,) = check(planned(2, 8), SimulatedDevice(count=2)).problems

    assert problem == (
        "buffer 2 on cuda:0: 16 bytes of value 1 of method 'forward' at 0 were read back with other values than written"
    )


def test_what_is_not_followed_is_checked_one_tensor_at_a_time() -> None:
    registry = Registry()
    registry.register(SimulatedDevice(count=2))

    found = check_allocations(two_devices(), registry, alignment=16, inputs={})

    assert [(item.extents, item.written) for item in found.buffers] == [(2, 32), (2, 32)]
    assert found.problems == ()


def test_the_largest_of_all_methods_is_allocated() -> None:
    large = replace(two_devices_plan("large"), non_const_buffer_sizes=(0, 64, 1024, 32))

    found = check(across(two_devices_plan(), large), SimulatedDevice(count=2))

    assert [(item.size, item.extents) for item in found.buffers] == [(1024, 4), (32, 4)]


def test_large_tensors_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocations, "_PERIOD", 3)
    monkeypatch.setattr(allocations, "_PIECE", 9)
    device = SimulatedDevice(count=2)

    assert check(two_devices(), device).problems == ()
    assert device.counters.host_to_device_copies > 2 * (4 + 32 // 9)
    (problem,) = check(planned(2, 8), SimulatedDevice(count=2)).problems
    assert "value 1" in problem


class Overrunning(SimulatedDevice):
    """Copies one byte more than it is told to."""

    def _copy_host_to_device(self, dst_address: int, source: memoryview, index: int) -> None:
        super()._copy_host_to_device(dst_address, source, index)
        if len(source) == 16:
            self.device_view(dst_address + len(source), 1, index)[:] = b"\0"


class Managed(SimulatedDevice):
    """Gives memory of another kind than it should."""

    def _pointer_attributes(self, address: int) -> PointerAttributes:
        return replace(super()._pointer_attributes(address), kind="managed")


class Forgetful(SimulatedDevice):
    """Loses what is written to it."""

    def _copy_host_to_device(self, dst_address: int, source: memoryview, index: int) -> None:
        pass


class Overlapping(SimulatedDevice):
    """Says that a part of what it gave is somebody else's."""

    def live(self) -> tuple:
        return tuple(part for item in super().live() for part in (item, replace(item, address=item.address + 8)))


@pytest.mark.parametrize(
    ("device", "said"),
    [
        (Overrunning(count=2), "buffer 2 on cuda:0: the guard bytes after its end were overwritten"),
        (Managed(count=2), "buffer 2 on cuda:0: according to simulated, its address is in managed memory"),
        (
            Forgetful(count=2),
            ("16 bytes of value 1 of method 'forward' at 0 were read back with other values than written"),
        ),
        (Overlapping(count=2), "buffer 2 on cuda:0: it overlaps another allocation of 288 bytes at"),
        (
            SimulatedDevice(count=2, faults=[Fault("wrong_device", nth=3)]),
            "288 bytes were allocated on cuda:1 instead of cuda:0 (simulated)",
        ),
        (SimulatedDevice(count=2, faults=[Fault("copy_host_to_device", nth=5)]), "copy_host_to_device of"),
        (SimulatedDevice(count=2, faults=[Fault("copy_device_to_host", nth=2)]), "copy_device_to_host of"),
    ],
)
def test_a_device_that_does_not_keep_its_word(device: SimulatedDevice, said: str) -> None:
    found = check(two_devices(), device)

    assert any(said in problem for problem in found.problems), found.problems


@pytest.mark.parametrize("nth", range(1, 15))
@pytest.mark.parametrize("operation", ["allocate", "copy_host_to_device", "copy_device_to_host", "wrong_device"])
def test_every_failure_frees_everything_and_says_what_it_was_about(operation: Operation, nth: int) -> None:
    device = SimulatedDevice(count=2, faults=[Fault(operation, nth)])

    try:
        said = check(two_devices(), device).problems
    except EtdevError as error:
        said = (str(error),)

    assert device.operations(operation) > 0
    for problem in said:
        assert re.search(r"(planned buffer \d|first bytes) on cuda:[01]: .*\b\d+ bytes\b.*\b\d+ bytes free", problem)
    assert said or device.operations(operation) < nth


def test_too_little_memory_is_the_machines_fault() -> None:
    with pytest.raises(OutOfDeviceMemoryError) as caught:
        check(two_devices(), SimulatedDevice(count=2, capacity=280))

    assert (caught.value.exit_code, caught.value.asked, caught.value.free) == (3, 288, 280)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(NoAllocatorError):
        check_allocations(two_devices(), Registry(), alignment=16)
    assert DeviceType.CUDA not in Registry().types()
