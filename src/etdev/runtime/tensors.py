"""Tensors on a device, for callers on the host."""

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
    """Tensor on a device: an address and its meaning. The host reads it with a copy.

    An uploaded tensor, or an output that has no planned memory, owns its memory: close it, or use it as a context
    manager. An output in planned memory is valid until the method runs again.
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
        """Copy a tensor of the host to new memory on a device."""
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
        """Dtype of the elements."""
        return torch_dtype(self.scalar_type)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.as_run_tensor().nbytes

    def to_host(self) -> torch.Tensor:
        """Return a copy on the host."""
        import torch

        found = torch.empty_strided(self.sizes, strides(self.sizes, self.dim_order), dtype=self.dtype)
        if found.numel():
            host = Memory.of(found).bytes(HOST)
            self._allocator.copy_device_to_host(host, self.address, host.numel(), self.device.index)
        return found

    def as_run_tensor(self) -> RunTensor:
        """Return the tensor in the form that a running method uses."""
        declared = m.Tensor(self.scalar_type, self.sizes, self.dim_order)
        found = RunTensor(-1, declared, self.device)
        memory = Memory(self.device, self.address, found.nbytes, allocator=self._allocator, writable=self._writable)
        found.place(memory)
        return found

    def close(self) -> None:
        """Free its memory, if it owns any. A second call has no effect."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
