"""Arrays in the memory of a worker, and those of callers: numpy arrays and torch tensors on the host."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from etdev.errors import UsageError
from etdev.runtime.allocator import DeviceAllocator
from etdev.runtime.hostmem import host_bytes

if TYPE_CHECKING:
    import numpy as np
    import torch

    from etdev.runtime.host import HostAllocator
    from etdev.runtime.simulated import SimulatedDevice

_TORCH_ONLY = {"bfloat16": 2}
"""Element types that numpy does not have → bytes."""


def item_size(dtype: str) -> int:
    """Bytes of an element. Raises :class:`~etdev.errors.UsageError` for what is no type of elements."""
    import numpy as np

    if dtype in _TORCH_ONLY:
        return _TORCH_ONLY[dtype]
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        raise UsageError(
            f"{dtype!r} is no type of elements", hint="use a name of numpy's, float32, or bfloat16"
        ) from None


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


class WorkerArray:
    """An array in a worker's memory, as the code of a task has it.

    On a worker whose memory is the host's it is as good as a numpy array: ``np.asarray(array)`` is the memory itself.
    Memory of a device is code's that runs there: :meth:`tensor` is a torch tensor on it.
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

    def tensor(self) -> torch.Tensor:
        """The memory as a torch tensor where it is. Of an argument that is only read, nobody may write to it."""
        import torch

        dtype = getattr(torch, self.dtype)
        if not self.nbytes:
            return torch.empty(self.shape, dtype=dtype)
        flat = self._allocator.device_tensor(self.address, self.nbytes, self._index)
        return flat.view(dtype).reshape(self.shape)

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
        data = allocator.device_view(self.address, self.nbytes) if self.nbytes else memoryview(bytearray())
        found: np.ndarray[Any, Any] = array_of(data, self.dtype, self.shape)
        if not self.writable:
            found.flags.writeable = False
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        found = self.numpy()
        return found.astype(dtype) if dtype is not None and dtype != found.dtype else found.copy() if copy else found

    def to_bytes(self) -> bytearray:
        """A copy of its bytes on the host."""
        found = bytearray(self.nbytes)
        if found:
            self._allocator.copy_device_to_host(found, self.address, self.nbytes, self._index)
        return found

    def to_host(self) -> Any:
        """A copy of it on the host."""
        return array_of(self.to_bytes(), self.dtype, self.shape)

    def fill_from(self, data: Any) -> None:
        """Copy bytes of the host into it."""
        if not self.writable:
            raise UsageError("a task writes to an argument that it only reads", hint="`resident('update')` lets it")
        source = host_bytes(data)
        if len(source) != self.nbytes:
            raise UsageError(f"{len(source)} bytes are written to an array of {self.nbytes}")
        if self.nbytes:
            self._allocator.copy_host_to_device(self.address, source, self.nbytes, self._index)
