"""Handles: names for memory and objects on workers. A handle has no address, and does not own what it names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from numbers import Integral
from typing import Any

from etdev.runtime.orchestrator.errors import HandleError


class Access(Enum):
    """How a task uses memory."""

    READ = "read"
    WRITE = "write"
    """The task overwrites all bytes and reads none."""
    UPDATE = "update"
    """The task reads and writes."""


@dataclass(frozen=True, slots=True)
class Key:
    """Identity of a buffer or object. It is never used again, not even after a restart of the worker."""

    worker: int
    incarnation: int
    """Number of a start of the worker. It is unique in this process."""
    buffer: int


@dataclass(frozen=True, slots=True)
class Use:
    """Use of bytes ``start`` to ``stop`` (exclusive) of a buffer by a task."""

    key: Key
    start: int
    stop: int
    access: Access


@dataclass(frozen=True, slots=True)
class Handle:
    """Buffer on a worker, or a part of it."""

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
    """True for a handle of the whole buffer."""

    @property
    def key(self) -> Key:
        """Identity of the buffer."""
        return Key(self.worker, self.incarnation, self.buffer)

    def view(self, offset: int, size: int) -> Handle:
        """Return a handle of ``size`` bytes that begin at ``offset``."""
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
        """Return a task argument that uses the memory directly, without a copy.

        ``access`` says how the task uses it. The task gets an array with the given element type and shape, at the start
        of the memory. By default the array has one dimension and covers all bytes.
        """
        wanted = _access(access)
        if wanted is not Access.READ and self.access is Access.READ:
            raise HandleError(f"a task must not {wanted.value} {self.describe()} through a read-only handle")
        return Resident(self, wanted, dtype, shape)

    def use(self, access: Access) -> Use:
        """Return the use of all bytes of this handle."""
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
    """Return whether the value is an integer. A bool is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(value: Any, what: str) -> None:
    """Raise :class:`HandleError` unless the value is a number of bytes: an integer that is not negative."""
    if not is_whole(value) or value < 0:
        raise HandleError(f"{what} is {value!r}, not a number of bytes", hint="use an integer from 0 on")


@dataclass(frozen=True, slots=True)
class ObjectHandle:
    """Python object on a worker, such as a loaded program."""

    worker: int
    incarnation: int
    buffer: int

    @property
    def key(self) -> Key:
        """Identity of the object. Objects and buffers are numbered together."""
        return Key(self.worker, self.incarnation, self.buffer)

    def resident(self, access: Access | str = Access.UPDATE) -> ResidentObject:
        """Return a task argument for the object itself. Tasks with READ access may run in any order."""
        return ResidentObject(self, _access(access))

    def use(self, access: Access) -> Use:
        """Return the use of the object by a task."""
        return Use(self.key, 0, 1, access)

    def describe(self) -> str:
        """Describe the object for messages."""
        return f"object {self.buffer} on worker {self.worker}"


@dataclass(frozen=True, slots=True)
class Resident:
    """Task argument that is memory on a worker."""

    handle: Handle
    access: Access
    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ResidentObject:
    """Task argument that is an object on a worker."""

    handle: ObjectHandle
    access: Access


@dataclass(frozen=True, slots=True, eq=False)
class Out:
    """Task argument that is an output. The task's result is written to the caller's array."""

    array: Any


@dataclass(frozen=True, slots=True, eq=False)
class InOut:
    """Task argument that is both input and output. The caller's array is copied to the worker, and back at the end."""

    array: Any
