"""Engine between scheduler and transport: it starts what the scheduler decides, and reports the answers to it."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from etdev.runtime.locks import is_mine
from etdev.runtime.orchestrator.errors import (
    BackPressureError,
    CancelledTaskError,
    ClosedError,
    OrchestratorError,
    WorkerLost,
)
from etdev.runtime.orchestrator.futures import TaskFuture
from etdev.runtime.orchestrator.handles import Use
from etdev.runtime.orchestrator.ledger import Ledger
from etdev.runtime.orchestrator.nodes import Node
from etdev.runtime.orchestrator.scheduler import Changes, Scheduler
from etdev.runtime.orchestrator.transports.base import Done, Transport

Start = Callable[[Node, int, Done], None]
"""Passes one worker's part of a node to the transport."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on what is in flight at once."""

    tasks: int
    nbytes: int
    """Host bytes in arrays that are copied to workers or back."""
    seconds: float
    """Seconds to wait for room."""


@dataclass(slots=True, eq=False)
class Work:
    """Work of a node, and its future."""

    future: TaskFuture
    start: Start
    nbytes: int = 0
    """Host bytes that it holds until it ends."""
    over: Callable[[Node, Work], Any] | None = None
    """Computes the result of the future after success. Called with the lock held."""
    always: Callable[[], None] | None = None
    """Called with the lock held, after success and after failure."""
    frees: bool = False
    """True if it frees memory."""
    bounded: bool = True
    """True if it waits for room."""
    results: dict[int, Any] = field(default_factory=dict)
    """Worker → answer."""
    claimed: bool = False
    """True if a thread resolves the future now, or has resolved it."""


class Turn:
    """Context manager for the engine's lock. Its end applies the scheduler's changes.

    One instance serves all threads, since only one thread at a time is in it.
    """

    def __init__(self, engine: Engine, *, opened: bool) -> None:
        self._engine, self._opened = engine, opened

    def __enter__(self) -> None:
        engine = self._engine
        engine.lock.acquire()
        if self._opened and engine.closed:
            engine.lock.release()
            raise ClosedError(_CLOSED)

    def __exit__(self, *_: object) -> None:
        engine = self._engine
        try:
            changes = engine.scheduler.changes()
        finally:
            engine.lock.release()
        if changes is not None:
            engine.follow(changes)


_Step = tuple[Callable[[Node], None], Node]
"""Function and its node, called once outside of the lock."""
_LOGGER = logging.getLogger(__name__)
_CLOSED = "the orchestrator is closed"


class Engine:
    """One lock around the scheduler and the ledger. Transports and futures are called outside of it."""

    def __init__(self, transport: Transport, bounds: Bounds) -> None:
        workers = len(transport.specs)
        self.ledger = Ledger(workers)
        self.scheduler = Scheduler(workers)
        self.transport = transport
        self._bounds = bounds
        self.lock = threading.RLock()
        self._room = threading.Condition(self.lock)
        self._quiet = threading.Condition(self.lock)
        self._unsettled = 0
        """Number of futures that are not done, or whose nodes have not ended."""
        self._numbers = itertools.count(1)
        self._count = self._bytes = 0
        """Number of bounded nodes in flight, and host bytes of all nodes in flight."""
        self._following = threading.local()
        self.closed = False
        self._opened, self._any = Turn(self, opened=True), Turn(self, opened=False)

    def turn(self, *, opened: bool = True) -> Turn:
        """Return the lock as a context manager, which applies the changes of the block after releasing it.

        With ``opened`` it raises :class:`ClosedError` if the orchestrator is closed.
        """
        return self._opened if opened else self._any

    def enter(
        self,
        label: str,
        wanted: tuple[int | None, ...],
        uses: Sequence[Use],
        start: Start,
        *,
        memory: bool = False,
        nbytes: int = 0,
        bounded: bool = True,
        frees: bool = False,
        over: Callable[[Node, Work], Any] | None = None,
        always: Callable[[], None] | None = None,
    ) -> TaskFuture:
        """Add a node. If this raises, no node is left.

        The caller holds the lock, and has waited for room if the node is bounded.
        """
        number = next(self._numbers)
        node = Node(number, f"task {number} ({label})", wanted, tuple(uses), memory)
        future = TaskFuture(node.label, lambda: self.cancel(node), self._drive)
        node.job = Work(future, start, nbytes, over, always, frees, bounded)
        self.scheduler.submit(node)
        self._unsettled += 1
        self._count += bounded
        self._bytes += nbytes
        return future

    def cancel(self, node: Node) -> bool:
        """Cancel a node that has not begun. Return False if it has begun, or if it frees memory.

        The handle of such memory is already invalid, so that it could not be freed later.
        """
        with self.turn(opened=False):
            if node.job is not None and node.job.frees:
                return False
            return self.scheduler.cancel(node)

    def lost(self, worker: int, reason: str) -> None:
        """Record the loss of a worker, as reported by the transport."""
        with self.turn(opened=False):
            if self.ledger.is_lost(worker):
                return
            error = WorkerLost(worker, reason)
            keys = self.ledger.lose(worker, error)
            self.scheduler.lost(worker, error)
            self.scheduler.drop(keys)
            self._room.notify_all()

    def is_inside(self) -> bool:
        """Return whether this thread holds the lock. Finalizers that run then must not decide anything."""
        return is_mine(self.lock)

    def untangle(self) -> None:
        """Release the lock that an interrupt left locked by this thread."""
        self._following.todo = None
        while self.is_inside():
            self.lock.release()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all nodes have ended and their futures are done, at most for ``seconds`` if given."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if end is None else end - time.monotonic()
            with self.lock:
                if not self._unsettled or (left is not None and left <= 0):
                    return
            if self.transport.step() is None:
                with self.lock:
                    self._quiet.wait_for(lambda: not self._unsettled, left)

    def wait_for_room(self, nbytes: int) -> bool:
        """Wait for room for a bounded node. The caller holds the lock.

        Return whether the lock was released meanwhile: earlier lookups may be out of date then.
        """
        if getattr(self._following, "todo", None) is not None:
            return False  # A thread that makes room must not wait for it.
        waited = False
        bounds, end = self._bounds, time.monotonic() + self._bounds.seconds
        while self._count >= bounds.tasks or (self._bytes and self._bytes + nbytes > bounds.nbytes):
            left = end - time.monotonic()
            if left <= 0:
                raise BackPressureError(
                    f"there was no room in {bounds.seconds:g} s for another task with {nbytes} bytes: {self._count} "
                    f"tasks with {self._bytes} bytes are on the way, and {self._oldest()} is the oldest",
                    hint="wait for results before you submit more, or raise `max_tasks` and `max_bytes`",
                )
            waited = True
            self.lock.release()
            try:
                stepped = self.transport.step()
            finally:
                self.lock.acquire()
            if stepped is None:
                self._room.wait(left)
            elif not stepped:
                end = 0.0
            if self.closed:
                raise ClosedError(_CLOSED)
        return waited

    def _oldest(self) -> str:
        node = self.scheduler.oldest()
        return f"{node.label}, which is {node.state.value}," if node else "none"

    def follow(self, changes: Changes) -> None:
        """Apply changes. Changes that follow from them run in the same loop, not in nested calls."""
        todo: deque[_Step] | None = getattr(self._following, "todo", None)
        steps: deque[_Step] = deque()
        for node in changes.doomed:
            steps.append((self._fail, node))
        for node in changes.ended:
            steps.append((self._settle, node))
        for node in changes.begun:
            steps.append((self._begin, node))
        if todo is not None:
            todo.extend(steps)
            return
        self._following.todo = steps
        error: BaseException | None = None
        try:
            while steps:
                try:
                    _next(steps)
                except BaseException as raised:  # noqa: BLE001 - from a callback; the other steps must still run
                    error = error or raised
        finally:
            self._following.todo = None
        if error is None:
            return
        if threading.current_thread() is threading.main_thread():
            raise error
        _LOGGER.critical("a callback of a task ended in %s", type(error).__name__, exc_info=error)

    # Another thread may have settled the node already. A settled node has no job.

    def _begin(self, node: Node) -> None:
        work: Work | None = node.job
        if work is None:
            return
        with self.lock:
            if not work.claimed:
                work.future.set_running_or_notify_cancel()
        for worker in node.workers:
            if worker in node.running:
                self._start(node, work, worker)

    def _start(self, node: Node, work: Work, worker: int) -> None:
        def done(result: Any, error: BaseException | None) -> None:
            with self.turn(opened=False):
                if worker in node.running:  # Otherwise it has answered already or was lost.
                    work.results[worker] = result
                    self.scheduler.finished(node, worker, error)

        try:
            work.start(node, worker, done)
        except BaseException as error:
            done(None, error)  # A task that cannot be sent fails like one that cannot run.
            if not isinstance(error, Exception):
                raise

    def _settle(self, node: Node) -> None:
        work: Work = node.job
        result, error = None, node.error
        with self.lock:
            if error is None and work.over is not None:
                try:
                    result = work.over(node, work)
                except Exception as failure:  # noqa: BLE001 - an unexpected answer is a failure of the task
                    error = failure
            if work.always is not None:
                work.always()
            self._count -= work.bounded
            self._bytes -= work.nbytes
            self._room.notify_all()
            claimed, work.claimed = work.claimed, True
        node.job = None  # Later readers may still ask for its outcome, but need nothing that the job held.
        try:
            if not claimed:
                _tell(work.future, result, error)
        finally:
            with self.lock:
                self._unsettled -= 1
                if not self._unsettled:
                    self._quiet.notify_all()

    def _fail(self, node: Node) -> None:
        """Fail the future of a node before the node ends, if it is not resolved yet."""
        work: Work | None = node.job
        if work is None or node.error is None:
            return
        with self.lock:
            claimed, work.claimed = work.claimed, True
        if not claimed:
            _tell(work.future, None, node.error)

    def refuse_callback(self, what: str) -> None:
        """Raise an error in a callback of a task. The awaited answers may need this very thread."""
        if getattr(self._following, "todo", None) is not None:
            raise OrchestratorError(
                f"a callback of a task waits for {what}, whose answers may come by the callback's own thread",
                hint="submit from the callback, and wait for results elsewhere",
            )

    def _drive(self, future: TaskFuture) -> None:
        """Run a transport without threads until a future is done.

        In a callback, first run the remaining steps of this thread, because no other thread runs them. If the future is
        still not done, raise an error there.
        """
        todo: deque[_Step] | None = getattr(self._following, "todo", None)
        while todo and not future.done():
            _next(todo)
        while not future.done():
            stepped = self.transport.step()
            if stepped is None:
                self.refuse_callback(future.label)
                return
            if not stepped and not future.done():
                with self.lock:
                    raise OrchestratorError(f"{future.label} will never be done: {self._oldest()} is the oldest")


def _next(steps: deque[_Step]) -> None:
    step, node = steps.popleft()
    step(node)


def _tell(future: TaskFuture, result: Any, error: BaseException | None) -> None:
    if error is None:
        future.set_result(result)
    elif isinstance(error, CancelledTaskError) and not future.running():  # A task may itself raise such an error.
        future.cancel_now()
    else:
        future.set_exception(error)
