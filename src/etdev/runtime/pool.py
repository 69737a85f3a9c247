"""A pool of workers that load the same program and share the calls for many samples."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from etdev.program import model as m
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.interpreter.layout import scalar_type_of
from etdev.runtime.interpreter.tensors import dense_in
from etdev.runtime.native.devices import NO_DEVICES, Devices
from etdev.runtime.orchestrator import (
    Access,
    ClosedError,
    Handle,
    HandleError,
    ObjectHandle,
    Orchestrator,
    TaskFuture,
    WorkerArray,
    WorkerLost,
)
from etdev.runtime.orchestrator.worker import current_worker
from etdev.runtime.owners import MoveOnly
from etdev.runtime.tensors import DeviceTensor

if TYPE_CHECKING:
    import torch

RuntimeName = Literal["stock", "replay", "native"]
_AHEAD = 2
"""Maximum number of unfinished calls for each worker: one that runs, and one that waits."""


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """The program that each worker of a pool loads, and how the worker runs it."""

    file: Path
    runtime: RuntimeName
    """``stock`` and ``native`` for ExecuTorch's runtimes, ``replay`` for etdev's interpreter in the worker's memory."""
    shared: bool = False
    """True if all methods share the same planned buffers."""
    data: tuple[Path, ...] = ()
    """Data files of the program."""
    imports: tuple[str, ...] = ()
    """Python modules that register custom kernels for the stock runtime."""
    path: tuple[Path, ...] = ()
    """Folders to search first for the modules in ``imports``."""
    host: Path | None = None
    """Executable of the native runtime; required if ``runtime`` is ``native``."""
    libraries: tuple[Path, ...] = ()
    """Shared libraries that the native runtime opens."""
    devices: Devices = NO_DEVICES
    """Devices on which the native runtime runs the program."""
    pinned: bool = True
    """True to pin each worker to one core. In a pinned worker process, torch uses only one thread."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An input that is stored on every worker and used by all calls."""

    handles: tuple[Handle, ...]
    """The input's memory on each worker, in the order of the workers."""
    scalar_type: m.ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]


class ProgramPool(MoveOnly):
    """A program that every worker of an orchestrator has loaded; a context manager.

    Each worker has its own state, which persists from call to call. If the program fails, calls raise
    :class:`~etdev.runtime.stock.ProgramFailureError`.
    """

    def __init__(self, orchestrator: Orchestrator, source: ProgramSource) -> None:
        self._orchestrator = orchestrator
        self._kept: dict[tuple[str, int], _Kept] = {}
        """Maps a method and the position of an input to the stored input."""
        self._sessions: list[ObjectHandle] = []
        self._memory: list[Handle] = []
        """Handles of the memory of all stored inputs."""
        try:
            for worker in range(len(orchestrator.specs)):
                self._sessions.append(orchestrator.create(_open, source, worker=worker))
            orchestrator.ready(*self._sessions)
        except BaseException:
            self.close()
            raise

    def keep(self, method: str, position: int, tensor: torch.Tensor, declared: m.Tensor) -> None:
        """Store an input on the device of each worker, so that later calls do not copy the input.

        ``declared`` is the file's description of the input. The workers' memory must be on the device in ``declared``.
        """
        dense = dense_in(tensor.detach(), declared.dim_order)
        order = sorted(range(dense.dim()), key=dense.stride, reverse=True)
        data = host_bytes(dense.permute(order).contiguous())
        handles = []
        for worker in range(len(self._sessions)):
            handle = self._orchestrator.malloc(worker, len(data))
            handles.append(handle)
            self._memory.append(handle)
            self._orchestrator.copy_to(handle, data)
        self._kept[method, position] = _Kept(
            tuple(handles), scalar_type_of(dense.dtype), tuple(dense.shape), declared.dim_order
        )

    def call(self, method: str, inputs: Sequence[Any], *, worker: int, fresh: bool = False) -> TaskFuture:
        """Call a method on a worker. To get the outputs, pass the returned future to :func:`outputs_of`.

        Values in ``inputs`` at the positions of stored inputs are ignored.
        """
        return self._submit(_call, method, inputs, worker, fresh)

    def repeat(self, method: str, samples: Iterable[Sequence[Any]], times: int) -> Iterator[float]:
        """Call the method ``times`` times for each sample; yield the total seconds of each sample, in order.

        Samples are distributed to workers as in :meth:`map`. Outputs are not returned.
        """
        for future in self._spread(
            samples, lambda sample, worker: self._submit(_repeat, method, sample, worker, times)
        ):
            yield float(future.result())

    def map(
        self, method: str, samples: Iterable[Sequence[Any]], *, fresh: bool = False
    ) -> Iterator[tuple[float, tuple[Any, ...]]]:
        """Call the method for each sample; yield the seconds and the outputs of each call, in the order of the samples.

        Each sample goes to the next free worker. A sample is taken from ``samples`` only when a worker can accept a
        call. With ``fresh``, each call starts from initial state.
        """
        for future in self._spread(
            samples, lambda sample, worker: self.call(method, sample, worker=worker, fresh=fresh)
        ):
            yield outputs_of(future)

    def _submit(
        self, call: Callable[..., Any], method: str, inputs: Sequence[Any], worker: int, how: bool | int
    ) -> TaskFuture:
        kept = {position: found for (name, position), found in self._kept.items() if name == method}
        sent = [None if position in kept else _pack(value) for position, value in enumerate(inputs)]
        resident = [found.handles[worker].resident(Access.READ) for found in kept.values()]
        forms = {position: (found.scalar_type, found.sizes, found.dim_order) for position, found in kept.items()}
        # Calls of a session run in order. With WRITE access, a call still runs if an earlier one failed.
        session = self._sessions[worker].resident(Access.WRITE)
        return self._orchestrator.submit(call, session, method, sent, how, forms, *resident)

    def _spread(
        self, samples: Iterable[Sequence[Any]], submit: Callable[[Sequence[Any], int], TaskFuture]
    ) -> Iterator[TaskFuture]:
        """Submit a task for each sample to the next free worker; yield the tasks in the order of the samples."""
        waiting: deque[TaskFuture] = deque()
        busy: list[list[TaskFuture]] = [[] for _ in self._sessions]
        """Unfinished calls of each worker."""
        try:
            for sample in samples:
                worker = _least_busy(busy)
                waiting.append(submit(sample, worker))
                busy[worker].append(waiting[-1])
                while waiting and waiting[0].done():
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """Unload the program and free the stored inputs on all workers; a second call has no effect."""
        gone: list[Handle | ObjectHandle] = [*self._sessions, *self._memory]
        for handle in gone:
            with suppress(WorkerLost, HandleError, ClosedError):  # The worker may be lost, including its memory.
                self._orchestrator.free(handle)
        self._sessions, self._memory, self._kept = [], [], {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _least_busy(busy: list[list[TaskFuture]]) -> int:
    """Wait until a worker can accept another call; return the worker with the fewest calls."""
    while True:
        for calls in busy:
            calls[:] = [future for future in calls if not future.done()]
        worker = min(range(len(busy)), key=lambda each: len(busy[each]))
        if len(busy[worker]) < _AHEAD:
            return worker
        wait([future for calls in busy for future in calls], return_when=FIRST_COMPLETED)


def outputs_of(future: TaskFuture) -> tuple[float, tuple[Any, ...]]:
    """Return the seconds that a call took on its worker, and the call's outputs: host tensors and plain values."""
    seconds, outputs = future.result()
    return seconds, tuple(_unpack(value) for value in outputs)


@dataclass(frozen=True, slots=True)
class _Packed:
    """A tensor in the format that is sent between processes: a numpy array with the elements in memory order."""

    data: Any
    order: tuple[int, ...]


def _pack(value: Any) -> Any:
    if not hasattr(value, "data_ptr") or str(value.dtype) == "torch.bfloat16":
        return value
    order = tuple(sorted(range(value.dim()), key=value.stride, reverse=True))
    return _Packed(value.detach().permute(order).contiguous().numpy(), order)


def _unpack(value: Any) -> Any:
    if not isinstance(value, _Packed):
        return value
    import torch

    data = value.data if value.data.flags.writeable else value.data.copy()
    back = sorted(range(len(value.order)), key=lambda axis: value.order[axis])
    return torch.from_numpy(data).permute(back)


# Code that runs on the workers


_Forms: TypeAlias = Mapping[int, tuple[m.ScalarType, tuple[int, ...], tuple[int, ...]]]
"""Maps the position of a stored input to its element type, sizes and dimension order."""


class _Session:
    """A program that is loaded on a worker."""

    def __init__(self, source: ProgramSource) -> None:
        worker = current_worker()
        if source.pinned:
            _pin(worker.number)
        self._has_process = source.runtime != "replay"
        self._runtime: Any
        if source.runtime == "stock":
            from etdev.runtime.stock import StockRuntime

            self._runtime = StockRuntime(imports=source.imports, path=source.path)
        elif source.runtime == "native":
            from etdev.runtime.native import NativeRuntime

            assert source.host is not None
            self._runtime = NativeRuntime(source.host, libraries=source.libraries, devices=source.devices, watch=False)
        else:
            import torch

            from etdev.runtime.replay import ReplayRuntime

            if source.pinned and current_thread() is main_thread():  # It is a setting of the whole process.
                torch.set_num_threads(1)
            self._runtime = ReplayRuntime(registry=worker.registry)
        self._runtime.__enter__()
        try:
            self._runtime.load(source.file, shared=source.shared, data=source.data)
        except BaseException:
            self.close()
            raise

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool) -> tuple[Any, ...]:
        outputs: tuple[Any, ...] = self._runtime.call(method, inputs, fresh=fresh)
        return outputs

    def repeat(self, method: str, inputs: Sequence[Any], times: int) -> float:
        """Call a method ``times`` times and return the total seconds."""
        if self._has_process:  # The runtime's own process loops over the calls.
            self._runtime.call(method, inputs, repeat=times)
            return float(self._runtime.seconds)
        began = time.perf_counter()
        for _ in range(times):
            self._runtime.call(method, inputs)
        return time.perf_counter() - began

    def close(self) -> None:
        self._runtime.__exit__(None, None, None)


def _pin(number: int) -> None:
    """Pin this thread, and the processes that it starts, to one core."""
    if hasattr(os, "sched_setaffinity"):  # Only Linux can pin threads.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


def _open(source: ProgramSource) -> _Session:
    return _Session(source)


def _call(
    session: _Session,
    method: str,
    sent: Sequence[Any],
    fresh: bool,
    forms: _Forms,
    *arrays: WorkerArray,
) -> tuple[float, list[Any]]:
    inputs = _inputs(sent, forms, arrays)
    began = time.perf_counter()
    outputs = session.call(method, inputs, fresh=fresh)
    return time.perf_counter() - began, [_pack(value) for value in outputs]


def _repeat(
    session: _Session, method: str, sent: Sequence[Any], times: int, forms: _Forms, *arrays: WorkerArray
) -> float:
    return session.repeat(method, _inputs(sent, forms, arrays), times)


def _inputs(sent: Sequence[Any], forms: _Forms, arrays: Sequence[WorkerArray]) -> list[Any]:
    worker = current_worker()
    inputs = [_unpack(value) for value in sent]
    for (position, form), array in zip(forms.items(), arrays, strict=True):
        inputs[position] = DeviceTensor(worker.allocator, worker.device, array.address, *form, writable=array.writable)
    return inputs
