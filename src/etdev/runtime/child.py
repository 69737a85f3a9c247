"""Child process that runs programs.

Requests and answers go through pipes. The output of the child goes to a log file.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Event, Lock, RLock, Timer, local
from typing import BinaryIO, TypeVar

T = TypeVar("T")

LIMIT = 600.0
"""Default maximum time for one answer, in seconds.

Calls take less time, but importing a runtime can take minutes on slow machines.
"""

_CHUNK = 1 << 20
_TAIL_LINES = 3
_NOISE = re.compile(
    r"\[cpuinfo_utils\.cpp:\d+\] "
    r"|Failed to load \S.*/torchao/_C_\S*\.so: "
    r"|W\d{4} .*\] <enum 'KernelPreference'> is an Enum subclass"
    r"|I [\d:.]+ executorch:(OpenvinoBackend|cpuinfo_utils)\.cpp:\d+\] "
    r"|(E [\d:.]+ executorch:|\[)method\.cpp:\d+\] arg \d+ with type id \d+"
)
"""Pattern that matches the beginning of a log line. Error messages leave out the lines that match.

The packages executorch, torchao and torch print some of these lines on every start. Other lines only list the arguments
of a failed instruction.
"""


class ProgramFailureError(Exception):
    """Error for a program or call that the runtime refused. The message includes the log of the runtime."""


class RuntimeCrashError(ProgramFailureError):
    """Error for a program that crashed the runtime's process, or that did not return in time."""


class Child:
    """Child process that answers requests, one at a time.

    ``command`` gets two file descriptors and returns the command line of the child. The child inherits both
    descriptors: it reads requests from the first one and writes answers to the second one. ``environment`` contains
    variables to add to the parent's environment. The child is killed if an answer takes longer than ``limit`` seconds.
    """

    def __init__(
        self, command: Callable[[int, int], list[str]], *, limit: float, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command, self.limit = command, limit
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: FileIO | None = None
        self._ended = "the runtime's process was ended"
        """Reason why the last process ended. A request that finds no process raises an error with this text."""
        self._turn = Lock()
        """Lock that permits one request at a time, because several threads may call the program."""

    @property
    def is_running(self) -> bool:
        """True from :meth:`start` until the process is killed or has crashed."""
        return self._process is not None

    @property
    def process_id(self) -> int:
        """Process id of the child, which must be running."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process and append its output to the log. Raises OSError."""
        if self._log is None:
            self._log = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - `close` closes it
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        watched, self._alive = os.pipe()
        try:
            self._process = subprocess.Popen(
                self._command(theirs_in, theirs_out),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs_in, theirs_out, watched),
                env=self._environment,
            )
            _end_with_this_process(watched, self._process.pid)
        except BaseException:
            os.close(ours_in)
            os.close(ours_out)
            os.close(self._alive)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
            os.close(watched)
        self._reading: BinaryIO = os.fdopen(ours_in, "rb")
        self._writing: BinaryIO = os.fdopen(ours_out, "wb")

    def stop(self) -> int | None:
        """Kill the process and return its exit code; None if no process is running."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.kill()  # First, because closing may wait for the process to read what is not sent yet.
        with suppress(OSError):
            self._writing.close()
        self._reading.close()
        os.close(self._alive)
        return process.wait()

    def close(self) -> None:
        """Kill the process and delete its log."""
        self.stop()
        if self._log is not None:
            self._log.close()
            self._log = None

    def exchange(self, talk: Callable[[BinaryIO, BinaryIO], T]) -> tuple[T, str]:
        """Send a request and return the answer, together with the last lines that were added to the log.

        ``talk`` gets the stream of answers and the stream of requests, and returns the answer. ``talk`` may raise
        :class:`Crash` if the process reports its own crash. Raises :class:`RuntimeCrashError` if the process ends or
        the answer takes too long. Any other exception of ``talk`` kills the process, because an answer may remain
        unread.
        """
        with self._turn:
            if self._process is None:
                raise RuntimeCrashError(self._ended)
            assert self._log is not None
            before = os.fstat(self._log.fileno()).st_size
            with self._killed_after_limit() as late:
                try:
                    answer = talk(self._reading, self._writing)
                except (EOFError, BrokenPipeError, ConnectionResetError, Crash) as error:
                    detail = str(error) if isinstance(error, Crash) else ""
                    self._ended = self._crash_text(before, detail, late=late.is_set())
                    raise RuntimeCrashError(self._ended) from None
                except BaseException:
                    self.stop()
                    raise
            return answer, self._logged(before)

    @contextmanager
    def _killed_after_limit(self) -> Iterator[Event]:
        """Kill the process if the block takes longer than the limit; in that case, set the yielded event."""
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

    def _crash_text(self, since: int, detail: str, *, late: bool) -> str:
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)  # The pipe is closed, so the process is about to end.
        code = self.stop() or 0
        if late:
            what = f"the runtime did not answer within {self.limit:g} s, so its process was killed"
        else:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            what = f"the runtime's process ended with {how}{detail}"
        logged = self._logged(since)
        return what + (f" [{logged}]" if logged else "")

    def _logged(self, since: int) -> str:
        """Return the last lines that were written to the log after the position ``since``.

        Parent and child share one position in the log file, so this method must not change the position.
        """
        assert self._log is not None
        descriptor = self._log.fileno()
        text = os.pread(descriptor, os.fstat(descriptor).st_size - since, since).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not _NOISE.match(line)]
        return " | ".join(lines[-_TAIL_LINES:])


class ChildRuntime(ABC):
    """Runtime in a child process, which several threads may use."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._lock = RLock()
        """Lock that a thread holds while it sends a request and changes the attributes of this object."""
        self._figures = local()
        """Figures of each thread's last request."""
        self._crash: str | None = None
        """Description of the crash if the loaded program has crashed the child; otherwise None."""
        self._operators: frozenset[str] = frozenset()
        self._backends: frozenset[str] = frozenset()
        self._usable: frozenset[str] = frozenset()

    @abstractmethod
    def _greet(self) -> None:
        """Start the child if none is running, and ask it for its operators and backends."""

    @property
    def process_id(self) -> int:
        """Process id of the child; changes when a new child starts."""
        self._greet()
        return self._child.process_id

    @property
    def operators(self) -> frozenset[str]:
        """Names of all operators that have kernels in the runtime, such as ``aten::add.out``."""
        self._greet()
        return self._operators

    @property
    def backends(self) -> frozenset[str]:
        """Names of the backends in the runtime, those of native libraries included."""
        self._greet()
        return self._backends

    @property
    def usable_backends(self) -> frozenset[str]:
        """Names of the backends that work on this machine. Any other backend lacks a library on this machine."""
        self._greet()
        return self._usable


def _end_with_this_process(watched: int, child: int) -> None:
    """End a child when this process ends, even if this process is killed or the child does not respond.

    ``watched`` is the read end of a pipe, which the child inherits. Only this process has the write end. When the write
    end is closed, Linux sends SIGIO to the child. The default action of SIGIO ends the child. On other systems, the
    child ends when it reads its next request.
    """
    if sys.platform == "linux":
        fcntl.fcntl(watched, fcntl.F_SETOWN, child)
        fcntl.fcntl(watched, fcntl.F_SETFL, fcntl.fcntl(watched, fcntl.F_GETFL) | os.O_ASYNC)


class Crash(Exception):  # noqa: N818 - not an error of etdev, but a report of the process
    """Report of a process about its own crash. Error messages append it to text such as "ended with signal SIGSEGV"."""


def read_exactly(stream: BinaryIO, length: int) -> bytearray:
    """Read a number of bytes. Raises :class:`EOFError` if the other process closes the stream before."""
    data = bytearray(length)
    view, done = memoryview(data), 0
    while done < length:
        read = stream.readinto(view[done : done + _CHUNK])  # type: ignore[attr-defined]
        if not read:
            raise EOFError
        done += read
    return data


def openvino_environment() -> dict[str, str]:
    """Return the environment variables that OpenVINO's backend needs to find its library. The result may be empty."""
    spec = importlib.util.find_spec("openvino")
    if spec is None or spec.origin is None or "OPENVINO_LIB_PATH" in os.environ:
        return {}
    found = sorted((Path(spec.origin).parent / "libs").glob("libopenvino_c.so*"))
    return {"OPENVINO_LIB_PATH": os.fspath(found[0])} if found else {}
