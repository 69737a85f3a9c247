"""Client of the native host: ExecuTorch's own C++ runtime in a child process."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

from etdev.devices import Device, DeviceType
from etdev.errors import MissingRequirementError
from etdev.program.analysis.effects import DelegateInputs
from etdev.program.data_files.joined import read_joined
from etdev.runtime.child import LIMIT, Child, ProgramFailureError, RuntimeCrashError
from etdev.runtime.native.devices import NO_DEVICES, Devices
from etdev.runtime.native.measured import Called, DeviceCounts, Left, Opened, PlannedBuffer
from etdev.runtime.native.unused import Unused, unused_bytes
from etdev.runtime.native.wire import Answer, Kind, RefusedError, Request, receive

ALIGNMENT = 16
"""Alignment of planned buffers on the host, in bytes. Like most platforms' ``malloc``."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Failure of the ``nth`` operation of a kind on devices, counted from 1; of all later ones too if ``lasting``."""

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
    """Number of the allocation from each pool that fails, counted from 1; 0 for none."""


class NativeRuntime:
    """ExecuTorch's C++ runtime in a child process. A context manager, whose end kills the child.

    Each planned buffer has exactly its size, between pages that cannot be accessed. With ``watch``, bytes that no
    instruction has written yet hold poison, and a crash names its instruction. ``executable`` is that of
    :func:`~etdev.runtime.native.executable.host_executable`. ``devices`` says what the program's devices are.

    Errors are those of the stock runtime: :class:`~etdev.runtime.child.ProgramFailureError` and
    :class:`~etdev.runtime.child.RuntimeCrashError`. If the executable cannot start, the first request raises
    :class:`~etdev.errors.MissingRequirementError`.
    """

    def __init__(
        self,
        executable: Path,
        *,
        devices: Devices = NO_DEVICES,
        watch: bool = True,
        pools: Mapping[str, Pools] | None = None,
        alignment: int = ALIGNMENT,
        limit: float = LIMIT,
    ) -> None:
        self._executable = executable
        self._child = Child(
            lambda reading, writing: [os.fspath(executable), str(reading), str(writing)],
            limit=limit,
            environment=_environment(),
        )
        self._devices, self._watch, self._alignment = devices, watch, alignment
        self._pools = dict(pools or {})
        self._program: tuple[Path, tuple[Path, ...], bool] | None = None
        self._unused: dict[str, Unused] = {}
        self._inputs: Mapping[str, DelegateInputs] = {}
        self._crash: str | None = None
        """Description of the crash, after the loaded program crashed the child."""
        self._operators: frozenset[str] = frozenset()
        self._backends: frozenset[str] = frozenset()
        self._usable: frozenset[str] = frozenset()
        self.counts_heap = True
        """True if the heap is counted, which needs glibc."""
        self.opened: dict[str, Opened] = {}
        """Memory of each method that was loaded."""
        self.called: Called | None = None
        """Figures of the last call."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()

    @property
    def process_id(self) -> int:
        """Process id of the child. A new child has another one."""
        self._start()
        return self._child.process_id

    @property
    def operators(self) -> frozenset[str]:
        """Names of all operators that have kernels in the runtime, such as ``aten::add.out``."""
        self._start()
        return self._operators

    @property
    def backends(self) -> frozenset[str]:
        """Names of the backends that are linked into the runtime."""
        self._start()
        return self._backends

    @property
    def usable_backends(self) -> frozenset[str]:
        """Names of the backends that work on this machine. The others lack their libraries."""
        self._start()
        return self._usable

    @property
    def poisoned(self) -> frozenset[str]:
        """Names of the methods whose unused bytes hold poison. The data flow of the others cannot be followed."""
        return frozenset(self._unused)

    @property
    def seconds(self) -> float:
        """Seconds that the last request's calls spent in the runtime, in all."""
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

        With ``shared``, all methods use the same planned buffers. ``inputs`` has the number of inputs of each delegate
        call, by method and position. Without it, the numbers are derived from the file.
        """
        self._crash, self._program, self.opened = None, (file, tuple(data), shared), {}
        self._unused = {}
        self._inputs = inputs or {}
        request = Request(Kind.LOAD)
        request.text(os.path.abspath(file))
        request.texts([os.path.abspath(path) for path in data])
        request.add("BQ", shared, self._alignment)
        self._devices.add_to(request)
        names = self._ask(request).texts()
        if self._watch and self._devices.host_can_write:
            self._unused = unused_bytes(read_joined(file, data), self._inputs, shared=shared)
        if shared:
            # Load all methods before the first call, because loading a method writes its initial state again.
            for name in names:
                self._open(name)
        return names

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False, repeat: int = 1) -> tuple[Any, ...]:
        """Call a method and return its outputs: tensors and plain values.

        ``fresh`` resets all state first. ``repeat`` calls the method several times and returns the outputs of the last
        call. A crash loses all state, so only a ``fresh`` call can follow it.
        """
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
        request.values(inputs)
        answer = self._ask(request)
        seconds = answer.take(f"{answer.number('I')}d")
        method_pool, temporary_pool, heap, heap_peak = answer.take("QQqq")
        damages, devices = answer.texts(), _device_counts(answer)
        self.called = Called(seconds, method_pool, temporary_pool, heap, heap_peak, damages, devices)
        return answer.values()

    def open(self, method: str) -> Opened:
        """Load a method, again if it was loaded before, and return what that took."""
        return self._open(method)

    def fail(self, faults: Iterable[Fault]) -> None:
        """Make operations of devices fail from now on. Only for simulated devices and tests."""
        found = list(faults)
        request = Request(Kind.FAULTS)
        request.add("I", len(found))
        for fault in found:
            request.add("BQB", _OPERATIONS.index(fault.operation), fault.nth, fault.lasting)
        self._ask(request)

    def unload(self) -> Left:
        """Unload the program and return the memory that is still allocated."""
        answer = self._ask(Request(Kind.UNLOAD))
        self._program, self.opened = None, {}
        return Left(answer.number("q"), _device_counts(answer))

    def register_twice(self) -> None:
        """Register the allocator of devices a second time. ExecuTorch ends the process. For tests."""
        self._ask(Request(Kind.REGISTER_TWICE))

    def _open(self, method: str) -> Opened:
        pools = self._pools.get(method, Pools())
        request = Request(Kind.OPEN)
        request.text(method)
        sizes = (_NO_LIMIT if size is None else size for size in (pools.method, pools.temporary))
        request.add("QQQB", *sizes, pools.failing, self._watch)
        unused = self._unused.get(method, {})
        request.add("I", len(unused))
        for position, ranges in unused.items():
            request.add("qI", position, len(ranges))
            for buffer, start, end in ranges:
                request.add("IQQ", buffer - 1, start, end - start)
        answer = self._ask(request)
        buffers = [
            PlannedBuffer(Device(DeviceType(kind), index), size)
            for kind, index, size in (answer.take("bbQ") for _ in range(answer.number("I")))
        ]
        self.opened[method] = Opened(tuple(buffers), *answer.take("Qqq"))
        return self.opened[method]

    def _start(self) -> None:
        if self._child.is_running:
            return
        try:
            self._child.start()
            answer = self._exchange(Request(Kind.HELLO))
        except (OSError, ProgramFailureError) as error:
            raise MissingRequirementError(
                f"the native runtime cannot start: {error}", where=os.fspath(self._executable), hint=_UNUSABLE
            ) from error
        self._operators, self._backends, self._usable = (frozenset(answer.texts()) for _ in range(3))
        self.counts_heap = bool(answer.number("B"))

    def _ask(self, request: Request) -> Answer:
        self._start()
        return self._exchange(request)

    def _exchange(self, request: Request) -> Answer:
        def talk(reading: BinaryIO, writing: BinaryIO) -> Answer | RefusedError:
            request.send(writing)
            try:
                return receive(reading)
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


def _device_counts(answer: Answer) -> dict[Device, DeviceCounts]:
    return {
        Device(DeviceType.CUDA, index): DeviceCounts(*numbers)
        for index, *numbers in (answer.take("b8Q") for _ in range(answer.number("I")))
    }


def _environment() -> dict[str, str]:
    """Return the variables that tell OpenVINO's backend where its library is."""
    import importlib.util

    spec = importlib.util.find_spec("openvino")
    if spec is None or spec.origin is None or "OPENVINO_LIB_PATH" in os.environ:
        return {}
    found = sorted((Path(spec.origin).parent / "libs").glob("libopenvino_c.so*"))
    return {"OPENVINO_LIB_PATH": os.fspath(found[0])} if found else {}
