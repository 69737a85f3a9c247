"""Handles of memory and objects on workers. A handle is data and owns nothing. It contains no address."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from numbers import Integral
from typing import Any

from etdev.runtime.orchestrator.errors import HandleError


class Access(Enum):
    """Access of a task to memory that it gets."""

    READ = "read"
    WRITE = "write"
    """Overwrites all of it without reading it."""
    UPDATE = "update"
    """Reads it and writes to it."""


@dataclass(frozen=True, slots=True)
class Key:
    """Identity of a buffer. Equal numbers on two workers, or before and after a restart, are two buffers."""

    worker: int
    incarnation: int
    """Incarnation of the worker, unique in a process even with several orchestrators."""
    buffer: int


@dataclass(frozen=True, slots=True)
class Use:
    """Access of a task to bytes ``start`` to ``stop`` (exclusive) of a buffer."""

    key: Key
    start: int
    stop: int
    access: Access


@dataclass(frozen=True, slots=True)
class Handle:
    """Memory on a worker, or a part of it."""

    worker: int
    incarnation: int
    buffer: int
    size: int
    """Bytes."""
    offset: int = 0
    """Offset of its first byte in the buffer."""
    access: Access = Access.UPDATE
    """Allowed access: READ or UPDATE."""
    whole: bool = True
    """True if it refers to the whole buffer."""

    @property
    def key(self) -> Key:
        """Identity of the buffer."""
        return Key(self.worker, self.incarnation, self.buffer)

    def view(self, offset: int, size: int) -> Handle:
        """Return a handle of bytes ``offset`` to ``offset + size`` (exclusive)."""
        check_count(offset, f"the offset of a part of {self.describe()}")
        check_count(size, f"the size of a part of {self.describe()}")
        if offset + size > self.size:
            raise HandleError(f"bytes {offset} to {offset + size} of {self.describe()}")
        return replace(self, offset=self.offset + offset, size=size, whole=False)

    def readonly(self) -> Handle:
        """Return a read-only handle of the same memory."""
        return replace(self, access=Access.READ)

    def resident(
        self,
        access: Access | str = Access.READ,
        *,
        dtype: str = "uint8",
        shape: tuple[int, ...] | None = None,
    ) -> Resident:
        """Return a task argument for the memory, which is not copied.

        ``access`` is the task's access. The task sees an array of the element type ``dtype`` and the given shape, at
        the beginning of the memory. Without a shape it has one dimension and covers all of it.
        """
        wanted = _access(access)
        if wanted is not Access.READ and self.access is Access.READ:
            raise HandleError(f"a task wants to {wanted.value} {self.describe()}, and the handle is for reading only")
        return Resident(self, wanted, dtype, shape)

    def use(self, access: Access) -> Use:
        """Return the use by a task that gets all of it."""
        return Use(self.key, self.offset, self.offset + self.size, access)

    def describe(self) -> str:
        """Return a description for errors."""
        part = "" if self.whole else f"bytes {self.offset} to {self.offset + self.size} of "
        size = f" of {self.size} bytes" if self.whole else ""
        return f"{part}buffer {self.buffer}{size} on worker {self.worker}"


def _access(value: Access | str) -> Access:
    try:
        return Access(value)
    except ValueError:
        raise HandleError(f"{value!r} is not an access", hint="use 'read', 'write' or 'update'") from None


def is_whole(value: object) -> bool:
    """Return whether the value is a whole number. A bool is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(value: Any, what: str) -> None:
    """Raise :class:`HandleError` for a number of bytes that is not a whole number, or is negative."""
    if not is_whole(value) or value < 0:
        raise HandleError(f"{what} is {value!r}", hint="give a whole number of bytes, 0 or more")


@dataclass(frozen=True, slots=True)
class ObjectHandle:
    """Python object on a worker, such as a loaded program or a session."""

    worker: int
    incarnation: int
    buffer: int

    @property
    def key(self) -> Key:
        """Identity of the object. Objects and buffers share one numbering."""
        return Key(self.worker, self.incarnation, self.buffer)

    def resident(self, access: Access | str = Access.UPDATE) -> ResidentObject:
        """Return a task argument for the object itself. Tasks that only read it may run in any order."""
        return ResidentObject(self, _access(access))

    def use(self, access: Access) -> Use:
        """Return the use by a task that gets the object."""
        return Use(self.key, 0, 1, access)

    def describe(self) -> str:
        """Return a description for errors."""
        return f"object {self.buffer} on worker {self.worker}"


@dataclass(frozen=True, slots=True)
class Resident:
    """Memory on a worker as a task argument, which is not copied."""

    handle: Handle
    access: Access
    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ResidentObject:
    """Object on a worker as a task argument."""

    handle: ObjectHandle
    access: Access


@dataclass(frozen=True, slots=True, eq=False)
class Out:
    """Array of the caller that the task fills. It gets memory on the worker, which is copied back."""

    array: Any


@dataclass(frozen=True, slots=True, eq=False)
class InOut:
    """Array of the caller that is copied to the worker, and back when the task is done."""

    array: Any
