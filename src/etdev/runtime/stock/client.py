"""Client that starts the process of the stock runtime and sends requests to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

from etdev import compat
from etdev.errors import MissingRequirementError, ProgramError
from etdev.program import Program
from etdev.program.data_files.external import returns_external_constant
from etdev.program.data_files.joined import read_joined
from etdev.runtime.child import LIMIT, Child, ChildRuntime, ProgramFailureError, RuntimeCrashError, openvino_environment
from etdev.runtime.dim_orders import DimOrder, arrange_inputs, input_orders
from etdev.runtime.stock.joined import JoinedFile
from etdev.runtime.stock.wire import receive, send


class StockRuntime(ChildRuntime):
    """ExecuTorch's Python runtime in a child process; a context manager that kills the child at exit.

    Entering the context starts the child, which imports its modules. The first request waits for the end of these
    imports. ``imports`` are modules that register custom kernels, and ``path`` has the folders to search first. A
    request raises :class:`RuntimeCrashError` if the child crashes or needs more than ``limit`` seconds. In this case,
    the next program gets a new child. If the child cannot start, a request raises
    :class:`~etdev.errors.MissingRequirementError`.
    """

    def __init__(self, *, imports: Sequence[str] = (), path: Sequence[Path] = (), limit: float = LIMIT) -> None:
        super().__init__(Child(_command, limit=limit, environment=openvino_environment()))
        self._imports, self._path = list(imports), [str(folder) for folder in path]
        self._greeted = False
        self._file: Path | None = None
        self._data: tuple[Path, ...] = ()
        self._shared = False
        self._orders: dict[str, tuple[DimOrder | None, ...]] = {}
        """Maps a method to the dimension order of each input."""
        self._joined = JoinedFile()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()
        self._joined.close()

    def _start(self) -> None:
        self._child.start()
        self._greeted = False

    @property
    def limit(self) -> float:
        """Maximum time for one answer, in seconds."""
        return self._child.limit

    @limit.setter
    def limit(self, seconds: float) -> None:
        self._child.limit = seconds

    @property
    def seconds(self) -> float:
        """Seconds that this thread's last call spent in the runtime; with ``repeat``, the sum of all calls."""
        return getattr(self._figures, "seconds", 0.0)

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        """Load a program with its data files. Return the names of its methods, including constant methods.

        With ``shared``, all methods use the same buffers, as in ``executorch.runtime.Runtime``. Values with
        the same buffer and offset in the file are shared between methods. Without ``shared``, each method has its own
        memory and state.

        ExecuTorch's loader for shared buffers accepts one data file in 1.5.1, and none in 1.4.1. Its other loader
        accepts a single data file, but returns empty memory if a method returns a constant from that file. For
        shared buffers, several data files or such a constant, etdev joins program and data in a :class:`JoinedFile`.

        Raises :class:`ProgramFailureError` if the runtime refuses the program or etdev cannot read it. Also raises this
        error if a data file does not match the program, because such a file could crash the runtime.
        """
        with self._lock:
            self._crash, self._file, self._shared, self._data = None, file, shared, tuple(data)
            if data and (shared or len(data) > 1 or returns_external_constant(_read(file))):
                file, data = self._joined.path(file, data, _read), ()
            elif data:
                _read(file, data)
            # The child may have another working folder: that of this process at its start.
            named = [os.path.abspath(path) for path in (file, *data)]
            header = {"ask": "load", "file": named[0], "data": named[1] if data else None, "shared": shared}
            methods = tuple(self._ask(header)[0]["methods"])
            self._orders = {plan.name: input_orders(plan) for plan in _read(self._file).execution_plan}
            return methods

    def set_threads(self, count: int | None) -> int:
        """Set the number of threads of the runtime's pool, unless it is None; return the number.

        Kernels and XNNPACK use these threads. Call this method before :meth:`load`.
        """
        with self._lock:
            return int(self._ask({"ask": "threads", "count": count})[0]["threads"])

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False, repeat: int = 1) -> tuple[Any, ...]:
        """Call a method and return its outputs: tensors and plain values.

        With ``fresh``, all state is reset first. ``repeat`` is the number of calls with the same inputs; only the
        outputs of the last call are returned. A crash loses all state, so the next call must be ``fresh``.
        """
        with self._lock:
            if self._crash is not None:
                if not fresh or self._file is None:
                    raise RuntimeCrashError(self._crash)
                self.load(self._file, shared=self._shared, data=self._data)
            header = {"ask": "call", "method": method, "fresh": fresh, "repeat": repeat}
            answer, outputs = self._ask(header, arrange_inputs(inputs, self._orders.get(method, ())))
        self._figures.seconds = float(answer["seconds"])
        return tuple(outputs)

    def _greet(self) -> None:
        with self._lock:
            if not self._child.is_running:
                self._start()
            if self._greeted:
                return
            if (found := compat.installed()) is not None and not compat.is_supported(found):
                raise MissingRequirementError(compat.unsupported(found), hint=compat.INSTALL_SUPPORTED)
            try:
                answer, _ = self._exchange({"ask": "hello", "imports": self._imports, "path": self._path}, ())
            except ProgramFailureError as error:
                what = f" with {', '.join(self._imports)}" if self._imports else ""
                raise MissingRequirementError(
                    f"ExecuTorch's runtime cannot start{what}: {error}",
                    hint="run `etdev doctor` to see which packages are missing",
                ) from error
            self._greeted = True
            self._operators = frozenset(answer["operators"])
            self._backends = frozenset(answer["backends"])
            self._usable = frozenset(answer["usable"])

    def _ask(self, header: dict[str, Any], values: Sequence[Any] = ()) -> tuple[dict[str, Any], list[Any]]:
        self._greet()
        return self._exchange(header, values)

    def _exchange(self, header: dict[str, Any], values: Sequence[Any]) -> tuple[dict[str, Any], list[Any]]:
        def talk(reading: BinaryIO, writing: BinaryIO) -> tuple[dict[str, Any], list[Any]]:
            send(writing, header, values)
            return receive(reading)

        try:
            (answer, outputs), logged = self._child.exchange(talk)
        except RuntimeCrashError as error:
            self._crash = str(error)
            raise
        if "error" in answer:
            raise ProgramFailureError(answer["error"] + (f" [{logged}]" if logged else ""))
        return answer, outputs


def _command(reading: int, writing: int) -> list[str]:
    return [sys.executable, "-P", "-m", "etdev.runtime.stock.worker", str(reading), str(writing)]


def _read(file: Path, data: Sequence[Path] = ()) -> Program:
    """Join a program with its data files. Raise :class:`ProgramFailureError` if they do not match."""
    try:
        return read_joined(file, data)
    except ProgramError as error:
        raise ProgramFailureError(str(error)) from error
