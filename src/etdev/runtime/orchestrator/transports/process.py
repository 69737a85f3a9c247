"""Transport to workers that are processes. The processes are spawned, not forked."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.spawn import get_preparation_data
from pickle import dumps
from threading import Event, Thread, current_thread
from typing import Any

from etdev.runtime.hostmem import host_bytes
from etdev.runtime.orchestrator.errors import OrchestratorError
from etdev.runtime.orchestrator.messages import Job
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.orchestrator.transports.base import Done, Health, Transport, Unknown
from etdev.runtime.orchestrator.transports.process_parts import (
    Read,
    decode,
    dump,
    dump_job,
    first_part,
    load_error,
    load_outcome,
    nothing,
)
from etdev.runtime.orchestrator.transports.process_wire import Channel, Message
from etdev.runtime.orchestrator.transports.process_worker import Kind

_BOOT = "import sys; sys.path[:] = {path}; from {module} import main; main({descriptor})"
_START_SECONDS = 120.0
"""Maximum time in seconds for the start of a worker."""
_END_SECONDS = 1.0
"""Maximum time in seconds between the command to stop and the end of a worker."""
_KILL_SECONDS = 10.0
"""Maximum time in seconds for a killed process to end."""
_LOOK_SECONDS = 0.2
"""Interval in seconds between checks of a process, on systems without ``pidfd_open``."""
_MAIN = ("sys_argv", "init_main_from_name", "init_main_from_path")


class ProcessTransport(Transport):
    """Transport with one process and one thread per worker; the thread starts the process and receives its answers."""

    def __init__(self, specs: Sequence[WorkerSpec]) -> None:
        super().__init__(specs)
        self._lanes: list[_Lane] = []

    def start(self, lost: Unknown) -> None:
        """Start all processes at the same time."""
        self._lost = lost
        self._lanes = [_Lane(number, spec, lost) for number, spec in enumerate(self.specs)]
        _start(self._lanes)

    def alloc(self, worker: int, buffer: int, nbytes: int, done: Done) -> None:
        """Allocate a buffer, even while the process runs a task."""
        self._lanes[worker].ask(Kind.ALLOC, [dumps((buffer, nbytes))], nothing, done)

    def free(self, worker: int, buffer: int, done: Done) -> None:
        """Free a buffer, even while the process runs a task; an object is closed after the task."""
        self._lanes[worker].ask(Kind.FREE, [dumps((buffer,))], nothing, done)

    def put(self, worker: int, buffer: int, offset: int, data: Any, done: Done) -> None:
        """Copy host bytes to a buffer, even while the process runs a task."""
        self._lanes[worker].ask(Kind.PUT, [dumps((buffer, offset)), host_bytes(data)], nothing, done)

    def get(self, worker: int, buffer: int, offset: int, nbytes: int, done: Done) -> None:
        """Copy bytes of a buffer to the host, even while the process runs a task."""
        self._lanes[worker].ask(Kind.GET, [dumps((buffer, offset, nbytes))], first_part, done)

    def run(self, worker: int, job: Job, done: Done) -> None:
        """Run a job in the main thread of the process.

        Raises :class:`~etdev.errors.UsageError` if an argument cannot be pickled.
        """
        self._lanes[worker].ask(Kind.RUN, dump_job(job), load_outcome, done)

    def health(self, worker: int) -> Health:
        """Return whether a worker's process is alive, and how many bytes were allocated at its last answer."""
        lane = self._lanes[worker]
        return Health(lane.alive, lane.pid, lane.live_bytes if lane.alive else 0)

    def restart(self, worker: int) -> None:
        """Start a new process for a lost worker."""
        lane = _Lane(worker, self.specs[worker], self._lost)
        _start([lane])
        self._lanes[worker] = lane

    def kill(self, worker: int) -> None:
        """Kill the process, and return after the worker is recorded as lost."""
        self._lanes[worker].kill()

    def close(self) -> None:
        """Tell all processes to end, and kill the processes that do not end in time."""
        for lane in self._lanes:
            lane.end()
        until = time.monotonic() + _END_SECONDS
        for lane in self._lanes:
            lane.kill(until - time.monotonic())


class _Lane:
    """Process of one worker, and the connection to that process. A restart creates a new :class:`_Lane`."""

    def __init__(self, number: int, spec: WorkerSpec, lost: Unknown) -> None:
        self._number, self._spec, self._lost = number, spec, lost
        self.pid = self.live_bytes = 0
        self.alive = False
        """True from the start of the process until its loss is reported."""
        self.failure: BaseException | None = None
        """Error that prevented the start of the process; None if there was no error."""
        self.started = Event()
        """Event that is set after the process has started or failed to start."""
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel
        self._over = Event()
        self._ending = False
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[Read, Done]] = {}
        """Maps the number of an unanswered command to a pair: the decoder of the answer, and the callback."""
        self._main = _describe_main()
        self._thread = Thread(target=self._live, name=f"etdev worker {number}", daemon=True)

    def begin(self) -> None:
        """Start the process in the background."""
        self._thread.start()

    def ask(self, kind: Kind, parts: Sequence[Any], read: Read, done: Done) -> None:
        """Send a command. If the worker is lost, send nothing and do not call ``done``."""
        if self._over.is_set():
            return
        number = next(self._numbers)
        self._asked[number] = read, done
        self._channel.send(Message(number, kind, parts))

    def end(self) -> None:
        """Tell the process to end, and do not report the end as a loss."""
        self._ending = True
        if self.alive:
            self._channel.send(Message(0, Kind.STOP, ()))

    def kill(self, seconds: float = 0.0) -> None:
        """Wait up to ``seconds`` for the process to end; after that time, kill the process and wait for its end."""
        waits = self._thread.ident is not None and current_thread() is not self._thread
        if waits and self._over.wait(max(seconds, 0.0)):
            return
        if self._process is not None:
            self._process.kill()
        if waits:
            self._over.wait(_KILL_SECONDS)

    def _live(self) -> None:
        """Run the worker's thread: start the process, and receive answers until the process ends.

        On Linux, the system ends the process if this thread ends.
        """
        try:
            self._start()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for the start
            self.failure = error
            if self._process is not None:
                self._process.kill()
            self._reap()
            self._over.set()
            self.started.set()
            return
        self.alive = True
        self.started.set()
        broken = ""
        try:
            self._listen()
        except Exception as error:  # noqa: BLE001 - after any error, answers are not read any more
            broken = f"its answer is invalid: {type(error).__name__}: {error}"
        reason = self._reap()
        try:
            if not self._ending:
                self._lost(self._number, broken or reason)
        finally:
            self.alive = False
            self._over.set()
            self._asked.clear()

    def _start(self) -> None:
        # The process inherits the blocked signal. So an interrupt cannot end the process before it ignores interrupts.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        ours, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            try:
                self._process = subprocess.Popen(
                    [sys.executable, *_interpreter_flags(), "-c", _boot(descriptor)],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(descriptor,),
                )
            except OSError as error:
                ours.close()
                raise OrchestratorError(f"worker {self._number} did not start: {error}") from error
        self.pid = self._process.pid
        self._sentinel = _open_sentinel(self.pid)
        self._channel = Channel(ours, sentinel=self._sentinel)
        if self._ending:
            self._process.kill()  # Before the process existed, `end` and `kill` had no effect on it.
        self._channel.send(Message(0, Kind.START, dump((self._number, self._spec, self._main))))
        answers: list[BaseException | None] = []
        self._asked[0] = nothing, lambda _, error: answers.append(error)
        try:
            while not answers:
                self._receive()
        except EOFError:
            raise OrchestratorError(
                f"worker {self._number} did not start: {self._reap()}", hint="see the worker's output on stderr"
            ) from None
        if answers[0] is not None:
            raise answers[0]

    def _listen(self) -> None:
        """Receive answers until the process ends."""
        try:
            while True:
                self._receive()
        except EOFError:
            return

    def _receive(self) -> None:
        assert self._process is not None
        messages = self._channel.receive(None if self._sentinel is not None else _LOOK_SECONDS)
        if not messages and self._sentinel is None and self._process.poll() is not None:
            raise EOFError
        while messages:
            self._take(messages.popleft())

    def _take(self, message: Message) -> None:
        """Call the callback of the command that a message answers."""
        read, done = self._asked.pop(message.number)
        self.live_bytes = message.stamp
        if message.kind == Kind.FAILED:
            done(None, load_error(message.parts))
        else:
            done(*decode(self._number, message.parts, read))

    def _reap(self) -> str:
        """Wait for the process, close its resources, and return the reason for its end."""
        if self._process is None:
            return "its process was never created"
        try:
            code = self._process.wait(_END_SECONDS)
            reason = _explain(self.pid, code)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            reason = f"process {self.pid} closed its connection"
        self._channel.close()
        if self._sentinel is not None:
            os.close(self._sentinel)
            self._sentinel = None
        return reason


def _start(lanes: Sequence[_Lane]) -> None:
    """Start workers at the same time; if a worker does not start, end all workers and raise the error."""
    until = time.monotonic() + _START_SECONDS
    try:
        for lane in lanes:
            lane.begin()
        for lane in lanes:
            if not lane.started.wait(until - time.monotonic()):
                raise OrchestratorError(f"a worker did not start within {_START_SECONDS:g} s")
            if lane.failure is not None:
                raise lane.failure
    except BaseException:
        for lane in lanes:
            lane.end()
        for lane in lanes:
            lane.kill()
        raise


def _describe_main() -> Mapping[str, Any]:
    """Return the data that another process needs to import the main module of this process.

    Raises an error while this process is itself importing the main module of its parent.
    """
    found = get_preparation_data("etdev worker")
    return {name: found[name] for name in _MAIN if name in found}


def _boot(descriptor: int) -> str:
    module = "etdev.runtime.orchestrator.transports.process_worker"
    return _BOOT.format(path=[str(entry) for entry in sys.path], module=module, descriptor=descriptor)


def _interpreter_flags() -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags


def _open_sentinel(pid: int) -> int | None:
    """Return a descriptor that is readable after the process has ended; None if the system has no such descriptors."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return None


def _explain(pid: int, code: int) -> str:
    """Return the reason for the end of a process, from its exit code."""
    if code >= 0:
        return f"process {pid} ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"process {pid} was killed by {name}"
