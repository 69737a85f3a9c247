"""Tensors in device memory, as inputs and outputs of methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from etdev.devices import HOST, Device
from etdev.program import model as m
from etdev.runtime.allocator import DEFAULT_REGISTRY, DeviceAllocator, Registry
from etdev.runtime.interpreter.layout import scalar_type_of, strides, torch_dtype
from etdev.runtime.interpreter.tensors import Memory, RunTensor, dense_in
from etdev.runtime.memory import DeviceMemoryBuffer
from etdev.runtime.owners import MoveOnly

if TYPE_CHECKING:
    import torch


class DeviceTensor(MoveOnly):
    """A tensor in device memory, which the host reads with :meth:`to_host`.

    An uploaded tensor and an output without planned memory own their memory: close them, or use them as context
    managers. An output in planned memory is valid until the method runs again.
    """

    def __init__(
        self,
        allocator: DeviceAllocator,
        device: Device,
        address: int,
        scalar_type: m.ScalarType,
        sizes: tuple[int, ...],
        dim_order: tuple[int, ...],
        owned: DeviceMemoryBuffer | None = None,
        *,
        writable: bool = True,
    ) -> None:
        self.device, self.address = device, address
        self.scalar_type, self.sizes, self.dim_order = scalar_type, sizes, dim_order
        self._allocator, self._owned, self._writable = allocator, owned, writable

    @classmethod
    def upload(
        cls,
        tensor: torch.Tensor,
        device: Device,
        *,
        registry: Registry = DEFAULT_REGISTRY,
        dim_order: tuple[int, ...] | None = None,
    ) -> Self:
        """Copy a host tensor to new memory on a device."""
        order = tuple(range(tensor.dim())) if dim_order is None else dim_order
        dense = dense_in(tensor.detach(), order)
        nbytes = dense.numel() * dense.element_size()
        buffer = DeviceMemoryBuffer.create(nbytes, device.type, device.index, registry=registry)
        allocator = registry.get(device.type)
        try:
            if nbytes:
                allocator.copy_host_to_device(buffer.data(), Memory.of(dense).bytes(HOST), nbytes, device.index)
        except BaseException:
            buffer.close()
            raise
        scalar_type = scalar_type_of(dense.dtype)
        return cls(allocator, device, buffer.data(), scalar_type, tuple(dense.shape), order, buffer)

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return torch_dtype(self.scalar_type)

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return self.as_run_tensor().nbytes

    def to_host(self) -> torch.Tensor:
        """Copy the tensor to the host and return the copy."""
        import torch

        found = torch.empty_strided(self.sizes, strides(self.sizes, self.dim_order), dtype=self.dtype)
        if found.numel():
            host = Memory.of(found).bytes(HOST)
            self._allocator.copy_device_to_host(host, self.address, host.numel(), self.device.index)
        return found

    def as_run_tensor(self) -> RunTensor:
        """Return the tensor as a :class:`RunTensor` of the interpreter."""
        declared = m.Tensor(self.scalar_type, self.sizes, self.dim_order)
        found = RunTensor(-1, declared, self.device)
        memory = Memory(self.device, self.address, found.nbytes, allocator=self._allocator, writable=self._writable)
        found.place(memory)
        return found

    def close(self) -> None:
        """Free the memory if this object owns it; a second call has no effect."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
