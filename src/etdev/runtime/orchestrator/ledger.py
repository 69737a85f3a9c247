"""Ledger of all buffers and objects on workers, with statistics."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from etdev.runtime.orchestrator.errors import HandleError, PlacementError, WorkerLost
from etdev.runtime.orchestrator.handles import Access, Handle, Key, ObjectHandle, is_whole
from etdev.runtime.orchestrator.messages import Cost

_INCARNATIONS = itertools.count(1)


@dataclass(slots=True)
class Entry:
    """The record of one buffer or object."""

    size: int
    """Number of bytes; 0 for an object."""
    freeing: bool = False
    """True after a free was requested; the record is removed when the last task has ended."""


@dataclass(frozen=True, slots=True)
class BufferStats:
    """Statistics of one buffer or object."""

    worker: int
    buffer: int
    size: int
    """Number of bytes; 0 for an object."""
    state: str
    """``live``, or ``freeing`` if a free request waits for the last task that uses the buffer or object."""


@dataclass(slots=True)
class WorkerStats:
    """Statistics of one worker; the counters continue after a restart."""

    worker: int
    alive: bool = True
    live_bytes: int = 0
    """Bytes of the worker's allocated buffers."""
    tasks: int = 0
    seconds: float = 0.0
    """Seconds that the worker spent in tasks."""
    copies_to: int = 0
    """Number of copies to the worker's memory, for ``copy_to`` and for arguments of tasks."""
    bytes_to: int = 0
    copies_from: int = 0
    bytes_from: int = 0
    copies_avoided: int = 0
    """Number of arguments that were already in the worker's memory."""
    bytes_avoided: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of an orchestrator."""

    workers: tuple[WorkerStats, ...]
    buffers: tuple[BufferStats, ...]
    waiting: int
    """Number of tasks and memory operations that have not ended."""


@dataclass(slots=True)
class _Life:
    """State of one worker."""

    incarnation: int
    lost: WorkerLost | None = None
    past: set[int] = field(default_factory=set)
    """Incarnation numbers of the worker's earlier starts."""
    freeing: int = 0
    """Number of buffers and objects to free after their last tasks."""


class Ledger:
    """Record of all buffers and objects on workers; it checks each handle before the handle is used."""

    def __init__(self, workers: int) -> None:
        self._lives = [_Life(next(_INCARNATIONS)) for _ in range(workers)]
        self._entries: dict[Key, Entry] = {}
        self._numbers = itertools.count(1)
        self.stats = [WorkerStats(worker) for worker in range(workers)]

    def check_number(self, worker: int) -> None:
        """Raise an error if there is no worker with this number."""
        if not is_whole(worker):
            raise PlacementError(
                f"{worker!r} is not the number of a worker", hint="use an integer, 0 for the first worker"
            )
        if not 0 <= worker < len(self._lives):
            raise PlacementError(
                f"there is no worker {worker}", hint=f"use a number of 0 or more and below {len(self._lives)}"
            )

    def check_worker(self, worker: int) -> None:
        """Raise an error if there is no worker with this number or the worker is lost."""
        self.check_number(worker)
        lost = self._lives[worker].lost
        if lost is not None:
            raise WorkerLost(worker, lost.reason)

    def check_members(self, wanted: Sequence[int | None]) -> None:
        """Raise an error unless the members of a group can run at the same time, each on its own worker."""
        known = [worker for worker in wanted if worker is not None]
        for worker in known:
            self.check_worker(worker)
        twice = next((worker for worker in known if known.count(worker) > 1), None)
        if twice is not None:
            raise PlacementError(
                f"worker {twice} is in a group more than once", hint="use another worker for each member"
            )
        if len(wanted) > len(self._lives):
            raise PlacementError(
                f"a group of {len(wanted)} members needs one worker for each member, but there are only "
                f"{len(self._lives)} workers",
                hint="submit smaller groups, or start more workers",
            )
        lost = [worker for worker, life in enumerate(self._lives) if life.lost is not None]
        if len(wanted) > len(self._lives) - len(lost):
            self.check_worker(lost[0])

    def number(self) -> int:
        """Return a new number for a buffer or object."""
        return next(self._numbers)

    def incarnation(self, worker: int) -> int:
        """Return the number of the worker's current start. Each restart has a new number."""
        return self._lives[worker].incarnation

    def add(self, worker: int, incarnation: int, buffer: int, size: int) -> Handle:
        """Record a buffer that a worker has allocated, and return its handle.

        Raises :class:`WorkerLost` if the worker was lost or restarted after the allocation.
        """
        life = self._lives[worker]
        if life.lost is not None or life.incarnation != incarnation:
            raise life.lost or WorkerLost(worker, "it was restarted")
        handle = Handle(worker, incarnation, buffer, size)
        self._entries[handle.key] = Entry(size)
        self.stats[worker].live_bytes += size
        return handle

    def add_object(self, worker: int) -> ObjectHandle:
        """Record an object before its worker creates it, and return the handle."""
        handle = ObjectHandle(worker, self._lives[worker].incarnation, self.number())
        self._entries[handle.key] = Entry(0)
        return handle

    def check(self, handle: Handle | ObjectHandle) -> None:
        """Raise an error if the memory or object was freed or lost, or belongs to another orchestrator."""
        life = self._lives[handle.worker] if 0 <= handle.worker < len(self._lives) else None
        known = life is not None and handle.incarnation in (life.incarnation, *life.past)
        if life is None or not known:
            raise HandleError(f"{handle.describe()} belongs to another orchestrator")
        if handle.incarnation != life.incarnation:
            raise HandleError(
                f"{handle.describe()} was lost before the worker was restarted",
                hint="allocate the memory or create the object again",
            )
        if life.lost is not None:
            raise WorkerLost(handle.worker, life.lost.reason, what=handle.describe())
        entry = self._entries.get(handle.key)
        if entry is None or entry.freeing:
            raise HandleError(f"{handle.describe()} was already freed")

    def check_whole(self, handle: Handle | ObjectHandle) -> None:
        """Raise an error if the handle is invalid or read-only, or refers to only a part of a buffer."""
        self.check(handle)
        if isinstance(handle, Handle) and not handle.whole:
            raise HandleError(f"{handle.describe()} is only a part of a buffer, so it cannot be freed")
        if isinstance(handle, Handle) and handle.access is Access.READ:
            raise HandleError(f"{handle.describe()} cannot be freed through a read-only handle")

    def begin_freeing(self, handle: Handle | ObjectHandle) -> None:
        """Mark a buffer or object as freed; its record stays until its last task has ended."""
        self._entries[handle.key].freeing = True
        self._lives[handle.worker].freeing += 1

    def remove(self, key: Key) -> None:
        """Remove the record of a buffer or object."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.stats[key.worker].live_bytes -= entry.size
            self._lives[key.worker].freeing -= entry.freeing

    def lose(self, worker: int, error: WorkerLost) -> Sequence[Key]:
        """Record the loss of a worker; remove the worker's buffers and objects, and return their keys."""
        self._lives[worker].lost = error
        gone = [key for key in self._entries if key.worker == worker]
        for key in gone:
            self.remove(key)
        self.stats[worker].alive = False
        return gone

    def revive(self, worker: int) -> None:
        """Record the restart of a lost worker."""
        life = self._lives[worker]
        life.past.add(life.incarnation)
        life.incarnation, life.lost = next(_INCARNATIONS), None
        self.stats[worker].alive = True

    def is_lost(self, worker: int) -> bool:
        """Return True if a worker is lost."""
        return self._lives[worker].lost is not None

    def is_freeing(self, worker: int) -> bool:
        """Return True if a worker has buffers or objects to free after their last tasks."""
        return self._lives[worker].freeing > 0

    def count_task(self, worker: int, cost: Cost, copies_to: int, copies_from: int, copies_avoided: int) -> None:
        """Add a finished task to the statistics."""
        found = self.stats[worker]
        found.tasks += 1
        found.seconds += cost.seconds
        found.copies_to += copies_to
        found.bytes_to += cost.bytes_to
        found.copies_from += copies_from
        found.bytes_from += cost.bytes_from
        found.copies_avoided += copies_avoided
        found.bytes_avoided += cost.bytes_avoided

    def count_copy(self, worker: int, *, to: int = -1, back: int = -1) -> None:
        """Count a copy in the statistics.

        ``to`` is the number of bytes copied to the worker, ``back`` the number copied from the worker. -1 means that
        there was no such copy.
        """
        found = self.stats[worker]
        if to >= 0:
            found.copies_to += 1
            found.bytes_to += to
        if back >= 0:
            found.copies_from += 1
            found.bytes_from += back

    def buffers(self) -> tuple[BufferStats, ...]:
        """Return the statistics of each buffer and object."""
        return tuple(
            BufferStats(key.worker, key.buffer, entry.size, "freeing" if entry.freeing else "live")
            for key, entry in self._entries.items()
        )
