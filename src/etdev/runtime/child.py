"""Child process that runs programs. Requests and answers go through pipes, and its own output goes to a log."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from threading import Event, Lock, Timer
from typing import BinaryIO, TypeVar

T = TypeVar("T")

LIMIT = 600.0
"""Maximum seconds for one answer. Calls take less, but the import of a runtime can take minutes on slow machines."""

_TAIL_LINES = 3
_NOISE = re.compile(
    r"\[cpuinfo_utils\.cpp:\d+\] "
    r"|Failed to load \S.*/torchao/_C_\S*\.so: "
    r"|W\d{4} .*\] <enum 'KernelPreference'> is an Enum subclass"
    r"|I [\d:.]+ executorch:(OpenvinoBackend|cpuinfo_utils)\.cpp:\d+\] "
    r"|E [\d:.]+ executorch:method\.cpp:\d+\] arg \d+ with type id \d+"
)
"""Beginnings of lines that the packages executorch, torchao and torch print on every start, and of lines that only
list the arguments of a failed instruction."""


class ProgramFailureError(Exception):
    """Error for a program or call that the runtime refused. The message includes the log of the runtime."""


class RuntimeCrashError(ProgramFailureError):
    """Error for a program that crashed the process of the runtime, or did not return in time."""


class Child:
    """Process that answers requests, one at a time.

    ``command`` returns the command line for two inherited file descriptors: one to read requests from, one to write
    answers to. ``environment`` is added to the environment of this process. If the child takes longer than ``limit``
    seconds for an answer, it is killed.
    """

    def __init__(
        self, command: Callable[[int, int], list[str]], *, limit: float, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command, self.limit = command, limit
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: FileIO | None = None
        self._ended = "the runtime's process was ended"
        """How the last process ended. A request of another thread may have waited meanwhile."""
        self._turn = Lock()
        """Lock for one request at a time. The metric of a config may call the program from several threads."""

    @property
    def is_running(self) -> bool:
        """True from :meth:`start` until the process was killed or has crashed."""
        return self._process is not None

    @property
    def process_id(self) -> int:
        """Process id. Only for a running child."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process. Its output goes to the log of earlier ones. Raises OSError."""
        if self._log is None:
            self._log = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - `close` closes it
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        try:
            self._process = subprocess.Popen(
                self._command(theirs_in, theirs_out),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs_in, theirs_out),
                env=self._environment,
            )
        except BaseException:
            os.close(ours_in)
            os.close(ours_out)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._reading: BinaryIO = os.fdopen(ours_in, "rb")
        self._writing: BinaryIO = os.fdopen(ours_out, "wb")

    def stop(self) -> int | None:
        """Kill the process and return its exit code, or None if it does not run."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        process.kill()  # First, because closing may wait for the process to read what is not sent yet.
        with suppress(OSError):
            self._writing.close()
        self._reading.close()
        return process.wait()

    def close(self) -> None:
        """Kill the process and delete its log."""
        self.stop()
        if self._log is not None:
            self._log.close()
            self._log = None

    def exchange(self, talk: Callable[[BinaryIO, BinaryIO], T]) -> tuple[T, str]:
        """Send a request and return the answer, with the last lines that the process has logged meanwhile.

        ``talk`` gets the stream of answers and the stream of requests. If the process ends during ``talk``, or takes
        too long, :class:`RuntimeCrashError` is raised. ``talk`` may also raise :class:`Crash`, if the process has
        reported a crash before its end. Any other exception kills the process, because its answer is not read.
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
        """Kill the process if the block takes longer than the limit. The yielded event is then set."""
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
        """Return the last lines of the log after the position ``since``.

        Parent and child share the position in the log file. Reading must not change it.
        """
        assert self._log is not None
        descriptor = self._log.fileno()
        text = os.pread(descriptor, os.fstat(descriptor).st_size - since, since).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not _NOISE.match(line)]
        return " | ".join(lines[-_TAIL_LINES:])


class Crash(Exception):  # noqa: N818 - not an error of etdev, but a report of the process
    """Report of a process about its own crash. The text continues the sentence "ended with signal X"."""
