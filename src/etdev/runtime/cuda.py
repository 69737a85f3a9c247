"""Allocator of CUDA memory through torch, which is imported only when a program uses a CUDA device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from etdev.devices import Device, DeviceType
from etdev.errors import MissingRequirementError
from etdev.runtime.allocator import Allocation, DeviceAllocator, MemoryInfo, PointerAttributes
from etdev.runtime.errors import DeviceCopyError, OutOfDeviceMemoryError

if TYPE_CHECKING:
    import torch

_TORCH_ALIGNMENT = 512
"""Alignment in bytes of all addresses from torch's allocator."""
_KINDS = {0: "unregistered", 1: "host", 2: "device", 3: "managed"}
"""Maps a number of CUDA's ``cudaMemoryType`` to the name of that kind of memory."""


def cuda_is_visible() -> bool:
    """Return True if torch is installed and can use a CUDA device."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


class CudaAllocator(DeviceAllocator):
    """Allocator of CUDA memory. Each allocation is a ``uint8`` tensor that stays alive until the allocation is freed.

    ``ordinals`` maps the device indices of a program to CUDA devices of this machine. Several indices can have the same
    CUDA device. By default, index and ordinal are equal.
    """

    def __init__(self, ordinals: Mapping[int, int] | None = None) -> None:
        super().__init__()
        if not cuda_is_visible():
            raise MissingRequirementError(
                "no CUDA device is visible",
                hint="use a machine with a CUDA device, or simulate one: `--device-map cuda:0=sim`",
            )
        self._ordinals = dict(ordinals) if ordinals else None
        self._tensors: dict[int, torch.Tensor] = {}
        """Maps the address of an allocation to its bytes, as a tensor."""

    @property
    def device_type(self) -> DeviceType:
        """Type of CUDA devices."""
        return DeviceType.CUDA

    def device_count(self) -> int:
        """Return the number of devices that programs can use."""
        import torch

        return max(self._ordinals) + 1 if self._ordinals else torch.cuda.device_count()

    def ordinal(self, index: int) -> int:
        """Return the ordinal of the CUDA device on this machine for a program's device index."""
        return self._ordinals.get(index, index) if self._ordinals else index

    def memory_info(self, index: int = 0) -> MemoryInfo:
        """Return the free and total memory; unused memory in torch's cache counts as free."""
        import torch

        ordinal = self.ordinal(index)
        free, total = torch.cuda.mem_get_info(ordinal)
        reserve = torch.cuda.memory_reserved(ordinal) - torch.cuda.memory_allocated(ordinal)
        return MemoryInfo(free + reserve, total)

    def torch_device(self, index: int = 0) -> str:
        """Return the name that torch uses for the CUDA device, such as ``cuda:0``."""
        return f"cuda:{self.ordinal(index)}"

    def _allocate(self, nbytes: int, index: int, alignment: int) -> int:
        import torch

        slack = alignment if alignment > _TORCH_ALIGNMENT else 0
        try:
            tensor = torch.empty(nbytes + slack, dtype=torch.uint8, device=self.torch_device(index))
        except torch.OutOfMemoryError as error:
            free = self.memory_info(index).free
            raise OutOfDeviceMemoryError(self._device(index), nbytes, free, cause=str(error).split(". ")[0]) from error
        start = -tensor.data_ptr() % alignment if slack else 0
        self._tensors[tensor.data_ptr() + start] = tensor[start : start + nbytes]
        return tensor.data_ptr() + start

    def _deallocate(self, allocation: Allocation) -> None:
        del self._tensors[allocation.address]

    def _copy_host_to_device(self, dst_address: int, source: memoryview, index: int) -> None:
        import torch

        from etdev.runtime.hostmem import quiet_read_only

        with quiet_read_only():
            host = torch.frombuffer(source, dtype=torch.uint8)
        self._copy(self._device_tensor(dst_address, len(source)), host, index)

    def _copy_device_to_host(self, target: memoryview, src_address: int, index: int) -> None:
        import torch

        self._copy(torch.frombuffer(target, dtype=torch.uint8), self._device_tensor(src_address, len(target)), index)

    def _copy(self, target: torch.Tensor, source: torch.Tensor, index: int) -> None:
        try:
            target.copy_(source)
        except RuntimeError as error:
            free = self.memory_info(index).free
            device = self._device(index)
            raise DeviceCopyError(
                f"cannot copy {target.numel()} bytes between host and {device} ({free} bytes free): {error}"
            ) from error

    def _device_tensor(self, address: int, nbytes: int) -> torch.Tensor:
        import torch

        start = max(known for known in self._tensors if known <= address)
        held = self._tensors[start]
        if not nbytes:
            return held[:0]
        # A storage of its own: torch views a slice as another type only at multiples of the element size.
        begin = held.storage_offset() + address - start
        storage = held.untyped_storage()[begin : begin + nbytes]
        return torch.empty(0, dtype=torch.uint8, device=held.device).set_(storage)

    def _pointer_attributes(self, address: int) -> PointerAttributes:
        for ask in (_from_bindings, _from_library):
            found = ask(address)
            if found is not None:
                kind, ordinal, source = found
                return PointerAttributes(self._as_program(address, ordinal), kind, source)
        start = max(known for known in self._tensors if known <= address)
        ordinal = self._tensors[start].device.index
        return PointerAttributes(self._as_program(address, ordinal), "device", "torch")

    def _as_program(self, address: int, ordinal: int) -> Device:
        """Return the program's device for an address on the CUDA device ``ordinal``.

        Several devices of the program can be the same CUDA device. The allocation at the address determines the
        program's device.
        """
        for allocation in self.live():
            if allocation.address <= address < allocation.end and self.ordinal(allocation.index) == ordinal:
                return self._device(allocation.index)
        return self._device(ordinal)


def _from_bindings(address: int) -> tuple[str, int, str] | None:
    """Ask the package ``cuda-bindings`` for the kind, ordinal and source of an address; return None if this fails."""
    try:
        from cuda.bindings import runtime  # type: ignore[import-not-found]
    except ImportError:
        return None
    error, attributes = runtime.cudaPointerGetAttributes(address)
    if int(error):
        return None
    return _KINDS.get(int(attributes.type), "unknown"), int(attributes.device), "cuda-bindings"


class _Attributes(ctypes.Structure):
    """C struct ``cudaPointerAttributes``, with space for fields of later CUDA versions."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_void_p),
        ("host_pointer", ctypes.c_void_p),
        ("more", ctypes.c_long * 16),
    )


def _from_library(address: int) -> tuple[str, int, str] | None:
    """Ask CUDA's runtime library for the kind, ordinal and source of an address; return None if this fails."""
    ask = _runtime_function()
    attributes = _Attributes()
    if ask is None or ask(ctypes.byref(attributes), ctypes.c_void_p(address)):
        return None
    return _KINDS.get(attributes.type, "unknown"), attributes.device, "libcudart"


def _runtime_function() -> Callable[..., Any] | None:
    import torch

    version = (torch.version.cuda or "").partition(".")[0]
    if not version:
        return None
    try:
        found: Callable[..., Any] = ctypes.CDLL(f"libcudart.so.{version}").cudaPointerGetAttributes
    except (OSError, AttributeError):
        return None
    return found
