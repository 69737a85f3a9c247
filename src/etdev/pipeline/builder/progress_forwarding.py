"""Forwarding of progress from builds in other processes or on other machines to the process that shows it.

Each sender writes lines of JSON over a connection that a key protects. Progress is optional: if the receiver cannot be
reached, nothing is sent and the build continues.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

from etdev.pipeline.project.progress import Progress

_EVERY_SECONDS = 0.1
"""Minimal interval in seconds between reports of the number of calls."""
_ANSWER_SECONDS = 5.0
"""Time limit in seconds for an answer of another machine."""
_ON_THE_WAY_SECONDS = 1.0
"""Time limit in seconds for messages on their way."""
_EVENTS = frozenset({"started", "counted", "finished", "failed", "ended"})
_LOST = (OSError, EOFError, AuthenticationError)


@dataclass(frozen=True)
class Address:
    """The receiver's address."""

    place: str | tuple[str, int]
    """A socket in the file system, or host and port."""
    key: bytes


def _listener(host: str | None) -> Listener:
    if host is None:
        with suppress(OSError):  # The folder for temporary files may have too long a name for a socket.
            return Listener(family="AF_UNIX")
    return Listener((host or "127.0.0.1", 0))


def _connected(address: Address) -> socket.socket:
    """Return a bare connection.

    Raises OSError if the other side does not answer soon.
    """
    if isinstance(address.place, tuple):
        return socket.create_connection(address.place, _ANSWER_SECONDS)
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(address.place)
    except OSError:
        found.close()
        raise
    return found


class Relay:
    """A receiver of progress from other processes, which passes it on when asked. A context manager.

    Threads read the connections. ``host`` is this machine's address for other machines; without it, only processes of
    this machine can connect.
    """

    def __init__(self, progress: Progress, host: str | None = None) -> None:
        self._progress = progress
        self._events: SimpleQueue[tuple[str, list[Any]]] = SimpleQueue()
        key = secrets.token_bytes(32)
        self._listener = _listener(host)
        address: Any = self._listener.address
        self.address = Address(address, key)
        self._ended: set[str] = set()
        self._closed = False
        self._thread = Thread(target=self._accept, name="etdev progress", daemon=True)

    def pass_on(self, last: str | None = None) -> None:
        """Report the events since the last call, in the calling thread, which the display may interrupt.

        ``last`` is a target that is done: wait for its last events, and report its end.
        """
        until = time.monotonic() + _ON_THE_WAY_SECONDS
        while True:
            is_awaited = last is not None and last not in self._ended
            try:
                event, arguments = self._events.get(timeout=max(until - time.monotonic(), 0.0) if is_awaited else 0.0)
            except Empty:
                break
            self._tell(event, *arguments)
        if last is not None and last not in self._ended:
            self._tell("ended", last)

    def _tell(self, event: str, *arguments: Any) -> None:
        if event == "ended":
            self._ended.add(arguments[0])
        getattr(self._progress, event)(*arguments)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closed = True
        with suppress(OSError), _connected(self.address):  # This wakes the thread that waits for a connection.
            pass
        self._thread.join(_ANSWER_SECONDS)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except OSError:
                time.sleep(_EVERY_SECONDS)
                continue
            Thread(target=self._read, args=(connection,), name="etdev progress", daemon=True).start()

    def _read(self, connection: Connection[Any, Any]) -> None:
        with connection:
            try:
                deliver_challenge(connection, self.address.key)  # A silent client blocks only this thread.
                answer_challenge(connection, self.address.key)
                while True:
                    event, *arguments = json.loads(connection.recv_bytes(1 << 16))
                    if event in _EVENTS:
                        self._events.put((event, arguments))
            except (*_LOST, ValueError):
                return


class Sender:
    """A :class:`~etdev.pipeline.project.progress.Progress` that sends events to a :class:`Relay` in reach."""

    def __init__(self, address: Address) -> None:
        self._counted = 0.0
        self._connection: Connection[Any, Any] | None = None
        with suppress(*_LOST):
            _connected(address).close()  # A machine that does not answer would delay the build by minutes.
            self._connection = Client(address.place, authkey=address.key)

    def started(self, target: str, stage: str) -> None:
        """Send the event."""
        self._tell("started", target, stage)

    def counted(self, target: str, stage: str, done: int, total: int | None) -> None:
        """Send the event if the last one was not just sent."""
        now = time.monotonic()
        if done <= 1 or now - self._counted >= _EVERY_SECONDS:
            self._counted = now
            self._tell("counted", target, stage, done, total)

    def finished(self, target: str, stage: str, seconds: float) -> None:
        """Send the event."""
        self._tell("finished", target, stage, seconds)

    def failed(self, target: str, stage: str) -> None:
        """Send the event."""
        self._tell("failed", target, stage)

    def ended(self, target: str) -> None:
        """Send the event."""
        self._tell("ended", target)

    def close(self) -> None:
        """Send nothing more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _tell(self, *event: object) -> None:
        if self._connection is None:
            return
        try:
            self._connection.send_bytes(json.dumps(event).encode())
        except _LOST:
            self.close()
