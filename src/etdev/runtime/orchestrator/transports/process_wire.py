"""Connection that sends messages between two processes, without blocking the sender.

Large messages go through unnamed shared memory, of which only the descriptor is sent. The system frees the memory when
all processes have closed the descriptor or have ended.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any

from etdev.runtime.owners import MoveOnly

LARGE = 1 << 16
"""Size limit in bytes. Larger messages go through shared memory if the system has enough descriptors."""
_HEAD = struct.Struct("<QQIBB")
"""Header of a message: number, stamp, number of parts, kind, shared-memory flag. The sizes of the parts follow."""
_PIECE = 1 << 16
"""Maximum size in bytes of one read."""
_DESCRIPTOR = struct.Struct("@i")
_ANCILLARY = socket.CMSG_SPACE(8 * _DESCRIPTOR.size)
"""Space in bytes for the descriptors in one read: one descriptor on Linux, several on other systems."""
_RECEIVE = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_MAP = {"prot": mmap.PROT_READ, "flags": mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)}


@dataclass(frozen=True, slots=True)
class Message:
    """A message between the two processes."""

    number: int
    """Number of a command; the answer has the same number."""
    kind: int
    parts: Sequence[Any]
    """Byte buffers, which are read-only in a received message."""
    stamp: int = 0
    """Result of the sender's ``stamp`` function at the time of sending."""


class Channel(MoveOnly):
    """One end of a connection: any thread can send, and only one thread receives.

    ``stamp`` returns a number that each message carries. ``sentinel`` is a descriptor that is readable after the other
    process has ended. The connection may stay open after that end, because a child of the other process can inherit it.
    """

    def __init__(
        self, connection: socket.socket, *, stamp: Callable[[], int] | None = None, sentinel: int | None = None
    ) -> None:
        connection.setblocking(False)
        self._socket, self._stamp, self._sentinel = connection, stamp, sentinel
        self._lock = Lock()
        self._outbox: deque[Message] = deque()
        self._frame: _Frame | None = None
        """The message that is only partly sent so far; None if there is none."""
        self._sending = self._full = False
        """``_sending``: True while a thread sends for all threads.

        ``_full``: True if the connection is full, so that the receiving thread sends the remaining messages.
        """
        self._broken = self._closed = self._ended = False
        self._inbox = bytearray()
        self._descriptors: deque[int] = deque()
        self._wakes, self._wake = os.pipe()
        self._poll = select.poll()
        for descriptor in (connection.fileno(), self._wakes, sentinel):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)

    def send(self, message: Message) -> None:
        """Send a message, or queue it until the connection has room. Drop it if the connection is closed or broken."""
        with self._lock:
            if self._closed or self._broken:
                return
            self._outbox.append(message)
            if self._sending:
                return
            self._sending = True
        self._transmit()

    def receive(self, seconds: float | None = None) -> deque[Message]:
        """Wait for messages, and send queued messages when there is room.

        The result is empty if no message is complete yet, or after ``seconds`` without a message. Raises
        :class:`EOFError` if the other process has ended and all received messages were returned.
        """
        if self._ended:
            raise EOFError
        found: deque[Message] = deque()
        for descriptor, events in self._poll.poll(None if seconds is None else seconds * 1000):
            if descriptor == self._wakes:
                os.read(self._wakes, _PIECE)
                self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
            elif descriptor == self._sentinel:
                while self._read():
                    pass
                self._ended = True
            else:
                if events & ~select.POLLOUT:
                    self._read()
                if events & select.POLLOUT:
                    self._poll.modify(self._socket, select.POLLIN)
                    self._full = False
                    self._transmit()
        self._take(found)
        return found

    def close(self) -> None:
        """Close the connection; called only by the receiving thread.

        If another thread is sending, that thread closes the connection when it stops.
        """
        with self._lock:
            idle = not self._closed and (not self._sending or self._full)
            self._closed = True
        if idle:
            self._release()

    def _transmit(self) -> None:
        """Send queued messages until there is no room."""
        try:
            while self._next():
                assert self._frame is not None
                if self._frame.send(self._socket):
                    self._frame = None
                elif self._wait_for_room():
                    return
        except BaseException as error:
            self._break()
            if not isinstance(error, OSError):
                raise

    def _wait_for_room(self) -> bool:
        """Let the receiving thread send the remaining messages; return False if the channel is closed."""
        with self._lock:
            if not self._closed:
                self._full = True
                os.write(self._wake, b"\0")
            return not self._closed

    def _break(self) -> None:
        """Stop sending after an error.

        An open connection is shut down, so that the receiving thread fails, too.
        """
        with self._lock:
            self._broken, self._sending = True, False
            self._outbox.clear()
            closed = self._closed
        if closed:
            self._release()
            return
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _next(self) -> bool:
        """Select the message to send; return False if there is none."""
        with self._lock:
            if not self._closed and self._frame is not None:
                return True
            if not self._closed and self._outbox:
                message = self._outbox.popleft()
            else:
                self._sending = False
                closed = self._closed
                message = None
        if message is not None:
            self._frame = _Frame(message, self._stamp() if self._stamp else 0)
        elif closed:
            self._release()
        return message is not None

    def _release(self) -> None:
        if self._frame is not None:
            self._frame.close()
        self._socket.close()
        for descriptor in (self._wakes, self._wake, *self._descriptors):
            os.close(descriptor)
        self._outbox.clear()

    def _read(self) -> bool:
        """Read once from the connection; return False if there is nothing to read."""
        try:
            piece, ancillary, flags, _ = self._socket.recvmsg(_PIECE, _ANCILLARY, _RECEIVE)
        except BlockingIOError:
            return False
        except ConnectionError:
            piece, ancillary, flags = b"", [], 0
        for _, _, data in ancillary:
            self._descriptors.extend(descriptor for (descriptor,) in _DESCRIPTOR.iter_unpack(data))
        if flags & socket.MSG_CTRUNC:
            raise OSError(
                errno.EMFILE, "the descriptor of shared memory could not be received: too many files are open"
            )
        self._inbox += piece
        self._ended = self._ended or not piece
        return bool(piece)

    def _take(self, found: deque[Message]) -> None:
        """Move all complete messages from the inbox to ``found``."""
        inbox, at = self._inbox, 0
        while len(inbox) - at >= _HEAD.size:
            number, stamp, count, kind, shared = _HEAD.unpack_from(inbox, at)
            begin = at + _HEAD.size + 8 * count
            if len(inbox) < begin:
                break
            sizes = struct.unpack_from(f"<{count}Q", inbox, at + _HEAD.size)
            end = begin if shared else begin + sum(sizes)
            if len(inbox) < end:
                break
            data = self._map(sum(sizes)) if shared else memoryview(bytes(inbox[begin:end]))
            found.append(Message(number, kind, _cut(data, sizes), stamp))
            at = end
        del inbox[:at]

    def _map(self, nbytes: int) -> memoryview:
        descriptor = self._descriptors.popleft()
        try:
            return memoryview(mmap.mmap(descriptor, nbytes, **_MAP))
        finally:
            os.close(descriptor)


class _Frame:
    """A message that is being sent.

    The frame of a large message creates shared memory, which takes a file descriptor. Messages in the queue have no
    frames yet, so they take no descriptors.
    """

    def __init__(self, message: Message, stamp: int) -> None:
        self._message, self._stamp = message, stamp
        large = sum(map(len, message.parts)) > LARGE
        self._descriptor = _share(message.parts) if large else None
        self._pack()

    def _pack(self) -> None:
        message, shared = self._message, self._descriptor is not None
        sizes = [len(part) for part in message.parts]
        head = _HEAD.pack(message.number, self._stamp, len(sizes), message.kind, shared)
        inline = () if shared else message.parts
        self._left = memoryview(b"".join((head, struct.pack(f"<{len(sizes)}Q", *sizes), *inline)))

    def send(self, connection: socket.socket) -> bool:
        """Send as many bytes as there is room for; return True if all bytes are sent."""
        while self._left:
            try:
                if self._descriptor is None:
                    sent = connection.send(self._left)
                else:
                    sent = socket.send_fds(connection, [self._left], [self._descriptor])
            except BlockingIOError:
                return False
            except OSError as error:
                if self._descriptor is None or error.errno != errno.ETOOMANYREFS:
                    raise
                self.close()
                self._pack()  # Too many descriptors are in transit, so send the bytes without shared memory.
                continue
            self._left = self._left[sent:]
            self.close()
        return True

    def close(self) -> None:
        """Close the descriptor of the shared memory in this process."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _cut(data: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    found, at = [], 0
    for size in sizes:
        found.append(data[at : at + size])
        at += size
    return found


def _share(parts: Sequence[Any]) -> int | None:
    """Return the descriptor of new shared memory with these bytes; None if the system has no more descriptors."""
    try:
        descriptor = _nameless()
    except OSError:
        return None
    try:
        for part in parts:
            left = memoryview(part)
            while left:
                left = left[os.write(descriptor, left) :]
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("etdev")
    from tempfile import TemporaryFile

    with TemporaryFile() as file:
        return os.dup(file.fileno())
