"""Tensors of a loaded method, and their memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from etdev.devices import HOST, Device
from etdev.program import model as m
from etdev.runtime.allocator import DeviceAllocator, DistantAllocator
from etdev.runtime.errors import RunError, refuse_write
from etdev.runtime.interpreter.layout import strides, torch_dtype

if TYPE_CHECKING:
    import torch


Pattern = bytes
"""Bytes that are repeated to fill memory."""


class ForeignMemoryError(RunError):
    """Error for code that accesses the memory of another device."""


def fill_bytes(target: torch.Tensor, pattern: Pattern) -> None:
    """Fill a tensor of bytes with a repeated pattern."""
    for first, byte in enumerate(pattern):
        target[first :: len(pattern)].fill_(byte)


class Memory:
    """Contiguous memory of one device.

    Code that runs on this device accesses the memory with :meth:`bytes`. Other code copies the memory with
    ``allocator``. Temporary memory and the memory of PyTorch tensors have no allocator.
    """

    __slots__ = ("_bytes", "address", "allocator", "device", "size", "writable")

    def __init__(
        self,
        device: Device,
        address: int,
        size: int,
        *,
        allocator: DeviceAllocator | None = None,
        tensor: torch.Tensor | None = None,
        writable: bool = True,
    ) -> None:
        self.writable = writable
        self.device, self.address, self.size, self.allocator = device, address, size, allocator
        self._bytes = tensor

    @classmethod
    def of(cls, tensor: torch.Tensor, device: Device = HOST) -> Memory:
        """Return the memory of a dense PyTorch tensor; the result keeps the tensor alive."""
        import torch

        flat = tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8) if tensor.numel() else tensor
        return cls(device, tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor=flat)

    def bytes(self, at: Device) -> torch.Tensor:
        """Return the memory's bytes as a ``uint8`` tensor, for use by code that runs on the device ``at``.

        Raise an error if ``at`` is not the device of this memory.
        """
        if at != self.device:
            raise ForeignMemoryError(f"code on {at} cannot access memory of {self.device}")
        if self._bytes is None:
            assert self.allocator is not None
            found = self.allocator.device_tensor(self.address, self.size, self.device.index)
            from etdev.runtime.readonly_tensor import ReadOnlyTensor

            self._bytes = found if self.writable else ReadOnlyTensor(found)
        return self._bytes

    def check_writable(self) -> None:
        """Raise an error if the memory is read-only; call this method before an allocator writes to the memory."""
        if not self.writable:
            raise refuse_write()

    def fill(self, start: int, end: int, pattern: Pattern) -> None:
        """Fill bytes ``start`` to ``end`` (exclusive) with a repeated pattern."""
        self.check_writable()
        if isinstance(self.allocator, DistantAllocator):
            self.allocator.fill(self.address + start, end - start, pattern, self.device.index)
        else:
            fill_bytes(self.bytes(self.device)[start:end], pattern)


class RunTensor:
    """A tensor of a loaded method; its sizes and memory can change at run time."""

    __slots__ = ("capacity", "constant", "declared", "device", "dim_order", "memory", "offset", "sizes", "value")

    def __init__(self, value: int, tensor: m.Tensor, device: Device) -> None:
        self.value, self.declared, self.device = value, tensor, device
        """Index of the tensor in the file, the file's description of the tensor, and the tensor's device."""
        self.sizes: tuple[int, ...] = tensor.sizes
        self.dim_order = tensor.dim_order
        self.constant = tensor.is_constant
        self.memory: Memory | None = None
        self.offset = 0
        """Offset of the tensor's first byte in ``memory``."""
        unbounded = tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND
        self.capacity: int | None = None if unbounded else tensor.nbytes
        """Maximum number of bytes; None if unbounded."""
        if unbounded:
            self.sizes = (0,) * len(tensor.sizes)

    @property
    def nbytes(self) -> int:
        """Number of bytes at the current sizes."""
        return prod(self.sizes) * self.declared.scalar_type.itemsize

    @property
    def is_static(self) -> bool:
        """True if the sizes never change."""
        return self.declared.is_static

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return torch_dtype(self.declared.scalar_type)

    @property
    def start(self) -> int:
        """Address of the first byte."""
        assert self.memory is not None
        return self.memory.address + self.offset

    @property
    def _misaligned(self) -> bool:
        """True if the address is not a multiple of the element size. PyTorch cannot access such a tensor directly."""
        return self.start % self.declared.scalar_type.itemsize != 0

    def overlaps(self, other: RunTensor) -> bool:
        """Return True if the two tensors have a byte in common."""
        if self.memory is None or other.memory is None or self.memory.device != other.memory.device:
            return False
        return self.start < other.start + other.nbytes and other.start < self.start + self.nbytes

    def same_bytes(self, other: RunTensor) -> bool:
        """Return True if the two tensors are stored in exactly the same bytes of memory."""
        return self.overlaps(other) and self.start == other.start and self.nbytes == other.nbytes

    def describe(self) -> str:
        """Describe the tensor for messages, such as ``value 17 (FLOAT [2, 3])``."""
        return f"value {self.value} ({self.declared.scalar_type.name} {list(self.sizes)})"

    def resize(self, sizes: Sequence[int]) -> None:
        """Set the current sizes; raise :class:`RunError` if the tensor is static or has too few planned bytes."""
        sizes = tuple(sizes)
        if sizes == self.sizes:
            return
        if self.is_static:
            raise RunError(f"{self.describe()} is static, so it cannot be resized to {list(sizes)}")
        if len(sizes) != len(self.sizes):
            raise RunError(f"{self.describe()} cannot be resized to {list(sizes)}: the number of dimensions differs")
        needed = prod(sizes) * self.declared.scalar_type.itemsize
        if self.capacity is not None and needed > self.capacity:
            raise RunError(
                f"{self.describe()} cannot be resized to {list(sizes)}: it would need {needed} bytes, but only "
                f"{self.capacity} are planned"
            )
        self.sizes = sizes

    def place(self, memory: Memory, offset: int = 0) -> None:
        """Set the tensor's memory, and the offset of the tensor's first byte in that memory."""
        if memory.device != self.device:
            raise ForeignMemoryError(
                f"{self.describe()} is declared on {self.device}, but placed in memory of {memory.device}"
            )
        self.memory, self.offset = memory, offset

    def view(self, at: Device) -> torch.Tensor:
        """Return the tensor's content, for use by code that runs on the device ``at``; a copy if misaligned."""
        import torch

        if not self.nbytes:
            return torch.empty(self.sizes, dtype=self.dtype, device=self._torch_device(at))
        found = self.raw(at)
        if self._misaligned:
            found = found.clone()
        return found.view(self.dtype).as_strided(self.sizes, strides(self.sizes, self.dim_order))

    def write(self, at: Device, content: torch.Tensor) -> None:
        """Convert ``content`` to the tensor's element type, and write it to the tensor.

        ``at`` is the device on which the calling code runs. The content must have the tensor's sizes.
        """
        import torch

        if not self.nbytes:
            return
        target = self.raw(at)
        if self._misaligned:
            steps = strides(self.sizes, self.dim_order)
            dense = torch.empty_strided(self.sizes, steps, dtype=self.dtype, device=target.device)
            dense.copy_(content)
            target.copy_(dense.as_strided((dense.numel(),), (1,)).view(torch.uint8))
            return
        target.view(self.dtype).as_strided(self.sizes, strides(self.sizes, self.dim_order)).copy_(content)

    def raw(self, at: Device) -> torch.Tensor:
        """Return the tensor's bytes, for use by code that runs on the device ``at``."""
        if self.memory is None:
            raise RunError(f"{self.describe()} has no memory")
        end = self.offset + self.nbytes
        if end > self.memory.size:
            raise RunError(f"{self.describe()} extends beyond the end of its memory")
        return self.memory.bytes(at)[self.offset : end]

    def _torch_device(self, at: Device) -> torch.device | str:
        return self.memory.bytes(at).device if self.memory is not None else "cpu"


def scratch(nbytes: int, at: Device, torch_device: str) -> Memory:
    """Allocate temporary memory on a device, filled with zeros."""
    import torch

    return Memory.of(torch.zeros(max(nbytes, 1), dtype=torch.uint8, device=torch_device), at)


def dense_in(tensor: torch.Tensor, dim_order: Sequence[int]) -> torch.Tensor:
    """Return the tensor if it is dense in this dimension order; otherwise return a dense copy in this order."""
    import torch

    wanted = strides(tensor.shape, dim_order)
    if all(one == other for one, other, size in zip(tensor.stride(), wanted, tensor.shape, strict=True) if size > 1):
        return tensor
    return torch.empty_strided(tuple(tensor.shape), wanted, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
