"""Worker, which owns memory and objects, and executes jobs; used by all transports."""

from __future__ import annotations

import time
from contextlib import suppress
from math import prod
from threading import Lock, local
from typing import TYPE_CHECKING, Any

from etdev.errors import UsageError
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.orchestrator.arrays import WorkerArray, array_of, item_size
from etdev.runtime.orchestrator.messages import (
    ArrayArgument,
    Cost,
    Job,
    MemoryArgument,
    ObjectArgument,
    Outcome,
)
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.owners import MoveOnly

if TYPE_CHECKING:
    from types import TracebackType


_HERE = local()


def current_worker() -> Worker:
    """Return the worker that runs the calling task. Raises :class:`~etdev.errors.UsageError` outside of a task."""
    found: Worker | None = getattr(_HERE, "worker", None)
    if found is None:
        raise UsageError("this code does not run on a worker", hint="submit the code as a task")
    return found


class Worker(MoveOnly):
    """Memory and objects of one worker; while one thread runs a job, another thread may allocate and copy memory."""

    def __init__(self, number: int, spec: WorkerSpec) -> None:
        self.number = number
        self.registry, self.device = spec.open()
        self.allocator, self.index = self.registry.get(self.device.type), self.device.index
        self._buffers: dict[int, tuple[int, int]] = {}
        """Maps the number of a buffer to its address and its size in bytes."""
        self.objects: dict[int, Any] = {}
        self._lock = Lock()

    def alloc(self, buffer: int, nbytes: int) -> None:
        """Allocate a buffer. Raises the errors of :meth:`~etdev.runtime.allocator.DeviceAllocator.allocate`."""
        address = self.allocator.allocate(nbytes, self.index) if nbytes else 0
        with self._lock:
            self._buffers[buffer] = address, nbytes

    def free(self, buffer: int) -> None:
        """Free a buffer, or close and remove an object."""
        with self._lock:
            if buffer in self.objects:
                found = self.objects.pop(buffer)
                address = nbytes = 0
            else:
                found = None
                address, nbytes = self._buffers.pop(buffer, (0, 0))  # There is no object if its creation failed.
        if nbytes:
            self.allocator.deallocate(address, self.index)
        if hasattr(found, "close"):
            found.close()

    def put(self, buffer: int, offset: int, data: Any) -> None:
        """Copy host bytes to a buffer."""
        nbytes = len(host_bytes(data))
        if nbytes:
            address = self._place(buffer, offset, nbytes)
            self.allocator.copy_host_to_device(address, data, nbytes, self.index)

    def get(self, buffer: int, offset: int, nbytes: int) -> bytearray:
        """Copy bytes of a buffer to the host."""
        found = bytearray(nbytes)
        if nbytes:
            address = self._place(buffer, offset, nbytes)
            self.allocator.copy_device_to_host(found, address, nbytes, self.index)
        return found

    def run(self, job: Job) -> Outcome:
        """Run a job in the calling thread."""
        began = time.perf_counter()
        _HERE.worker = self
        with _Call(self, job) as call:
            value = job.call(*call.args, **job.kwargs)
            if job.keep is not None:
                with self._lock:
                    self.objects[job.keep] = value
                value = None
            elif isinstance(value, WorkerArray):
                value = call.bring(value)
            outputs = call.outputs()
        seconds = time.perf_counter() - began
        return Outcome(value, outputs, Cost(seconds, call.bytes_to, call.bytes_from, call.bytes_avoided))

    def live_bytes(self) -> int:
        """Return the number of allocated bytes."""
        return self.allocator.counters.live_bytes

    def close(self) -> None:
        """Free all buffers and close all objects; ignore errors of objects."""
        for number in (*self.objects, *self._buffers):
            with suppress(Exception):
                self.free(number)

    def _place(self, buffer: int, offset: int, nbytes: int) -> int:
        with self._lock:
            address, size = self._buffers[buffer]
        if offset < 0 or offset + nbytes > size:
            raise UsageError(f"bytes {offset} to {offset + nbytes} are out of bounds: buffer {buffer} has {size}")
        return address + offset

    def array(self, argument: MemoryArgument) -> WorkerArray:
        """Return resident memory as the array that a task gets."""
        needed = prod(argument.shape) * item_size(argument.dtype)
        if needed > argument.size:
            raise UsageError(
                f"an array of {argument.dtype} with shape {list(argument.shape)} takes {needed} bytes, "
                f"but the argument has {argument.size}"
            )
        # For an argument of 0 bytes, the buffer may already be freed.
        address = self._place(argument.buffer, argument.offset, needed) if needed else 0
        return self._wrap(address, argument.dtype, argument.shape, writable=argument.writable)

    def _wrap(self, address: int, dtype: str, shape: tuple[int, ...], *, writable: bool) -> WorkerArray:
        return WorkerArray(self.allocator, self.index, address, dtype, shape, writable=writable)

    def temporary(self, dtype: str, shape: tuple[int, ...]) -> WorkerArray:
        """Allocate memory for an array, which :meth:`release` frees."""
        nbytes = prod(shape) * item_size(dtype)
        address = self.allocator.allocate(nbytes, self.index) if nbytes else 0
        return self._wrap(address, dtype, shape, writable=True)

    def release(self, array: WorkerArray) -> None:
        """Free an array that :meth:`temporary` allocated."""
        if array.nbytes:
            self.allocator.deallocate(array.address, self.index)


class _Call:
    """Arguments of a running job."""

    def __init__(self, worker: Worker, job: Job) -> None:
        self._worker, self._job = worker, job
        self._temporary: dict[int, WorkerArray] = {}
        """Maps the position of an argument to the temporary array that was allocated for it."""
        self._resident: list[WorkerArray] = []
        self.args: list[Any] = []
        self.bytes_to = self.bytes_from = self.bytes_avoided = 0

    def __enter__(self) -> _Call:
        try:
            self.args = [self._argument(position, given) for position, given in enumerate(self._job.args)]
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _argument(self, position: int, given: Any) -> Any:
        match given:
            case ArrayArgument():
                array = self._temporary[position] = self._worker.temporary(given.dtype, given.shape)
                if given.data is not None and array.nbytes:
                    array.fill_from(given.data)
                    self.bytes_to += array.nbytes
                return array
            case MemoryArgument():
                self.bytes_avoided += given.size
                self._resident.append(self._worker.array(given))
                return self._resident[-1]
            case ObjectArgument():
                return self._worker.objects[given.number]
            case _:
                return given

    def outputs(self) -> dict[int, bytes]:
        """Map positions of arguments to the bytes of their arrays. Include only arguments that are copied back."""
        found = {}
        for position, array in self._temporary.items():
            if self._job.args[position].back:
                found[position] = bytes(array.to_bytes())
                self.bytes_from += array.nbytes
        return found

    def bring(self, array: WorkerArray) -> Any:
        """Copy an array in the worker's memory to the host."""
        self.bytes_from += array.nbytes
        return array_of(array.to_bytes(), array.dtype, array.shape)

    def _release(self) -> None:
        for array in (*self._resident, *self._temporary.values()):
            array.end()
        for array in self._temporary.values():
            self._worker.release(array)
        self._temporary.clear()
