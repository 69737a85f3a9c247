"""Engine: starts the nodes that the scheduler chooses, and reports the transport's answers to the scheduler."""

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
"""A function that sends one worker's part of a node to the transport."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on unfinished work."""

    tasks: int
    nbytes: int
    """Maximum number of bytes of host arrays to copy to or from workers."""
    seconds: float
    """Maximum time in seconds that a submission waits."""


@dataclass(slots=True, eq=False)
class Work:
    """The engine's data for a node.

    It contains the function that starts the node, the node's future, and functions to call when the node ends.
    """

    future: TaskFuture
    start: Start
    nbytes: int = 0
    """Bytes of the node's host arrays. They count toward the byte limit until the node ends."""
    over: Callable[[Node, Work], Any] | None = None
    """Function that returns the future's result after success; called while the lock is held."""
    always: Callable[[], None] | None = None
    """Function that is called after success and after failure, while the lock is held."""
    frees: bool = False
    """True if the node frees memory."""
    bounded: bool = True
    """True if the node counts toward the limit on tasks."""
    results: dict[int, Any] = field(default_factory=dict)
    """Maps a worker to its answer."""
    claimed: bool = False
    """True after a thread has decided to set the result or error of the future."""


class Turn:
    """A context manager that holds the engine's lock; after releasing the lock, it applies the scheduler's changes.

    One object serves all threads, because only one thread at a time holds the lock.
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
"""A function to call while the lock is not held, and the function's argument."""
_LOGGER = logging.getLogger(__name__)
_CLOSED = "the orchestrator is closed"


class Engine:
    """Owner of the scheduler and the ledger, and of their lock. Transports and futures are called without the lock."""

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
        """Number of nodes that have not ended or whose future is not done."""
        self._numbers = itertools.count(1)
        self._count = self._bytes = 0
        """``_count``: number of unfinished bounded nodes. ``_bytes``: host bytes of all unfinished nodes."""
        self._following = threading.local()
        self.closed = False
        self._opened, self._any = Turn(self, opened=True), Turn(self, opened=False)

    def turn(self, *, opened: bool = True) -> Turn:
        """Return a context manager that holds the lock and, after releasing the lock, applies the scheduler's changes.

        With ``opened``, entering the block raises :class:`ClosedError` if the orchestrator is closed.
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
        """Add a node and return its future; if an error is raised, the node is not added.

        The caller must hold the lock. Before a call for a bounded node, the caller must call :meth:`wait_for_room`.
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
        """Cancel a node; return False if the node has started or frees memory.

        A node that frees memory cannot be cancelled, because the handle of the memory is already invalid.
        """
        with self.turn(opened=False):
            if node.job is not None and node.job.frees:
                return False
            return self.scheduler.cancel(node)

    def lost(self, worker: int, reason: str) -> None:
        """Record the loss of a worker; called by the transport."""
        with self.turn(opened=False):
            if self.ledger.is_lost(worker):
                return
            error = WorkerLost(worker, reason)
            keys = self.ledger.lose(worker, error)
            self.scheduler.lost(worker, error)
            self.scheduler.drop(keys)
            self._room.notify_all()

    def is_inside(self) -> bool:
        """Return True if this thread holds the lock; a finalizer that runs in this case must not change anything."""
        return is_mine(self.lock)

    def untangle(self) -> None:
        """Release the lock if this thread still holds it after an interrupt."""
        self._following.todo = None
        while self.is_inside():
            self.lock.release()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all nodes have ended and all futures are done, but at most for ``seconds``."""
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
        """Wait until the limits permit another bounded node; the caller must hold the lock.

        Return True if the lock was released while waiting. In this case, the caller must check its handles again.
        """
        if getattr(self._following, "todo", None) is not None:
            return False  # This thread ends other nodes, which makes room, so it must not wait.
        waited = False
        bounds, end = self._bounds, time.monotonic() + self._bounds.seconds
        while self._count >= bounds.tasks or (self._bytes and self._bytes + nbytes > bounds.nbytes):
            left = end - time.monotonic()
            if left <= 0:
                raise BackPressureError(
                    f"a task with {nbytes} bytes to copy could not be submitted within {bounds.seconds:g} s: "
                    f"{self._count} tasks with {self._bytes} bytes to copy are unfinished, "
                    f"and {self._oldest()} is the oldest",
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
        """Apply changes while the lock is not held. Then apply further changes that result from these changes."""
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
        _LOGGER.critical("a callback of a task raised %s", type(error).__name__, exc_info=error)

    # Each of these functions does nothing if another thread has already settled the node. A settled node has no job.

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
                if worker in node.running:  # Otherwise the worker has already answered or is lost.
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
        node.job = None  # Release everything that the work refers to.
        try:
            if not claimed:
                _tell(work.future, result, error)
        finally:
            with self.lock:
                self._unsettled -= 1
                if not self._unsettled:
                    self._quiet.notify_all()

    def _fail(self, node: Node) -> None:
        """Set a node's error in the node's future, before the node ends. Do nothing if the future is already done."""
        work: Work | None = node.job
        if work is None or node.error is None:
            return
        with self.lock:
            claimed, work.claimed = work.claimed, True
        if not claimed:
            _tell(work.future, None, node.error)

    def refuse_callback(self, what: str) -> None:
        """Raise an error if this thread runs a callback of a task.

        Waiting in a callback could block the thread that receives answers. ``what`` names the awaited result in the
        error's message.
        """
        if getattr(self._following, "todo", None) is not None:
            raise OrchestratorError(
                f"a callback of a task must not wait for {what}: it may run on the thread that receives the results",
                hint="wait for results in another thread",
            )

    def _drive(self, future: TaskFuture) -> None:
        """If the transport has no threads, run queued tasks in this thread until a future is done.

        In a callback, first apply the pending changes of this thread. Then, if the transport has threads and the future
        is still not done, raise an error.
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
                    raise OrchestratorError(
                        f"{future.label} can never finish, because no task is ready to run: "
                        f"{self._oldest()} is the oldest unfinished task"
                    )


def _next(steps: deque[_Step]) -> None:
    step, node = steps.popleft()
    step(node)


def _tell(future: TaskFuture, result: Any, error: BaseException | None) -> None:
    if error is None:
        future.set_result(result)
    elif isinstance(error, CancelledTaskError) and not future.running():  # A task may raise this error itself.
        future.cancel_now()
    else:
        future.set_exception(error)
