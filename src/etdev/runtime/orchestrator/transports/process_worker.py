"""Program of a worker's process, for the transport ``process``.

The main thread runs tasks. A second thread receives commands, and performs memory operations even while a task runs.
The process ends when its parent ends.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from enum import IntEnum
from queue import SimpleQueue
from threading import Thread
from typing import Any

from etdev.runtime.orchestrator.transports.process_parts import (
    dump_error,
    load,
    names_main,
    run_job,
)
from etdev.runtime.orchestrator.transports.process_wire import Channel, Message
from etdev.runtime.orchestrator.worker import Worker


class Kind(IntEnum):
    """Kind of a message."""

    START = 0
    ALLOC = 1
    FREE = 2
    PUT = 3
    GET = 4
    RUN = 5
    STOP = 6
    DONE = 7
    FAILED = 8


def main(descriptor: int) -> None:
    """Serve the parent's commands, which come through this descriptor."""
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides which processes end on an interrupt.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    end_with_parent()
    server = _Server(socket.socket(fileno=descriptor))
    Thread(target=server.read, name="etdev commands", daemon=True).start()
    server.serve()


def end_with_parent() -> None:
    """Make Linux kill this process when a certain thread of the parent process ends: the one that started this process.

    On other systems, do nothing.
    """
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class _Server:
    """Executor of the commands that arrive through one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel = Channel(connection, stamp=self._live_bytes)
        self._tasks: SimpleQueue[Message] = SimpleQueue()
        self._worker: Worker | None = None
        self._main: Mapping[str, Any] | None = None
        """Data for the import of the parent's main module; None after the import."""

    def read(self) -> None:
        """Receive commands until the parent ends, then end this process."""
        try:
            while True:
                messages = self._channel.receive()
                while messages:
                    self._take(messages.popleft())
        except EOFError:
            pass
        except BaseException:  # noqa: BLE001 - commands are not read any more, so this process must end
            traceback.print_exc()
        os._exit(1)

    def serve(self) -> None:
        """Run tasks in the main thread until the command to stop arrives, then close the worker."""
        while self._run(self._tasks.get()):
            pass
        if self._worker is not None:
            self._worker.close()

    def _take(self, message: Message) -> None:
        worker = self._worker
        if worker is None or message.kind in (Kind.RUN, Kind.STOP) or self._closes_object(message):
            self._tasks.put(message)
            return
        try:
            parts = _use_memory(worker, message)
        except BaseException as error:  # noqa: BLE001 - the error is the answer
            self._answer(message, Kind.FAILED, dump_error(error))
        else:
            self._answer(message, Kind.DONE, parts)

    def _closes_object(self, message: Message) -> bool:
        assert self._worker is not None
        return message.kind == Kind.FREE and pickle.loads(message.parts[0])[0] in self._worker.objects

    def _run(self, message: Message) -> bool:
        """Execute a command in the main thread; return False for the command to stop."""
        if message.kind == Kind.STOP:
            return False
        try:
            match message.kind:
                case Kind.START:
                    number, spec, self._main = load(message.parts)
                    self._worker = Worker(number, spec)
                    parts: Sequence[Any] = ()
                case Kind.RUN:
                    parts = self._run_job(message)
                case _:
                    assert self._worker is not None
                    parts = _use_memory(self._worker, message)
        except BaseException as error:  # noqa: BLE001 - the error is the answer
            self._answer(message, Kind.FAILED, dump_error(error))
        else:
            self._answer(message, Kind.DONE, parts)
        return True

    def _run_job(self, message: Message) -> Sequence[Any]:
        assert self._worker is not None
        return run_job(self._worker, message.parts, before=lambda: self._import_main_for(message))

    def _import_main_for(self, message: Message) -> None:
        """Import the parent's main module once, before the first task that needs it."""
        if self._main is not None and names_main(message.parts):
            _import_main(self._main)
            self._main = None

    def _answer(self, message: Message, kind: Kind, parts: Sequence[Any]) -> None:
        self._channel.send(Message(message.number, kind, parts))

    def _live_bytes(self) -> int:
        return self._worker.live_bytes() if self._worker is not None else 0


def _use_memory(worker: Worker, message: Message) -> Sequence[Any]:
    match message.kind, *pickle.loads(message.parts[0]):
        case Kind.ALLOC, buffer, nbytes:
            worker.alloc(buffer, nbytes)
        case Kind.FREE, buffer:
            worker.free(buffer)
        case Kind.PUT, buffer, offset:
            worker.put(buffer, offset, message.parts[1])
        case Kind.GET, buffer, offset, nbytes:
            return [worker.get(buffer, offset, nbytes)]
    return ()


def _import_main(preparation: Mapping[str, Any]) -> None:
    """Import the parent's main module as the main module of this process, as ``multiprocessing`` does.

    The module must not start processes during the import.
    """
    from multiprocessing import process, spawn

    current: Any = process.current_process()
    current._inheriting = True
    try:
        spawn.prepare(preparation)
    finally:
        del current._inheriting
