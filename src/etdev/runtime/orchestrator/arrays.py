"""Arrays in the memory of a worker, and those of callers: numpy arrays and torch tensors on the host."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from etdev.errors import UsageError
from etdev.runtime.allocator import DeviceAllocator
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.owners import MoveOnly
from etdev.runtime.readonly import read_only, refuse_write

if TYPE_CHECKING:
    import numpy as np
    import torch

    from etdev.runtime.host import HostAllocator
    from etdev.runtime.simulated import SimulatedDevice

_TORCH_ONLY = {"bfloat16": 2}
"""Element types that numpy does not have → bytes."""
_ELEMENTS = (
    {"bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8}
    | {"float16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
    | _TORCH_ONLY
)
"""Element types that memory of a worker is seen as → bytes."""


def element_size(dtype: str) -> int:
    """Return the bytes of an element. Raises :class:`~etdev.errors.UsageError` for other names than those of torch."""
    if dtype not in _ELEMENTS:
        raise UsageError(f"{dtype!r} is not a type of elements", hint=f"use one of {', '.join(_ELEMENTS)}")
    return _ELEMENTS[dtype]


def item_size(dtype: str) -> int:
    """Return the bytes of an element of an array, of numpy's types too. Raises :class:`~etdev.errors.UsageError` for
    elements that are not bytes of their own."""
    import numpy as np

    if dtype in _ELEMENTS:
        return _ELEMENTS[dtype]
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = np.dtype(object)
    if found.hasobject or not found.itemsize:
        raise UsageError(
            f"an array of {dtype!r} cannot go to a worker's memory",
            hint="use a type of numpy's like float32, or bfloat16",
        )
    return found.itemsize


def count_elements(shape: tuple[int, ...]) -> int:
    """How many elements an array of that shape has."""
    return prod(shape)


def is_array(value: Any) -> bool:
    """Is it an array of the host, numpy's or torch's, which tasks get in their worker's memory?"""
    import numpy as np

    return hasattr(value, "data_ptr") or isinstance(value, np.ndarray)


def describe_array(value: Any) -> tuple[str, tuple[int, ...]]:
    """Element type and shape of an array of the host."""
    return str(value.dtype).removeprefix("torch."), tuple(value.shape)


def dense(value: Any) -> Any:
    """The array with its elements one behind the other, copied if they are not."""
    import numpy as np

    return value.detach().contiguous() if hasattr(value, "data_ptr") else np.ascontiguousarray(value)


def array_of(data: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """Bytes of the host as an array: of numpy, if it has the element type, else of torch."""
    import numpy as np

    if dtype in _TORCH_ONLY:
        import torch

        flat = torch.frombuffer(data, dtype=getattr(torch, dtype)) if len(data) else torch.empty(0)
        return flat.reshape(shape)
    return np.frombuffer(data, dtype=dtype).reshape(shape)


class WorkerArray(MoveOnly):
    """An array in a worker's memory, as the code of a task has it. It is valid until the task ends.

    On a worker whose memory is the host's it is as good as a numpy array: ``np.asarray(array)`` is the memory itself.
    Memory of a device is code's that runs there: :meth:`tensor` is a torch tensor on it. What refers to an argument
    that is only read refuses writes.
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
        self.nbytes = count_elements(shape) * item_size(dtype)
        self._open = True

    def end(self) -> None:
        """The task is over: no other task waits for what is done with the memory from now on."""
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError(
                "an argument is used after its task has ended",
                hint="a task that needs the memory takes it as an argument: `handle.resident()`",
            )

    def tensor(self) -> torch.Tensor:
        """The memory as a torch tensor where it is. Of an argument that is only read, one that refuses writes.

        Such a tensor computes as any other does, but gives no address: kernels outside of torch take ``address``.
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
        return found if self.writable else read_only(found)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The memory as a numpy array, where the host reaches it; a read-only one of an argument that is only read.

        Raises :class:`~etdev.errors.UsageError` for memory of a device.
        """
        from etdev.runtime.host import HostAllocator

        if not isinstance(self._allocator, HostAllocator):
            raise UsageError(
                f"an array in memory of {self._allocator.device_type.name} is read on the host",
                hint="compute there: `array.tensor()`; or bring it: `array.to_host()`",
            )
        return self._as_numpy(self._allocator)

    def device_numpy(self) -> np.ndarray[Any, Any]:
        """The memory as a numpy array, for code that stands for what runs on a simulated device; without torch."""
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
        """A copy of its bytes on the host."""
        self._check_open()
        found = bytearray(self.nbytes)
        if found:
            self._allocator.copy_device_to_host(found, self.address, self.nbytes, self._index)
        return found

    def to_host(self) -> Any:
        """A copy of it on the host."""
        return array_of(self.to_bytes(), self.dtype, self.shape)

    def fill_from(self, data: Any) -> None:
        """Copy bytes of the host into it."""
        self._check_open()
        if not self.writable:
            raise refuse_write()
        source = host_bytes(data)
        if len(source) != self.nbytes:
            raise UsageError(f"{len(source)} bytes are written to an array of {self.nbytes}")
        if self.nbytes:
            self._allocator.copy_host_to_device(self.address, source, self.nbytes, self._index)
