"""CUDA memory through torch (A2): its books on a stand-in for the device here, everything on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch

from etdev.devices import Device, DeviceType
from etdev.errors import MissingRequirementError
from etdev.runtime import cuda
from etdev.runtime.allocator import PointerAttributes, Registry
from etdev.runtime.cuda import CudaAllocator
from etdev.runtime.errors import DeviceMemoryError, OutOfDeviceMemoryError
from etdev.runtime.host import HostAllocator
from etdev.runtime.method import load_method
from etdev.runtime.replay import ReplayRuntime
from support.on_devices import two_devices

X = torch.linspace(-2, 2, 4)
FREE, TOTAL = 1 << 20, 1 << 21


@dataclass
class Driver:
    """What the stand-in says of an address."""

    kind: str = "device"
    ordinal: int = 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Tensors of the host take the place of those of CUDA."""
    found = Driver()
    monkeypatch.setattr(cuda, "cuda_is_visible", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda ordinal: (FREE, TOTAL))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda ordinal: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda ordinal: 0)
    monkeypatch.setattr(CudaAllocator, "torch_device", lambda self, index=0: "cpu")
    monkeypatch.setattr(cuda, "_from_bindings", lambda address: (found.kind, found.ordinal, "cuda-bindings"))
    return found


def test_without_a_device_there_is_no_allocator_and_a_remedy() -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is visible")
    with pytest.raises(MissingRequirementError, match="no CUDA device is visible") as caught:
        CudaAllocator()
    assert "--device-map cuda:0=sim" in str(caught.value)


def test_memory_is_kept_until_it_is_freed(driver: Driver) -> None:
    allocator = CudaAllocator()
    address = allocator.allocate(64)
    allocator.copy_host_to_device(address + 8, b"12345678", 8)
    back = bytearray(8)
    allocator.copy_device_to_host(back, address + 8, 8)
    assert back == b"12345678"
    assert bytes(allocator.device_tensor(address + 8, 8).tolist()) == b"12345678"
    allocator.deallocate(address)
    with pytest.raises(DeviceMemoryError):
        allocator.device_tensor(address, 8)
    assert (allocator.counters.live_allocations, allocator._tensors) == (0, {})


def test_an_alignment_beyond_that_of_torch_is_kept(driver: Driver) -> None:
    allocator = CudaAllocator()
    assert allocator.allocate(100, 0, 4096) % 4096 == 0


def test_more_than_is_free_is_not_asked_of_torch(driver: Driver) -> None:
    with pytest.raises(OutOfDeviceMemoryError, match=f"{FREE} bytes free"):
        CudaAllocator().allocate(FREE + 1)


def test_one_device_may_stand_for_several(driver: Driver) -> None:
    allocator = CudaAllocator({0: 0, 1: 0})
    addresses = [allocator.allocate(64, index) for index in (0, 1)]
    assert [allocator.pointer_attributes(address) for address in addresses] == [
        PointerAttributes(Device(DeviceType.CUDA, index), "device", "cuda-bindings") for index in (0, 1)
    ]


def test_memory_that_the_driver_says_is_elsewhere_is_refused(driver: Driver) -> None:
    driver.ordinal = 1
    allocator = CudaAllocator()
    with pytest.raises(DeviceMemoryError, match=r"allocated on cuda:1 instead of cuda:0 \(cuda-bindings\)"):
        allocator.allocate(64)
    assert allocator.counters.live_allocations == 0


def test_a_program_runs_on_the_stand_in(driver: Driver) -> None:
    registry = Registry(HostAllocator(), CudaAllocator({0: 0, 1: 0}))
    with load_method(two_devices(), registry=registry) as loaded:
        torch.testing.assert_close(loaded.execute((X,)), (X.sin().sin().sin(),))


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 64), (2, 8), (7, 16), (64, 0)])
@pytest.mark.parametrize("alignment", [16, 1024])
def test_device_tensors_can_be_viewed_at_any_offset(driver: Driver, offset: int, nbytes: int, alignment: int) -> None:
    """A float32 view at offset 2 was refused."""
    _views(CudaAllocator(), offset, nbytes, alignment)


@pytest.mark.hardware
@pytest.mark.parametrize(("offset", "nbytes"), [(0, 64), (4, 8)])
def test_device_tensors_of_a_real_device_can_be_viewed(offset: int, nbytes: int) -> None:
    with _unchanged_memory():
        _views(CudaAllocator(), offset, nbytes, 1024)


def _views(allocator: CudaAllocator, offset: int, nbytes: int, alignment: int) -> None:
    address = allocator.allocate(64, 0, alignment)
    content = bytes(range(64))
    allocator.copy_host_to_device(address, content, 64)
    found = allocator.device_tensor(address + offset, nbytes)
    assert bytes(found.cpu().tolist()) == content[offset : offset + nbytes]
    floats = found.view(torch.float32)
    floats.zero_()
    back = bytearray(64)
    allocator.copy_device_to_host(back, address, 64)
    assert bytes(back) == content[:offset] + bytes(nbytes) + content[offset + nbytes :]
    del found, floats
    allocator.deallocate(address)


@contextmanager
def _unchanged_memory() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    yield
    assert torch.cuda.memory_allocated() == before


@pytest.mark.hardware
def test_memory_of_a_real_device_is_where_it_was_asked_and_comes_back() -> None:
    allocator = CudaAllocator()
    with _unchanged_memory():
        free = allocator.memory_info().free
        address = allocator.allocate(1 << 20, 0, 1024)
        attributes = allocator.pointer_attributes(address)
        assert (attributes.device, attributes.kind) == (Device(DeviceType.CUDA, 0), "device")
        assert attributes.source in ("cuda-bindings", "libcudart", "torch")
        assert address % 1024 == 0
        data = torch.arange(256, dtype=torch.uint8)
        allocator.copy_host_to_device(address + 100, data, 256)
        back = torch.empty_like(data)
        allocator.copy_device_to_host(back, address + 100, 256)
        assert torch.equal(back, data)
        assert allocator.memory_info().free <= free
        allocator.deallocate(address)


@pytest.mark.hardware
def test_a_program_runs_on_a_real_device() -> None:
    registry = Registry(HostAllocator(), CudaAllocator({0: 0, 1: 0}))
    with _unchanged_memory(), ReplayRuntime(registry=registry) as runtime:
        runtime.load(two_devices())
        for _ in range(2):
            torch.testing.assert_close(runtime.call("forward", (X,), fresh=True), (X.sin().sin().sin(),))
        runtime.close()
