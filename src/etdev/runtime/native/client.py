"""Client of the native host: ExecuTorch's own C++ runtime in a child process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

from etdev.devices import Device, DeviceType
from etdev.errors import MissingRequirementError
from etdev.program.analysis.effects import DelegateInputs, instruction_name
from etdev.program.data_files.joined import read_joined
from etdev.program.model import ExecutionPlan
from etdev.runtime.child import LIMIT, Child, ChildRuntime, ProgramFailureError, RuntimeCrashError, openvino_environment
from etdev.runtime.dim_orders import DimOrder, arrange_inputs
from etdev.runtime.native.devices import NO_DEVICES, Devices
from etdev.runtime.native.measured import Called, DeviceCounts, Left, Opened, PlannedBuffer
from etdev.runtime.native.unused import MethodUnused, Unused, unused_bytes
from etdev.runtime.native.wire import Answer, Kind, RefusedError, Request, receive
from etdev.runtime.native_libraries import compile_hint

ALIGNMENT = 16
"""Alignment in bytes of planned buffers on the host. On most platforms, ``malloc`` uses the same alignment."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A simulated failure of a device operation.

    The ``nth`` call of ``operation`` fails; the first call is number 1. If ``lasting``, all later calls fail, too.
    """

    operation: Literal["allocate", "copy_host_to_device", "copy_device_to_host"]
    nth: int = 1
    lasting: bool = False


_NO_LIMIT = (1 << 64) - 1
_UNUSABLE = "remove this file, so that etdev compiles it again; if ETDEV_NATIVE_HOST names it, unset that variable"
_OPERATIONS = ("allocate", "copy_host_to_device", "copy_device_to_host")


@dataclass(frozen=True, slots=True)
class Pools:
    """Sizes of a method's pools in bytes; None for a pool that is large enough for any program."""

    method: int | None = None
    temporary: int | None = None
    failing: int = 0
    """Number of the allocation that fails in each pool, counted from 1; 0 if no allocation fails."""


class NativeRuntime(ChildRuntime):
    """ExecuTorch's C++ runtime in a child process; a context manager that kills the child at exit.

    Each planned buffer has exactly its declared size, between pages that cannot be accessed. With ``watch``, unused
    bytes contain poison, and the error after a crash states the running instruction. ``executable`` is the path that
    :func:`~etdev.runtime.native.executable.host_executable` returns. ``libraries`` are shared libraries with backends
    and kernels that ExecuTorch's wheel does not have. ``devices`` are the devices that the program can use.

    Errors are those of the stock runtime: :class:`~etdev.runtime.child.ProgramFailureError` and
    :class:`~etdev.runtime.child.RuntimeCrashError`. If the executable cannot start, or if a library cannot be used, the
    first request raises :class:`~etdev.errors.MissingRequirementError`.
    """

    def __init__(
        self,
        executable: Path,
        *,
        libraries: Sequence[Path] = (),
        devices: Devices = NO_DEVICES,
        watch: bool = True,
        pools: Mapping[str, Pools] | None = None,
        limit: float = LIMIT,
    ) -> None:
        super().__init__(
            Child(
                lambda reading, writing: [os.fspath(executable), str(reading), str(writing)],
                limit=limit,
                environment=openvino_environment(),
            )
        )
        self._executable, self._libraries = executable, tuple(libraries)
        self._devices, self._watch = devices, watch
        self._pools = dict(pools or {})
        self._program: tuple[Path, tuple[Path, ...], bool] | None = None
        self._unused: dict[str, MethodUnused] = {}
        self._plans: dict[str, ExecutionPlan] = {}
        """Methods with one chain: the host counts the instructions of each chain from 0."""
        self._inputs: Mapping[str, DelegateInputs] = {}
        self._orders: dict[str, tuple[DimOrder | None, ...]] = {}
        """Maps a method to the dimension order of each input."""
        self.counts_heap = True
        """True if the child counts heap bytes, which requires glibc."""
        self.opened: dict[str, Opened] = {}
        """Maps the name of a loaded method to its memory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    @property
    def called(self) -> Called | None:
        """Time and memory of the calls that this thread's last request made; None before the first request."""
        return getattr(self._figures, "called", None)

    @called.setter
    def called(self, called: Called) -> None:
        self._figures.called = called

    @property
    def seconds(self) -> float:
        """Total time in seconds that the calls of this thread's last request spent in the runtime."""
        return sum(self.called.seconds) if self.called else 0.0

    def load(
        self,
        file: Path,
        *,
        shared: bool = False,
        data: Sequence[Path] = (),
        inputs: Mapping[str, DelegateInputs] | None = None,
    ) -> tuple[str, ...]:
        """Load a program with its data files. Return the names of its methods, including constant methods.

        With ``shared``, all methods use the same planned buffers. ``inputs`` contains a map for each method: from the
        position of a delegate call to the call's number of inputs. By default, these numbers are derived from the file.
        """
        with self._lock:
            self._crash, self._program, self.opened = None, (file, tuple(data), shared), {}
            self._unused, self._plans = {}, {}
            self._inputs = inputs or {}
            request = Request(Kind.LOAD)
            request.text(os.path.abspath(file))
            request.texts([os.path.abspath(path) for path in data])
            request.add("BQ", shared, ALIGNMENT)
            self._devices.add_to(request)
            names = self._ask(request).texts()
            if self._watch and self._devices.host_can_write:
                program = read_joined(file, data)
                self._unused = unused_bytes(program, self._inputs, shared=shared)
                self._plans = {plan.name: plan for plan in program.execution_plan if len(plan.chains) == 1}
            if shared:
                # Load all methods before the first call, because loading a method writes its initial state again.
                for name in names:
                    self._open(name)
            return names

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False, repeat: int = 1) -> tuple[Any, ...]:
        """Call a method and return its outputs: tensors and plain values.

        With ``fresh``, all state is reset first. ``repeat`` is the number of calls with the same inputs; only the
        outputs of the last call are returned. A crash loses all state, so the next call must be ``fresh``. Raises
        :class:`~etdev.errors.UsageError` for an input that is not valid in any program.
        """
        with self._lock:
            if self._crash is not None:
                if not fresh or self._program is None:
                    raise RuntimeCrashError(self._crash)
                file, data, shared = self._program
                self.load(file, shared=shared, data=data, inputs=self._inputs)
            if method not in self.opened:
                self._open(method)
            request = Request(Kind.CALL)
            request.text(method)
            request.add("BI", fresh, repeat)
            request.inputs(method, arrange_inputs(inputs, self._orders[method]))
            answer = self._ask(request)
        seconds = answer.take(f"{answer.number('I')}d")
        method_pool, temporary_pool, heap, heap_peak = answer.take("QQqq")
        damages, devices = answer.texts(), _device_counts(answer)
        self.called = Called(seconds, method_pool, temporary_pool, heap, heap_peak, damages, devices)
        return answer.values()

    def open(self, method: str) -> Opened:
        """Load a method, even if it is already loaded, and return the memory that it uses."""
        with self._lock:
            return self._open(method)

    def fail(self, faults: Iterable[Fault]) -> None:
        """Make device operations fail from now on; only for tests with simulated devices."""
        found = list(faults)
        request = Request(Kind.FAULTS)
        request.add("I", len(found))
        for fault in found:
            request.add("BQB", _OPERATIONS.index(fault.operation), fault.nth, fault.lasting)
        with self._lock:
            self._ask(request)

    def unload(self) -> Left:
        """Unload the program. Return the memory that is still allocated after that."""
        with self._lock:
            answer = self._ask(Request(Kind.UNLOAD))
            self._program, self.opened = None, {}
        return Left(answer.number("q"), _device_counts(answer))

    def register_twice(self) -> None:
        """Register the allocator of devices a second time, so that ExecuTorch ends the process; only for tests."""
        self._ask(Request(Kind.REGISTER_TWICE))

    def _open(self, method: str) -> Opened:
        pools = self._pools.get(method, Pools())
        request = Request(Kind.OPEN)
        request.text(method)
        sizes = (_NO_LIMIT if size is None else size for size in (pools.method, pools.temporary))
        request.add("QQQB", *sizes, pools.failing, self._watch)
        unused = self._unused.get(method, MethodUnused())
        _add_unused(request, unused.own)
        request.add("I", len(unused.nested))
        for nested in unused.nested:
            _add_unused(request, nested)
        answer = self._ask(request)
        self._orders[method] = tuple(_order(answer) for _ in range(answer.number("I")))
        buffers = [
            PlannedBuffer(Device(DeviceType(kind), index), size)
            for kind, index, size in (answer.take("bbQ") for _ in range(answer.number("I")))
        ]
        self.opened[method] = Opened(tuple(buffers), *answer.take("Qqq"))
        return self.opened[method]

    def _greet(self) -> None:
        with self._lock:
            if self._child.is_running:
                return
            try:
                self._child.start()
                answer = self._exchange(Request(Kind.HELLO))
            except (OSError, ProgramFailureError) as error:
                raise MissingRequirementError(
                    f"the native runtime cannot start: {error}", where=os.fspath(self._executable), hint=_UNUSABLE
                ) from error
            if self._libraries:
                for library in self._libraries:
                    self._open_library(library)
                answer = self._exchange(Request(Kind.HELLO))  # Now with what the libraries have registered.
            self._operators, self._backends, self._usable = (frozenset(answer.texts()) for _ in range(3))
            self.counts_heap = bool(answer.number("B"))

    def _open_library(self, library: Path) -> None:
        request = Request(Kind.LIBRARY)
        request.text(os.path.abspath(library))
        try:
            self._exchange(request)
        except ProgramFailureError as error:
            self._child.stop()  # It lacks the library, so no request may reach it.
            raise MissingRequirementError(
                f"the native runtime cannot use {library.name}: {error}", where=os.fspath(library), hint=compile_hint()
            ) from error

    def _ask(self, request: Request) -> Answer:
        self._greet()
        return self._exchange(request)

    def _exchange(self, request: Request) -> Answer:
        def talk(reading: BinaryIO, writing: BinaryIO) -> Answer | RefusedError:
            request.send(writing)
            try:
                return receive(reading, self._instruction_name)
            except RefusedError as error:
                return error

        try:
            answer, logged = self._child.exchange(talk)
        except RuntimeCrashError as error:
            self._crash, self.opened = str(error), {}
            raise
        if isinstance(answer, RefusedError):
            raise ProgramFailureError(f"{answer}" + (f" [{logged}]" if logged else ""))
        return answer

    def _instruction_name(self, method: str, position: int) -> str | None:
        """Return the operator or delegate of an instruction of the loaded program; None if it is not known."""
        plan = self._plans.get(method)
        if plan is None or position >= len(plan.instructions):
            return None
        return instruction_name(plan, plan.instructions[position])


def _add_unused(request: Request, unused: Unused) -> None:
    request.add("I", len(unused))
    for position, ranges in unused.items():
        request.add("qI", position, len(ranges))
        for buffer, start, end in ranges:
            request.add("IQQ", buffer - 1, start, end - start)


def _order(answer: Answer) -> DimOrder | None:
    rank = answer.number("i")
    return None if rank < 0 else answer.take(f"{rank}B")


def _device_counts(answer: Answer) -> dict[Device, DeviceCounts]:
    return {
        Device(DeviceType.CUDA, index): DeviceCounts(*numbers)
        for index, *numbers in (answer.take("b8Q") for _ in range(answer.number("I")))
    }
