"""Arrays in a worker's memory, and conversions of numpy arrays and torch tensors on the host."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from etdev.errors import UsageError
from etdev.runtime.allocator import DeviceAllocator
from etdev.runtime.errors import refuse_write
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.owners import MoveOnly

if TYPE_CHECKING:
    import numpy as np
    import torch

    from etdev.runtime.host import HostAllocator
    from etdev.runtime.simulated import SimulatedDevice

_TORCH_ONLY = {"bfloat16": 2}
"""Maps the name of an element type that numpy lacks to the number of bytes per element."""
_ELEMENTS = (
    {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8}
    | {"float16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
    | _TORCH_ONLY
)
"""Element types that :meth:`Handle.resident` accepts. Maps a name to the number of bytes per element."""


def element_size(dtype: str) -> int:
    """Return the bytes per element. Raises :class:`~etdev.errors.UsageError` for an unknown element type."""
    if dtype not in _ELEMENTS:
        raise UsageError(f"{dtype!r} is not an element type", hint=f"use one of {', '.join(_ELEMENTS)}")
    return _ELEMENTS[dtype]


def item_size(dtype: str) -> int:
    """Return the bytes per element of a host array, which may have any element type of numpy.

    Raises :class:`~etdev.errors.UsageError` for Python objects and for elements without bytes.
    """
    import numpy as np

    if dtype in _ELEMENTS:
        return _ELEMENTS[dtype]
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    if found.hasobject or not found.itemsize:
        raise UsageError(
            f"an array of {dtype!r} cannot be copied to a worker",
            hint="use a numeric element type, such as float32 or bfloat16",
        )
    return found.itemsize


def is_array(value: Any) -> bool:
    """Return True if the value is a numpy array or a torch tensor."""
    import numpy as np

    return hasattr(value, "data_ptr") or isinstance(value, np.ndarray)


def describe_array(value: Any) -> tuple[str, tuple[int, ...]]:
    """Return the element type and shape of a host array."""
    return str(value.dtype).removeprefix("torch."), tuple(value.shape)


def dense(value: Any) -> Any:
    """Return the array if its elements are contiguous, otherwise a contiguous copy."""
    import numpy as np

    return value.detach().contiguous() if hasattr(value, "data_ptr") else np.ascontiguousarray(value)


def array_of(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """Return an array over the bytes ``data``: a numpy array, or a torch tensor if only torch has the element type."""
    import numpy as np

    if dtype in _TORCH_ONLY:
        import torch

        kind = getattr(torch, dtype)
        return (torch.frombuffer(data, dtype=kind) if len(data) else torch.empty(0, dtype=kind)).reshape(shape)
    return np.frombuffer(data, dtype=dtype).reshape(shape)


class WorkerArray(MoveOnly):
    """An array in a worker's memory, passed to a task; it becomes invalid when the task ends.

    In host memory, ``np.asarray(array)`` accesses the bytes directly. Device memory is accessible only to code that
    runs on the device, with :meth:`tensor`. Arrays and tensors of a read-only argument cannot be written.
    """

    def __init__(
        self,
        allocator: DeviceAllocator,
        index: int,
        address: int,
        dtype: str,
        shape: tuple[int, ...],
        *,
        writable: bool,
    ) -> None:
        self._allocator, self._index = allocator, index
        self.address, self.dtype, self.shape, self.writable = address, dtype, shape, writable
        self.nbytes = prod(shape) * item_size(dtype)
        self._open = True

    def end(self) -> None:
        """Mark the array as invalid, because its task has ended and other tasks may use the memory."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError(
                "an argument was used after its task ended",
                hint="an argument is valid only during its task: pass `handle.resident()` to each task that uses it",
            )

    def tensor(self) -> torch.Tensor:
        """Return a torch tensor over the bytes; for a read-only argument, the tensor is read-only.

        A read-only tensor has no ``data_ptr``. Code outside of torch can use :attr:`address`.
        """
        import torch

        self._check_open()
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise UsageError(f"torch has no tensors of {self.dtype}", hint="use `numpy()` or `device_numpy()`")
        if not self.nbytes:
            return torch.empty(self.shape, dtype=dtype)
        flat = self._allocator.device_tensor(self.address, self.nbytes, self._index)
        found = flat.view(dtype).reshape(self.shape)
        from etdev.runtime.readonly_tensor import ReadOnlyTensor

        return found if self.writable else ReadOnlyTensor(found)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a numpy array over the bytes; for a read-only argument, the array is read-only.

        Raises :class:`~etdev.errors.UsageError` for device memory.
        """
        from etdev.runtime.host import HostAllocator

        if not isinstance(self._allocator, HostAllocator):
            raise UsageError(
                f"host code cannot access an array in {self._allocator.device_type.name} memory",
                hint="compute on the device with `array.tensor()`, or copy it with `array.to_host()`",
            )
        return self._as_numpy(self._allocator)

    def device_numpy(self) -> np.ndarray[Any, Any]:
        """Return a numpy array over the bytes, even for a simulated device; only for tasks that act as the device."""
        from etdev.runtime.simulated import SimulatedDevice

        if not isinstance(self._allocator, SimulatedDevice):
            return self.numpy()
        return self._as_numpy(self._allocator)

    def _as_numpy(self, allocator: HostAllocator | SimulatedDevice) -> np.ndarray[Any, Any]:
        self._check_open()
        if self.dtype in _TORCH_ONLY:
            raise UsageError(f"numpy has no arrays of {self.dtype}", hint="use `tensor()`")
        data = allocator.device_view(self.address, self.nbytes) if self.nbytes else memoryview(bytearray())
        found: np.ndarray[Any, Any] = array_of(data if self.writable else data.toreadonly(), self.dtype, self.shape)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        found = self.numpy()
        return found.astype(dtype) if dtype is not None and dtype != found.dtype else found.copy() if copy else found

    def to_bytes(self) -> bytearray:
        """Copy the bytes to the host and return the copy."""
        self._check_open()
        found = bytearray(self.nbytes)
        if found:
            self._allocator.copy_device_to_host(found, self.address, self.nbytes, self._index)
        return found

    def to_host(self) -> Any:
        """Copy the array to the host and return the copy."""
        return array_of(self.to_bytes(), self.dtype, self.shape)

    def fill_from(self, data: Any) -> None:
        """Copy host bytes to the array."""
        self._check_open()
        if not self.writable:
            raise refuse_write()
        source = host_bytes(data)
        if len(source) != self.nbytes:
            raise UsageError(f"{len(source)} bytes cannot be written to an array of {self.nbytes} bytes")
        if self.nbytes:
            self._allocator.copy_host_to_device(self.address, source, self.nbytes, self._index)
