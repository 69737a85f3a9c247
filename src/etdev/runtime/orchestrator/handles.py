"""Names for what lies on workers. A handle is data: who has one owns nothing. Addresses never leave a worker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from numbers import Integral
from typing import Any

from etdev.runtime.orchestrator.errors import HandleError


class Access(Enum):
    """What a task does with memory that it is given."""

    READ = "read"
    WRITE = "write"
    """It fills all of it, whatever was there."""
    UPDATE = "update"
    """It reads it and writes to it."""


@dataclass(frozen=True, slots=True)
class Key:
    """A buffer. Equal numbers on two workers, or before and after a restart, are two buffers."""

    worker: int
    incarnation: int
    """Of the worker. No two have the same, also in several orchestrators of a process."""
    buffer: int


@dataclass(frozen=True, slots=True)
class Use:
    """What a task does with bytes ``start`` to ``stop``, exclusively, of a buffer."""

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
    """Of its first byte in the buffer."""
    access: Access = Access.UPDATE
    """What may be done with it: READ or UPDATE."""
    whole: bool = True
    """Is it all of the buffer?"""

    @property
    def key(self) -> Key:
        """The buffer."""
        return Key(self.worker, self.incarnation, self.buffer)

    def view(self, offset: int, size: int) -> Handle:
        """Bytes ``offset`` to ``offset + size`` of it."""
        check_count(offset, f"the offset of a part of {self.describe()}")
        check_count(size, f"the size of a part of {self.describe()}")
        if offset + size > self.size:
            raise HandleError(f"bytes {offset} to {offset + size} of {self.describe()}")
        return replace(self, offset=self.offset + offset, size=size, whole=False)

    def readonly(self) -> Handle:
        """The same memory, which nobody writes to by this handle."""
        return replace(self, access=Access.READ)

    def resident(
        self,
        access: Access | str = Access.READ,
        *,
        dtype: str = "uint8",
        shape: tuple[int, ...] | None = None,
    ) -> Resident:
        """An argument of a task: the memory where it is, which is not copied.

        ``access`` is what the task does with it. The task sees an array of that element type, ``float32`` say, and
        shape, at the beginning of the memory; without a shape, of one dimension and all of it.
        """
        wanted = _access(access)
        if wanted is not Access.READ and self.access is Access.READ:
            raise HandleError(f"a task wants to {wanted.value} {self.describe()}, and the handle is for reading only")
        return Resident(self, wanted, dtype, shape)

    def use(self, access: Access) -> Use:
        """Return the use by a task that is given all of it."""
        return Use(self.key, self.offset, self.offset + self.size, access)

    def describe(self) -> str:
        """For errors."""
        part = "" if self.whole else f"bytes {self.offset} to {self.offset + self.size} of "
        size = f" of {self.size} bytes" if self.whole else ""
        return f"{part}buffer {self.buffer}{size} on worker {self.worker}"


def _access(value: Access | str) -> Access:
    try:
        return Access(value)
    except ValueError:
        raise HandleError(f"{value!r} is not an access", hint="use 'read', 'write' or 'update'") from None


def is_whole(value: object) -> bool:
    """Is it a whole number? A truth value is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_count(value: Any, what: str) -> None:
    """Raise for a number of bytes that is not a whole number, or is less than 0."""
    if not is_whole(value) or value < 0:
        raise HandleError(f"{what} is {value!r}", hint="give a whole number of bytes, 0 or more")


@dataclass(frozen=True, slots=True)
class ObjectHandle:
    """A Python object on a worker: a loaded program, a session."""

    worker: int
    incarnation: int
    buffer: int

    @property
    def key(self) -> Key:
        """Objects are numbered with the buffers."""
        return Key(self.worker, self.incarnation, self.buffer)

    def resident(self, access: Access | str = Access.UPDATE) -> ResidentObject:
        """An argument of a task: the object itself. Tasks that only read it may come in any order."""
        return ResidentObject(self, _access(access))

    def use(self, access: Access) -> Use:
        """What a task that is given it does with it."""
        return Use(self.key, 0, 1, access)

    def describe(self) -> str:
        """For errors."""
        return f"object {self.buffer} on worker {self.worker}"


@dataclass(frozen=True, slots=True)
class Resident:
    """Memory on a worker as an argument: passed through untouched."""

    handle: Handle
    access: Access
    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ResidentObject:
    """An object on a worker as an argument."""

    handle: ObjectHandle
    access: Access


@dataclass(frozen=True, slots=True, eq=False)
class Out:
    """An array of the caller's that the task fills: it gets memory for it on its worker, which is copied back."""

    array: Any


@dataclass(frozen=True, slots=True, eq=False)
class InOut:
    """An array of the caller's that is copied to the worker, and back when the task is done."""

    array: Any
