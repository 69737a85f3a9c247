"""Execution of one program on several workers, one for each device of the program.

A worker has the memory of its device and runs the device's delegates. Only copy instructions of the program move data
between workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etdev.devices import Device, DeviceType
from etdev.errors import UsageError
from etdev.program import Blob
from etdev.program import model as m
from etdev.runtime.allocator import (
    DEFAULT_ALIGNMENT,
    Allocation,
    DistantAllocator,
    MemoryInfo,
    PointerAttributes,
    Registry,
)
from etdev.runtime.errors import RunError
from etdev.runtime.host import HostAllocator
from etdev.runtime.interpreter.delegates import executors
from etdev.runtime.interpreter.settings import (
    DelegateContext,
    DelegateExecutor,
    ExecutorFactory,
    Settings,
    load_executor,
)
from etdev.runtime.interpreter.tensors import Memory, RunTensor, fill_bytes
from etdev.runtime.locks import is_mine
from etdev.runtime.orchestrator import (
    Access,
    ClosedError,
    Handle,
    HandleError,
    ObjectHandle,
    Orchestrator,
    PoisonedError,
    TaskFuture,
    WorkerArray,
    WorkerLost,
)
from etdev.runtime.orchestrator.worker import current_worker
from etdev.runtime.owners import MoveOnly

if TYPE_CHECKING:
    import torch

_BASE = 1 << 59
"""First address of the first device. It is above all pointers of a process, and below those of simulated devices."""
_SPACE = 1 << 48
"""Number of addresses for each device."""
_GAP = 4096

Places = Mapping[Device, int]
"""Maps a device of the program to the number of the worker that acts as this device."""


class WorkerDevices(DistantAllocator):
    """Allocator for devices that are workers; an address identifies a handle, and is not an address on the worker."""

    def __init__(self, orchestrator: Orchestrator, kind: DeviceType, places: Places) -> None:
        super().__init__()
        self._orchestrator, self._type = orchestrator, kind
        self._workers = {device.index: worker for device, worker in places.items() if device.type is kind}
        self._handles: dict[int, Handle] = {}
        self._next = {index: _BASE + index * _SPACE for index in self._workers}
        self._gone: deque[tuple[int, int]] = deque()
        """Address and device index of each allocation that must still be freed."""

    @property
    def device_type(self) -> DeviceType:
        """Type of the devices."""
        return self._type

    def device_count(self) -> int:
        """Return the highest device index with a worker, plus one."""
        return max(self._workers, default=-1) + 1

    def memory_info(self, index: int = 0) -> MemoryInfo | None:
        """Return None, because the free memory of a worker is not known in this process."""
        return None

    def allocate(self, nbytes: int, index: int = 0, alignment: int = DEFAULT_ALIGNMENT) -> int:
        """Complete delayed :meth:`deallocate` calls, then allocate memory like the base class."""
        self._sweep()
        return super().allocate(nbytes, index, alignment)

    def deallocate(self, address: int, index: int = 0) -> None:
        """Free memory now, or in a later call if the lock of the allocator or orchestrator is held.

        The garbage collector can call this method at any time, even while the thread holds one of these locks.
        """
        self._gone.append((address, index))
        self._sweep()

    def _sweep(self) -> None:
        if self._orchestrator.is_inside() or is_mine(self._lock) or not self._lock.acquire(blocking=False):
            return
        try:
            while self._gone:
                super().deallocate(*self._gone.popleft())
        finally:
            self._lock.release()

    def resident(self, address: int, nbytes: int, index: int) -> Handle:
        """Return the handle of a range of device memory."""
        allocation = self.find(address, nbytes, index)
        return self._handles[allocation.address].view(address - allocation.address, nbytes)

    def fill(self, address: int, nbytes: int, pattern: bytes, index: int) -> None:
        """Fill memory of a worker with a repeated pattern."""
        self._sweep()
        if nbytes:
            part = self.resident(address, nbytes, index).resident(Access.WRITE)
            self._orchestrator.submit(_fill, part, pattern)

    def copy_on_device(self, dst_address: int, src_address: int, nbytes: int, index: int) -> None:
        """Copy between two ranges in one worker's memory."""
        if nbytes:
            source = self.resident(src_address, nbytes, index).resident(Access.READ)
            target = self.resident(dst_address, nbytes, index).resident(Access.WRITE)
            self._orchestrator.submit(_copy, source, target)

    def _allocate(self, nbytes: int, index: int, alignment: int) -> int:
        handle = self._orchestrator.malloc(self._worker(index), nbytes)
        address = -(-self._next[index] // alignment) * alignment
        self._next[index] = address + nbytes + _GAP
        self._handles[address] = handle
        return address

    def _worker(self, index: int) -> int:
        if index not in self._workers:
            raise UsageError(f"no worker is assigned to {Device(self._type, index)}")
        return self._workers[index]

    def _deallocate(self, allocation: Allocation) -> None:
        _free(self._orchestrator, self._handles.pop(allocation.address))

    def _copy_host_to_device(self, dst_address: int, source: memoryview, index: int) -> None:
        self._orchestrator.copy_to(self.resident(dst_address, len(source), index), source)

    def _copy_device_to_host(self, target: memoryview, src_address: int, index: int) -> None:
        part = self.resident(src_address, len(target), index)
        target[:] = _result(self._orchestrator.copy_from(part))

    def _pointer_attributes(self, address: int) -> PointerAttributes:
        index = (address - _BASE) // _SPACE
        return PointerAttributes(Device(self._type, index), "device", f"worker {self._workers[index]}")

    def _device_tensor(self, address: int, nbytes: int) -> torch.Tensor:
        raise RunError(
            "memory of a worker cannot be a tensor in this process", hint="run the code as a task on the worker"
        )


class RemoteDelegate(MoveOnly):
    """A delegate that is loaded on a worker; :meth:`execute` starts a call and usually does not wait for its end."""

    def __init__(self, context: DelegateContext, orchestrator: Orchestrator, worker: int) -> None:
        self._orchestrator, self._device = orchestrator, context.device
        self._begun: list[TaskFuture] = []
        settings = replace(context.settings, inplace=dict(context.settings.inplace), executors={})
        recipe = _Recipe(context.id, bytes(context.data.view), context.compile_specs, settings)
        self._object: ObjectHandle | None = orchestrator.create(_load, recipe, worker=worker)
        try:
            self._inputs: int = _result(orchestrator.submit(_count_inputs, self._loaded(Access.READ)))
        except BaseException:
            self.close()
            raise

    @property
    def input_count(self) -> int:
        """Number of inputs among a call's arguments, as reported by the worker."""
        return self._inputs

    def execute(self, arguments: Sequence[RunTensor | int | float | bool | None]) -> None:
        """Start a call, which runs in order with all other tasks that use the same bytes.

        If the size of an output depends on the call, wait until the call has ended.
        """
        sent: list[Any] = []
        for position, argument in enumerate(arguments):
            if not isinstance(argument, RunTensor):
                sent.append(argument)
                continue
            sent += [_Tensor(argument.value, argument.declared, argument.sizes, argument.dim_order)]
            sent.append(self._bytes(argument, is_input=position < self._inputs))
        future = self._orchestrator.submit(_run, self._loaded(), *sent)
        outputs = [out for out in arguments[self._inputs :] if isinstance(out, RunTensor)]
        if all(out.is_static for out in outputs):
            self._begun.append(future)
            return
        for out, sizes in zip(outputs, _result(future), strict=True):
            out.resize(sizes)

    def finish(self) -> None:
        """Wait for all calls that :meth:`execute` started."""
        begun, self._begun = self._begun, []
        for future in begun:
            _result(future)

    def reset(self) -> None:
        """Reset all state after the calls that :meth:`execute` started have ended."""
        self._begun.append(self._orchestrator.submit(_reset, self._loaded()))

    def close(self) -> None:
        """Unload the delegate from its worker; a second call has no effect."""
        if self._object is not None:
            _free(self._orchestrator, self._object)
            self._object = None

    def _loaded(self, access: Access = Access.UPDATE) -> Any:
        if self._object is None:
            raise RunError("the delegate was closed")
        return self._object.resident(access)

    def _bytes(self, argument: RunTensor, *, is_input: bool) -> Any:
        """Return an argument's memory on the worker as a task argument; None for an argument of 0 bytes."""
        size = argument.nbytes if is_input or argument.is_static else argument.capacity
        if size is None:
            raise RunError(f"{argument.describe()} has no maximum size, but an output on a worker needs one")
        memory = argument.memory
        if not size or memory is None:
            return None
        devices = memory.allocator
        if not isinstance(devices, WorkerDevices):
            raise RunError(f"{argument.describe()} is not in the memory of a worker")
        part = devices.resident(argument.start, size, self._device.index)
        if is_input:
            return part.resident(Access.READ)
        return part.resident(Access.WRITE if argument.is_static else Access.UPDATE)


def across_workers(orchestrator: Orchestrator, places: Places) -> tuple[Registry, Mapping[str, ExecutorFactory]]:
    """Return a registry and executors that let a program use workers as its devices."""
    kinds = sorted({device.type for device in places})
    registry = Registry(HostAllocator(), *(WorkerDevices(orchestrator, kind, places) for kind in kinds))

    def factory(local: ExecutorFactory) -> ExecutorFactory:
        def load(context: DelegateContext) -> DelegateExecutor:
            if context.device.is_host:
                return local(context)
            if context.device not in places:
                raise UsageError(
                    f"no worker is assigned to {context.device}", hint="assign a worker to each device of the program"
                )
            return RemoteDelegate(context, orchestrator, places[context.device])

        return load

    return registry, {name: factory(local) for name, local in executors().items()}


def _free(orchestrator: Orchestrator, handle: Handle | ObjectHandle) -> None:
    """Free memory or an object on a worker; ignore lost workers, invalid handles and a closed orchestrator."""
    with suppress(WorkerLost, HandleError, ClosedError):
        orchestrator.free(handle)


def _result(future: TaskFuture) -> Any:
    """Return the result of a task, or raise its error.

    If the task did not run because an earlier task failed, raise the error of the earlier task.
    """
    try:
        return future.result()
    except PoisonedError as error:
        raise error.cause from error


# Code that runs on the workers


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Data that a worker needs to load a delegate on its own device."""

    id: str
    data: bytes
    compile_specs: tuple[m.CompileSpec, ...]
    settings: Settings


@dataclass(frozen=True, slots=True)
class _Tensor:
    """Metadata of a tensor argument; the next argument is the tensor's memory."""

    value: int
    declared: m.Tensor
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]


class _Loaded:
    """A loaded delegate, stored as an object on a worker."""

    def __init__(self, executor: DelegateExecutor) -> None:
        self.executor = executor

    def close(self) -> None:
        self.executor.close()


def _load(recipe: _Recipe) -> _Loaded:
    worker = current_worker()
    context = DelegateContext(
        id=recipe.id,
        data=Blob(recipe.data),
        compile_specs=recipe.compile_specs,
        device=worker.device,
        registry=worker.registry,
        settings=replace(recipe.settings, executors=executors()),
    )
    return _Loaded(load_executor(context, executors()))


def _count_inputs(loaded: _Loaded) -> int:
    return loaded.executor.input_count


def _reset(loaded: _Loaded) -> None:
    loaded.executor.reset()


def _run(loaded: _Loaded, *sent: Any) -> list[tuple[int, ...]]:
    """Call a delegate and return the sizes of its outputs."""
    worker = current_worker()
    arguments: list[Any] = []
    following = iter(sent)
    for item in following:
        if not isinstance(item, _Tensor):
            arguments.append(item)
            continue
        tensor = RunTensor(item.value, item.declared, worker.device)
        tensor.sizes, tensor.dim_order = item.sizes, item.dim_order
        array: WorkerArray | None = next(following)
        if array is not None:
            tensor.place(
                Memory(
                    worker.device,
                    array.address,
                    array.nbytes,
                    allocator=worker.allocator,
                    writable=array.writable,
                )
            )
        arguments.append(tensor)
    loaded.executor.execute(arguments)
    return [out.sizes for out in arguments[loaded.executor.input_count :]]


def _fill(array: WorkerArray, pattern: bytes) -> None:
    fill_bytes(array.tensor(), pattern)


def _copy(source: WorkerArray, target: WorkerArray) -> None:
    target.tensor().copy_(source.tensor())
