"""Ledger of buffers and objects on workers, and statistics of their use."""

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
    """Buffer, or object of 0 bytes."""

    size: int
    """Bytes."""
    is_object: bool = False
    freeing: bool = False
    """True once a free was requested. The entry exists until its last task ends."""


@dataclass(frozen=True, slots=True)
class BufferStats:
    """Snapshot of one buffer."""

    worker: int
    buffer: int
    size: int
    """Bytes; 0 for an object."""
    state: str
    """``live``, or ``freeing`` from the request to free it until its last task ends."""


@dataclass(slots=True)
class WorkerStats:
    """Statistics of a worker over all its incarnations, and its current memory."""

    worker: int
    alive: bool = True
    live_bytes: int = 0
    """Bytes in its buffers."""
    tasks: int = 0
    seconds: float = 0.0
    """Seconds in tasks."""
    copies_to: int = 0
    """Copies by ``copy_to``, and of arguments."""
    bytes_to: int = 0
    copies_from: int = 0
    bytes_from: int = 0
    copies_avoided: int = 0
    """Resident arguments."""
    bytes_avoided: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of an orchestrator."""

    workers: tuple[WorkerStats, ...]
    buffers: tuple[BufferStats, ...]
    waiting: int
    """Tasks and operations that have not ended."""


@dataclass(slots=True)
class _Life:
    """Current incarnation of a worker."""

    incarnation: int
    lost: WorkerLost | None = None
    past: set[int] = field(default_factory=set)
    """Earlier incarnations."""
    freeing: int = 0
    """Buffers and objects that wait for their last task before they are freed."""


class Ledger:
    """Registry of handles. Every handle is checked here before it is used."""

    def __init__(self, workers: int) -> None:
        self._lives = [_Life(next(_INCARNATIONS)) for _ in range(workers)]
        self._entries: dict[Key, Entry] = {}
        self._numbers = itertools.count(1)
        self.stats = [WorkerStats(worker) for worker in range(workers)]

    def check_number(self, worker: int) -> None:
        """Raise an error for a worker that does not exist."""
        if not is_whole(worker):
            raise PlacementError(f"{worker!r} is not the number of a worker", hint="workers are numbered from 0 on")
        if not 0 <= worker < len(self._lives):
            raise PlacementError(f"there is no worker {worker}", hint=f"there are {len(self._lives)}, from 0 on")

    def check_worker(self, worker: int) -> None:
        """Raise an error for a worker that does not exist or is lost."""
        self.check_number(worker)
        lost = self._lives[worker].lost
        if lost is not None:
            raise WorkerLost(worker, lost.reason)

    def check_members(self, wanted: Sequence[int | None]) -> None:
        """Raise an error for members of a group that cannot all run at the same time. A task is a group of one."""
        known = [worker for worker in wanted if worker is not None]
        for worker in known:
            self.check_worker(worker)
        twice = next((worker for worker in known if known.count(worker) > 1), None)
        if twice is not None:
            raise PlacementError(
                f"worker {twice} is in a group more than once", hint="each member of a group needs a worker of its own"
            )
        if len(wanted) > len(self._lives):
            raise PlacementError(
                f"a group of {len(wanted)} members is wanted, and there are {len(self._lives)} workers",
                hint="each member of a group needs a worker of its own",
            )
        lost = [worker for worker, life in enumerate(self._lives) if life.lost is not None]
        if len(wanted) > len(self._lives) - len(lost):
            self.check_worker(lost[0])

    def number(self) -> int:
        """Return the number of a new buffer or object."""
        return next(self._numbers)

    def incarnation(self, worker: int) -> int:
        """Return the current incarnation of a worker."""
        return self._lives[worker].incarnation

    def add(self, worker: int, incarnation: int, buffer: int, size: int) -> Handle:
        """Add a buffer that now exists. Raises :class:`WorkerLost` if the worker was lost or restarted."""
        life = self._lives[worker]
        if life.lost is not None or life.incarnation != incarnation:
            raise life.lost or WorkerLost(worker, "it was started again since")
        handle = Handle(worker, incarnation, buffer, size)
        self._entries[handle.key] = Entry(size)
        self.stats[worker].live_bytes += size
        return handle

    def add_object(self, worker: int) -> ObjectHandle:
        """Add an object that does not exist yet."""
        handle = ObjectHandle(worker, self._lives[worker].incarnation, self.number())
        self._entries[handle.key] = Entry(0, is_object=True)
        return handle

    def check(self, handle: Handle | ObjectHandle) -> None:
        """Raise an error for a handle of something freed or lost, or of another orchestrator."""
        life = self._lives[handle.worker] if 0 <= handle.worker < len(self._lives) else None
        known = life is not None and handle.incarnation in (life.incarnation, *life.past)
        if life is None or not known:
            raise HandleError(f"{handle.describe()} is not of this orchestrator")
        if handle.incarnation != life.incarnation:
            raise HandleError(
                f"{handle.describe()} went with the worker, which was started again since", hint="make it again"
            )
        if life.lost is not None:
            raise WorkerLost(handle.worker, life.lost.reason, what=handle.describe())
        entry = self._entries.get(handle.key)
        if entry is None or entry.freeing:
            raise HandleError(f"{handle.describe()} was freed already")

    def check_whole(self, handle: Handle | ObjectHandle) -> None:
        """Raise an error for a handle that :meth:`check` refuses, for a part, and for a read-only handle."""
        self.check(handle)
        if isinstance(handle, Handle) and not handle.whole:
            raise HandleError(f"{handle.describe()} is a part, and only the whole can be freed")
        if isinstance(handle, Handle) and handle.access is Access.READ:
            raise HandleError(f"{handle.describe()} is freed by a handle that is for reading only")

    def begin_freeing(self, handle: Handle | ObjectHandle) -> None:
        """Refuse the handle from now on. The entry exists until its last task ends."""
        self._entries[handle.key].freeing = True
        self._lives[handle.worker].freeing += 1

    def remove(self, key: Key) -> None:
        """Remove an entry."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.stats[key.worker].live_bytes -= entry.size
            self._lives[key.worker].freeing -= entry.freeing

    def lose(self, worker: int, error: WorkerLost) -> Sequence[Key]:
        """Record the loss of a worker. Return the keys of its entries, which are removed."""
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
        """Return whether a worker is lost."""
        return self._lives[worker].lost is not None

    def is_freeing(self, worker: int) -> bool:
        """Return whether a worker has memory whose free is pending."""
        return self._lives[worker].freeing > 0

    def count_task(self, worker: int, cost: Cost, copies_to: int, copies_from: int, copies_avoided: int) -> None:
        """Count a finished task."""
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
        """Count a finished copy of ``to`` bytes to the worker, or ``back`` bytes from it."""
        found = self.stats[worker]
        if to >= 0:
            found.copies_to += 1
            found.bytes_to += to
        if back >= 0:
            found.copies_from += 1
            found.bytes_from += back

    def buffers(self) -> tuple[BufferStats, ...]:
        """Return the statistics of all buffers and objects."""
        return tuple(
            BufferStats(key.worker, key.buffer, entry.size, "freeing" if entry.freeing else "live")
            for key, entry in self._entries.items()
        )
