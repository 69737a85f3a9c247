"""Handles: names for memory and objects on workers. A handle has no address, and does not own the memory or object."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from numbers import Integral
from typing import Any

from etdev.runtime.orchestrator.errors import HandleError


class Access(Enum):
    """Kind of a task's access to memory."""

    READ = "read"
    WRITE = "write"
    """The task overwrites all bytes and reads none of them."""
    UPDATE = "update"
    """The task reads and writes."""


@dataclass(frozen=True, slots=True)
class Key:
    """Identity of a buffer or object; never reused, not even after a restart of the worker."""

    worker: int
    incarnation: int
    """Number of the worker's start, unique in this process; each restart has a new number."""
    buffer: int


@dataclass(frozen=True, slots=True)
class Use:
    """A task's use of a part of a buffer: the bytes from ``start`` to ``stop`` (exclusive)."""

    key: Key
    start: int
    stop: int
    access: Access


@dataclass(frozen=True, slots=True)
class Handle:
    """A handle of a buffer on a worker, or of a part of a buffer."""

    worker: int
    incarnation: int
    buffer: int
    size: int
    """Number of bytes."""
    offset: int = 0
    """Position of the first byte in the buffer."""
    access: Access = Access.UPDATE
    """READ for a read-only handle, else UPDATE."""
    whole: bool = True
    """True if this is the handle of a whole buffer."""

    @property
    def key(self) -> Key:
        """Identity of the buffer."""
        return Key(self.worker, self.incarnation, self.buffer)

    def view(self, offset: int, size: int) -> Handle:
        """Return a handle of ``size`` bytes that begin at ``offset`` in this handle's bytes."""
        check_count(offset, f"the offset of a part of {self.describe()}")
        check_count(size, f"the size of a part of {self.describe()}")
        if offset + size > self.size:
            raise HandleError(f"bytes {offset} to {offset + size} are out of bounds of {self.describe()}")
        return replace(self, offset=self.offset + offset, size=size, whole=False)

    def readonly(self) -> Handle:
        """Return a read-only handle of the same bytes."""
        return replace(self, access=Access.READ)

    def resident(
        self,
        access: Access | str = Access.READ,
        *,
        dtype: str = "uint8",
        shape: tuple[int, ...] | None = None,
    ) -> Resident:
        """Return a task argument for using the memory directly, without a copy.

        ``access`` states how the task uses the memory. The task gets an array with the given element type and shape, at
        the start of the memory. By default, the array has one dimension and covers all bytes.
        """
        wanted = _access(access)
        if wanted is not Access.READ and self.access is Access.READ:
            raise HandleError(f"a task cannot {wanted.value} {self.describe()} through a read-only handle")
        return Resident(self, wanted, dtype, shape)

    def use(self, access: Access) -> Use:
        """Return a :class:`Use` of all bytes of this handle, with the given access."""
        return Use(self.key, self.offset, self.offset + self.size, access)

    def describe(self) -> str:
        """Describe the memory for messages."""
        part = "" if self.whole else f"bytes {self.offset} to {self.offset + self.size} of "
        size = f" of {self.size} bytes" if self.whole else ""
        return f"{part}buffer {self.buffer}{size} on worker {self.worker}"


def _access(value: Access | str) -> Access:
    try:
        return Access(value)
    except ValueError:
        raise HandleError(f"{value!r} is not a kind of access", hint="use 'read', 'write' or 'update'") from None


def is_whole(value: object) -> bool:
    """Return True if the value is an integer and not a bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(value: Any, what: str) -> None:
    """Raise :class:`HandleError` unless the value is a number of bytes: an integer that is not negative."""
    if not is_whole(value) or value < 0:
        raise HandleError(f"{what} is {value!r}, not a number of bytes", hint="use an integer that is not negative")


@dataclass(frozen=True, slots=True)
class ObjectHandle:
    """A handle of a Python object on a worker, such as a loaded program."""

    worker: int
    incarnation: int
    buffer: int

    @property
    def key(self) -> Key:
        """Identity of the object; objects and buffers share one sequence of numbers."""
        return Key(self.worker, self.incarnation, self.buffer)

    def resident(self, access: Access | str = Access.UPDATE) -> ResidentObject:
        """Return a task argument for the object itself; tasks with READ access may run in any order."""
        return ResidentObject(self, _access(access))

    def use(self, access: Access) -> Use:
        """Return a :class:`Use` of the object, with the given access."""
        return Use(self.key, 0, 1, access)

    def describe(self) -> str:
        """Describe the object for messages."""
        return f"object {self.buffer} on worker {self.worker}"


@dataclass(frozen=True, slots=True)
class Resident:
    """A task argument that is memory on a worker."""

    handle: Handle
    access: Access
    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ResidentObject:
    """A task argument that is an object on a worker."""

    handle: ObjectHandle
    access: Access


@dataclass(frozen=True, slots=True, eq=False)
class Out:
    """A task argument that is an output; after the call, its content is copied to the caller's array."""

    array: Any


@dataclass(frozen=True, slots=True, eq=False)
class InOut:
    """A task argument that is both input and output.

    The caller's array is copied to the worker before the call, and back to the caller after the call.
    """

    array: Any
