"""Memory of devices: allocators (A2), the registry (A3), buffers with one owner (A6), the memory manager (A8)."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from etdev.devices import HOST, Device, DeviceType
from etdev.errors import EtdevError, MissingRequirementError, UsageError
from etdev.runtime.allocator import DEFAULT_REGISTRY, DeviceAllocator, Registry, get_device_allocator
from etdev.runtime.device_map import SIMULATED, parse_device_map, registry_for
from etdev.runtime.errors import DeviceCopyError, DeviceMemoryError, NoAllocatorError, OutOfDeviceMemoryError
from etdev.runtime.host import HostAllocator
from etdev.runtime.memory import DeviceMemoryBuffer, HierarchicalAllocator, MemoryManager, Span
from etdev.runtime.orchestrator.arrays import WorkerArray
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.orchestrator.worker import Worker
from etdev.runtime.planned import PlannedMemory
from etdev.runtime.simulated import Fault, SimulatedDevice
from etdev.runtime.tensors import DeviceTensor

ALLOCATORS: dict[str, Callable[[], DeviceAllocator]] = {
    "host": HostAllocator,
    "simulated": lambda: SimulatedDevice(capacity=1 << 16),
}


@pytest.fixture(scope="module", autouse=True)
def _collections_look_at_these_tests_only() -> None:
    gc.freeze()


@pytest.fixture(params=ALLOCATORS)
def allocator(request: pytest.FixtureRequest) -> DeviceAllocator:
    return ALLOCATORS[request.param]()


def test_what_is_copied_to_a_device_comes_back(allocator: DeviceAllocator) -> None:
    address = allocator.allocate(64, 0)
    allocator.copy_host_to_device(address + 16, bytes(range(32)), 32, 0)
    back = torch.zeros(8, dtype=torch.int32)
    allocator.copy_device_to_host(back, address + 16, 32, 0)
    assert back.numpy().tobytes() == bytes(range(32))
    counters = allocator.counters
    assert (counters.host_to_device_copies, counters.host_to_device_bytes) == (1, 32)
    assert (counters.device_to_host_copies, counters.device_to_host_bytes) == (1, 32)


@pytest.mark.parametrize("alignment", [1, 16, 64, 4096])
def test_addresses_are_aligned_as_asked(allocator: DeviceAllocator, alignment: int) -> None:
    assert not [n for n in (1, 3, 100) if allocator.allocate(n, 0, alignment) % alignment]


def test_live_allocations_do_not_overlap(allocator: DeviceAllocator) -> None:
    for size in (1, 100, 17, 4000):
        allocator.allocate(size)
    live = allocator.live()
    assert len(live) == 4
    assert all(one.end <= other.address for one, other in pairwise(live))


def test_a_planned_buffer_is_addressed_by_number_and_offset(allocator: DeviceAllocator) -> None:
    allocator.init_buffer(1, 64, 0)
    start = allocator.get_offset_address(1, 0, 64, 0)
    assert allocator.get_offset_address(1, 48, 16, 0) == start + 48
    for offset, size in ((48, 17), (-1, 4), (65, 0)):
        with pytest.raises(DeviceMemoryError, match="planned buffer 1"):
            allocator.get_offset_address(1, offset, size, 0)
    with pytest.raises(UsageError, match="already exists"):
        allocator.init_buffer(1, 64, 0)
    allocator.release_buffer(1, 0)
    assert allocator.counters.live_allocations == 0
    with pytest.raises(UsageError, match="no planned buffer 1"):
        allocator.get_offset_address(1, 0, 1, 0)


MISUSES: dict[str, Callable[[DeviceAllocator, int], object]] = {
    "beyond the end": lambda it, at: it.copy_host_to_device(at + 1, bytes(64), 64, 0),
    "before the beginning": lambda it, at: it.copy_host_to_device(at - 1, bytes(4), 4, 0),
    "freed twice": lambda it, at: (it.deallocate(at, 0), it.deallocate(at, 0)),
    "read after it was freed": lambda it, at: (it.deallocate(at, 0), it.copy_device_to_host(bytearray(4), at, 4, 0)),
    "freed in the middle": lambda it, at: it.deallocate(at + 16, 0),
    "no such device": lambda it, at: it.allocate(4, 9),
    "no bytes": lambda it, at: it.allocate(0, 0),
    "odd alignment": lambda it, at: it.allocate(4, 0, 24),
    "more than the host has": lambda it, at: it.copy_host_to_device(at, bytes(3), 4, 0),
    "read-only host memory": lambda it, at: it.copy_device_to_host(bytes(4), at, 4, 0),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_is_an_error(allocator: DeviceAllocator, misuse: str) -> None:
    address = allocator.allocate(64, 0)
    with pytest.raises(EtdevError):
        MISUSES[misuse](allocator, address)


def test_memory_of_another_device_of_the_type_is_not_found() -> None:
    device = SimulatedDevice(count=2)
    address = device.allocate(16, 1)
    with pytest.raises(DeviceMemoryError, match="cuda:0"):
        device.copy_host_to_device(address, bytes(16), 16, 0)
    assert device.pointer_attributes(address).device == Device(DeviceType.CUDA, 1)


def test_each_simulated_device_has_its_own_capacity_and_says_what_is_free() -> None:
    device = SimulatedDevice(count=2, capacity=100)
    device.allocate(60, 0)
    device.allocate(100, 1)
    with pytest.raises(OutOfDeviceMemoryError, match="cuda:0 cannot allocate 41 bytes: 40 bytes free") as caught:
        device.allocate(41, 0)
    assert (caught.value.device, caught.value.asked, caught.value.free) == (Device(DeviceType.CUDA, 0), 41, 40)


def test_a_simulated_address_is_never_used_again() -> None:
    device = SimulatedDevice()
    first = device.allocate(16)
    device.deallocate(first)
    assert device.allocate(16) != first


@pytest.mark.parametrize(
    ("operation", "nth"), [("allocate", 2), ("copy_host_to_device", 1), ("copy_device_to_host", 3)]
)
def test_the_operation_that_is_told_to_fail_fails_and_no_other(operation: str, nth: int) -> None:
    device = SimulatedDevice(faults=[Fault(operation, nth)])  # type: ignore[arg-type]
    failed = []
    for number in range(1, 5):
        try:
            address = device.allocate(4)
            device.copy_host_to_device(address, b"1234", 4)
            device.copy_device_to_host(bytearray(4), address, 4)
        except (OutOfDeviceMemoryError, DeviceCopyError):
            failed.append(number)
    assert failed == [nth]


def test_memory_on_the_wrong_device_is_given_back_and_reported() -> None:
    device = SimulatedDevice(faults=[Fault("wrong_device")])
    with pytest.raises(DeviceMemoryError, match="allocated on cuda:1 instead of cuda:0"):
        device.allocate(16)
    assert device.counters.live_allocations == 0


def test_a_type_has_one_allocator_and_a_second_is_refused() -> None:
    registry = Registry(SimulatedDevice())
    with pytest.raises(UsageError, match="CUDA already has an allocator"):
        registry.register(SimulatedDevice())
    registry.unregister(DeviceType.CUDA)
    with pytest.raises(NoAllocatorError, match="no allocator for CUDA devices"):
        registry.get(DeviceType.CUDA)


def test_a_registry_is_itself_again_after_a_replacement() -> None:
    first, second = SimulatedDevice(), SimulatedDevice()
    registry = Registry(first)
    with registry.replaced(second, HostAllocator()):
        assert registry.get(DeviceType.CUDA) is second
    assert registry.get(DeviceType.CUDA) is first
    assert registry.types() == (DeviceType.CUDA,)


def test_the_host_has_an_allocator_from_the_start() -> None:
    assert isinstance(get_device_allocator(DeviceType.CPU), HostAllocator)
    assert DeviceType.CPU in DEFAULT_REGISTRY.types()


def test_a_buffer_is_freed_once_however_it_ends() -> None:
    device = SimulatedDevice()
    registry = Registry(device)
    with DeviceMemoryBuffer.create(32, DeviceType.CUDA, registry=registry) as buffer:
        assert buffer.as_span() == Span(buffer.data(), 32)
        assert device.counters.live_bytes == 32
    buffer.close()
    buffer.close()
    assert (device.counters.frees, buffer.data(), buffer.size()) == (1, 0, 0)
    lost = DeviceMemoryBuffer.create(32, DeviceType.CUDA, registry=registry)
    assert device.counters.live_allocations == 1
    del lost
    gc.collect()
    assert (device.counters.frees, device.counters.live_allocations) == (2, 0)


COPIES: dict[str, Callable[[object], object]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "in a list": lambda owner: copy.deepcopy([owner]),
}


def owners() -> dict[str, Callable[[Registry], object]]:
    """Objects that own memory, or provide it."""
    one = Device(DeviceType.CUDA, 0)
    return {
        "buffer": lambda registry: DeviceMemoryBuffer.create(32, DeviceType.CUDA, registry=registry),
        "allocator": lambda registry: registry.get(DeviceType.CUDA),
        "host": lambda registry: registry.get(DeviceType.CPU),
        "tensor": lambda registry: DeviceTensor.upload(torch.ones(4), one, registry=registry),
        "planned": lambda registry: PlannedMemory({(one, 0): 32}, registry, "method"),
        "array": lambda registry: WorkerArray(registry.get(DeviceType.CUDA), 0, 0, "uint8", (0,), writable=True),
        "worker": lambda _: Worker(0, WorkerSpec("sim")),
    }


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("owner", owners())
def test_what_owns_memory_is_neither_copied_nor_pickled(owner: str, how: str) -> None:
    """A6: a copy would keep an address that is freed with the original, or free it twice."""
    device = SimulatedDevice()
    made = owners()[owner](Registry(device, HostAllocator()))
    with pytest.raises(UsageError, match=r"owns memory, so it cannot be (copied|pickled)"):
        COPIES[how](made)
    del made
    gc.collect()
    assert device.counters.live_allocations == 0


def test_a_buffer_is_handed_on() -> None:
    """The object owns the memory, however often it is handed on."""
    device = SimulatedDevice()
    first = DeviceMemoryBuffer.create(32, DeviceType.CUDA, registry=Registry(device))
    second = first
    del first
    gc.collect()
    assert device.counters.live_allocations == 1
    second.close()
    assert device.counters.live_allocations == 0


def test_an_empty_buffer_allocates_and_frees_nothing() -> None:
    device = SimulatedDevice()
    with DeviceMemoryBuffer.create(0, DeviceType.CUDA, registry=Registry(device)), DeviceMemoryBuffer():
        pass
    assert (device.counters.allocations, device.counters.frees) == (0, 0)


def test_a_buffer_needs_an_allocator_of_its_type() -> None:
    with pytest.raises(NoAllocatorError):
        DeviceMemoryBuffer.create(16, DeviceType.CUDA, registry=Registry(HostAllocator()))


def test_a_manager_without_devices_is_that_of_the_host() -> None:
    assert not MemoryManager().has_device_memory()
    plain = MemoryManager(HierarchicalAllocator([Span(64, 32)]))
    assert (plain.has_device_memory(), plain.planned_buffer_devices()) == (False, ())
    devices = (HOST, Device(DeviceType.CUDA, 1))
    mixed = MemoryManager(HierarchicalAllocator([Span(64, 32), Span(1 << 60, 16)], devices))
    assert (mixed.has_device_memory(), mixed.planned_buffer_devices()) == (True, devices)


def test_a_hierarchical_allocator_only_computes_addresses() -> None:
    planned = HierarchicalAllocator([Span(64, 32), Span(1 << 60, 16)])
    assert planned.get_offset_address(1, 8, 8) == (1 << 60) + 8
    for memory_id, offset, size in ((1, 8, 9), (0, -1, 1)):
        with pytest.raises(DeviceMemoryError):
            planned.get_offset_address(memory_id, offset, size)
    with pytest.raises(UsageError, match="no planned buffer 2"):
        planned.get_offset_address(2, 0, 0)
    with pytest.raises(UsageError, match="there are 2 planned buffers, but 1 devices"):
        HierarchicalAllocator([Span(64, 32), Span(96, 32)], [HOST])


def test_a_device_map_says_what_stands_for_what() -> None:
    found = parse_device_map(" cuda:0 = sim, CUDA:2=sim")
    assert found == {Device(DeviceType.CUDA, 0): SIMULATED, Device(DeviceType.CUDA, 2): SIMULATED}
    assert registry_for(found).get(DeviceType.CUDA).device_count() == 3
    assert parse_device_map("cuda:1=cuda:0") == {Device(DeviceType.CUDA, 1): "cuda:0"}


@pytest.mark.parametrize(
    "text",
    [
        "cuda:0",
        "cuda:0=",
        "=sim",
        "",
        " ",
        ",",
        "cuda:0=sim,",
        "cuda:0=sim,,cuda:1=sim",
        "gpu=sim",
        "cpu=sim",
        "cuda:0=cpu",
        "cuda:0=simm",
        "cuda=sim,cuda:0=sim",
        "cuda:0=sim,cuda:1=cuda:1",
    ],
)
def test_a_device_map_that_says_nothing_clear_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_device_map(text)


def test_the_layer_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from etdev.runtime import allocator, cuda, device_map, host, memory, meta, simulated\n"
        "from etdev.devices import DeviceType\n"
        "registry = device_map.registry_for(device_map.parse_device_map('cuda:0=sim'))\n"
        "with memory.DeviceMemoryBuffer.create(8, DeviceType.CUDA, registry=registry) as buffer:\n"
        "    buffer.allocator.copy_host_to_device(buffer.data(), b'12345678', 8)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_map_to_a_device_that_is_not_there_says_what_to_do() -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is visible")
    with pytest.raises(MissingRequirementError, match="no CUDA device is visible"):
        registry_for(parse_device_map("cuda:1=cuda:0"))


def test_no_bytes_need_no_memory() -> None:
    """A simulated device held an empty tensor and nothing else: its address was 0, which is in no allocation."""
    allocator = SimulatedDevice()
    assert allocator.device_tensor(0, 0).numel() == 0
    allocator.copy_host_to_device(0, torch.empty(0), 0)
    allocator.copy_device_to_host(torch.empty(0), 0, 0)
    with pytest.raises(DeviceMemoryError, match="are not in one allocation"):
        allocator.device_tensor(0, 1)
