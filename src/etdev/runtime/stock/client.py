"""Client that starts the process of the stock runtime and sends requests to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Timer
from typing import Any, BinaryIO, Self

from etdev import compat
from etdev.errors import MissingRequirementError, ProgramError
from etdev.program import Program
from etdev.program.data_files.joined import read_joined
from etdev.runtime.stock.joined import JoinedFile
from etdev.runtime.stock.wire import receive, send

_TAIL_LINES = 3
_NOISE = re.compile(
    r"\[cpuinfo_utils\.cpp:\d+\] "
    r"|Failed to load \S.*/torchao/_C_\S*\.so: "
    r"|W\d{4} .*\] <enum 'KernelPreference'> is an Enum subclass"
)
"""Beginnings of lines that the packages executorch, torchao and torch print on every start."""

_LIMIT = 600.0
"""Maximum seconds for one answer. Calls take less, but the import of the runtime can take minutes on slow machines."""


class ProgramFailureError(Exception):
    """Error for a program or call that the runtime refused. The message includes the log of the runtime."""


class RuntimeCrashError(ProgramFailureError):
    """Error for a program that crashed the process of the runtime, or did not return in time."""


class StockRuntime:
    """ExecuTorch's Python runtime in a child process. A context manager, whose end kills the child.

    The child starts at once and imports its modules; the first request waits for that. ``imports`` are modules that
    register custom kernels; ``path`` is searched for them first. If the child crashes, or takes longer than ``limit``
    seconds, :class:`RuntimeCrashError` is raised and the next program gets a new child. Raises
    :class:`~etdev.errors.MissingRequirementError` if the child cannot start.
    """

    def __init__(self, *, imports: Sequence[str] = (), path: Sequence[Path] = (), limit: float = _LIMIT) -> None:
        self.limit = limit
        """Maximum seconds for one answer."""
        self.seconds = 0.0
        """Seconds that the last call spent in the runtime, or the sum of all ``repeat`` calls."""
        self._imports, self._path = list(imports), [str(folder) for folder in path]
        self._process: subprocess.Popen[bytes] | None = None
        self._operators: frozenset[str] = frozenset()
        self._backends: frozenset[str] = frozenset()
        self._usable: frozenset[str] = frozenset()
        self._greeted = False
        self._file: Path | None = None
        self._data: tuple[Path, ...] = ()
        self._shared = False
        self._joined = JoinedFile()
        self._crash: str | None = None
        """Description of the crash, after the loaded program crashed the child."""
        self._turn = Lock()
        """Lock for one request at a time. The metric of a config may call the program from several threads."""

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile(buffering=0)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._log.close()
        self._joined.close()

    def _start(self) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "etdev.runtime.stock.worker", str(theirs_in), str(theirs_out)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(theirs_in, theirs_out),
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._reading: BinaryIO = os.fdopen(ours_in, "rb")
        self._writing: BinaryIO = os.fdopen(ours_out, "wb")
        self._greeted = False

    def _stop(self) -> int | None:
        """Kill the child and return its exit code, or None if there is no child."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        with suppress(OSError):
            self._writing.close()
        self._reading.close()
        process.kill()
        return process.wait()

    @property
    def process_id(self) -> int:
        """Process id of the child. A new child has another one."""
        self._greet()
        assert self._process is not None
        return self._process.pid

    @property
    def operators(self) -> frozenset[str]:
        """Names of all operators that have kernels in the runtime, such as ``aten::add.out``."""
        self._greet()
        return self._operators

    @property
    def backends(self) -> frozenset[str]:
        """Names of the backends that are compiled into the runtime."""
        self._greet()
        return self._backends

    @property
    def usable_backends(self) -> frozenset[str]:
        """Names of the backends that work on this machine. The others lack their libraries."""
        self._greet()
        return self._usable

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        """Load a program with its data files. Return the names of its methods, including constant methods.

        With ``shared``, all methods use the same buffers, as in ``executorch.runtime.Runtime``. They then share
        everything that has the same place in the file. Otherwise each method has its own memory and state.

        ExecuTorch's loader for shared buffers accepts no data file, and the other one accepts one. In all other cases,
        program and data files are joined in a :class:`JoinedFile`.

        Raises :class:`ProgramFailureError` if a data file does not match the program, because the runtime could crash.
        """
        self._crash, self._file, self._shared, self._data = None, file, shared, tuple(data)
        if data and (shared or len(data) > 1):
            file, data = self._joined.path(file, data, _fitting), ()
        elif data:
            _fitting(file, data)
        # The child may have another working folder: that of this process at its start.
        named = [os.path.abspath(path) for path in (file, *data)]
        header = {"ask": "load", "file": named[0], "data": named[1] if data else None, "shared": shared}
        return tuple(self._ask(header)[0]["methods"])

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False, repeat: int = 1) -> tuple[Any, ...]:
        """Call a method and return its outputs: tensors and plain values.

        ``fresh`` resets all state first. ``repeat`` calls the method several times and returns the outputs of the last
        call. A crash loses all state, so only a ``fresh`` call can follow it.
        """
        if self._crash is not None:
            if not fresh or self._file is None:
                raise RuntimeCrashError(self._crash)
            self.load(self._file, shared=self._shared, data=self._data)
        answer, outputs = self._ask({"ask": "call", "method": method, "fresh": fresh, "repeat": repeat}, inputs)
        self.seconds = float(answer["seconds"])
        return tuple(outputs)

    def _greet(self) -> None:
        if self._process is None:
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
        with self._turn:
            before = os.fstat(self._log.fileno()).st_size
            with self._killed_after_limit() as late:
                try:
                    send(self._writing, header, values)
                    answer, outputs = receive(self._reading)
                except (EOFError, BrokenPipeError, ConnectionResetError):
                    self._crash = self._crash_text(before, late=late.is_set())
                    raise RuntimeCrashError(self._crash) from None
        if "error" in answer:
            logged = self._logged(before)
            raise ProgramFailureError(answer["error"] + (f" [{logged}]" if logged else ""))
        return answer, outputs

    @contextmanager
    def _killed_after_limit(self) -> Iterator[Event]:
        """Kill the child if the block takes longer than the limit. The yielded event is then set."""
        assert self._process is not None
        process, late = self._process, Event()

        def kill() -> None:
            late.set()
            process.kill()

        timer = Timer(self.limit, kill)
        timer.daemon = True
        timer.start()
        try:
            yield late
        finally:
            timer.cancel()

    def _crash_text(self, since: int, *, late: bool) -> str:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)  # The pipe is closed, so the child is about to end.
        code = self._stop() or 0
        if late:
            what = f"the runtime did not answer within {self.limit:g} s, so its process was killed"
        else:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            what = f"the runtime's process ended with {how}"
        logged = self._logged(since)
        return what + (f" [{logged}]" if logged else "")

    def _logged(self, since: int) -> str:
        """Return the last lines of the log after the position ``since``.

        Parent and child share the position in the log file. Reading must not change it.
        """
        descriptor = self._log.fileno()
        text = os.pread(descriptor, os.fstat(descriptor).st_size - since, since).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not _NOISE.match(line)]
        return " | ".join(lines[-_TAIL_LINES:])


def _fitting(file: Path, data: Sequence[Path]) -> Program:
    """Join a program with its data files. Raise :class:`ProgramFailureError` if they do not match."""
    try:
        return read_joined(file, data)
    except ProgramError as error:
        raise ProgramFailureError(str(error)) from error
