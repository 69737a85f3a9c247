"""Orchestrator, which runs tasks and memory operations on workers.

The order results from the bytes that the tasks and operations use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Self

from etdev.errors import UsageError
from etdev.runtime.errors import OutOfDeviceMemoryError
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.orchestrator.arguments import Arguments, read_arguments, read_members, write_back
from etdev.runtime.orchestrator.arrays import dense, is_array
from etdev.runtime.orchestrator.engine import Bounds, Engine, Start, Work
from etdev.runtime.orchestrator.errors import PlacementError, PoisonedError, WorkerLost
from etdev.runtime.orchestrator.futures import TaskFuture
from etdev.runtime.orchestrator.handles import Access, Handle, ObjectHandle, Use, check_count
from etdev.runtime.orchestrator.ledger import Stats
from etdev.runtime.orchestrator.messages import Job, Outcome
from etdev.runtime.orchestrator.nodes import Node
from etdev.runtime.orchestrator.scope import Scope
from etdev.runtime.orchestrator.spec import WorkerSpec, parse_workers
from etdev.runtime.orchestrator.transports import open_transport
from etdev.runtime.orchestrator.transports.base import Done, Health
from etdev.runtime.owners import MoveOnly

_KILLED_SECONDS = 10.0
"""Maximum time in seconds to wait for tasks of killed workers. Tasks in threads cannot be killed and may never end."""


class Orchestrator(MoveOnly):
    """Workers with their memory, objects and tasks; the methods resemble ``concurrent.futures``.

    An orchestrator is a context manager. The end of the block waits for all tasks, or cancels them if the block failed.
    An interrupt kills the workers.

    ``workers`` is the number of workers, or a list with the memory of each worker: ``["cpu", "cuda:0", "sim"]``.
    ``transport`` is ``thread``, ``process`` or ``ray``. Unfinished tasks are limited to ``max_tasks``, and their arrays
    to ``max_bytes`` bytes. A further submission waits for up to ``timeout`` seconds, then raises
    :class:`BackPressureError`. With ``seed``, tasks on the transport ``thread`` run in a random order, in the thread
    that waits for them. ``ray_address`` is the address of a Ray cluster; by default, Ray starts a cluster.
    """

    def __init__(
        self,
        workers: int | Sequence[str | WorkerSpec] = 1,
        transport: str = "thread",
        *,
        max_tasks: int = 100_000,
        max_bytes: int = 1 << 30,
        timeout: float = 600.0,
        seed: int | None = None,
        ray_address: str | None = None,
    ) -> None:
        self.specs = parse_workers(workers)
        self._transport = open_transport(transport, self.specs, seed=seed, ray_address=ray_address)
        self._engine = Engine(self._transport, Bounds(max_tasks, max_bytes, timeout))
        self._ledger = self._engine.ledger
        self._transport.start(self._engine.lost)

    # Memory

    def malloc(self, worker: int, nbytes: int) -> Handle:
        """Allocate memory on a worker; if memory is short, wait for pending frees and try again.

        Raises :class:`~etdev.runtime.errors.OutOfDeviceMemoryError` if memory is still short, and :class:`WorkerLost`
        for a lost worker. Raises :class:`PlacementError` for a worker that does not exist.
        """
        check_count(nbytes, f"the size of memory on worker {worker}")
        while True:
            with self._engine.turn():
                self._ledger.check_worker(worker)
                live = self._engine.scheduler.live() if self._ledger.is_freeing(worker) else ()
                freeing = [node.job.future for node in live if node.job.frees and worker in node.workers]
                future = self._alloc(worker, nbytes)
            try:
                found: Handle = future.result()
            except OutOfDeviceMemoryError:
                if not freeing:
                    raise
                for one in freeing:
                    one.exception()
            except BaseException:
                future.add_done_callback(self._discard)  # The caller does not get a handle that it could free.
                raise
            else:
                return found

    def _discard(self, future: Future[Any]) -> None:
        """Free memory that :meth:`malloc` allocated for a caller who was interrupted before receiving the handle."""
        if not future.cancelled() and future.exception() is None:
            with suppress(UsageError, WorkerLost):
                self.free(future.result())

    def free(self, handle: Handle | ObjectHandle) -> TaskFuture:
        """Free memory, or close an object, when all earlier tasks that use it have ended.

        The handle is invalid after this call. Raises :class:`HandleError` for an invalid or read-only handle, and for
        a part of a buffer.
        """
        key = handle.key

        def start(node: Node, worker: int, done: Done) -> None:
            self._transport.free(worker, handle.buffer, done)

        def gone() -> None:
            self._ledger.remove(key)
            self._engine.scheduler.drop([key])

        with self._engine.turn():
            self._ledger.check_whole(handle)
            use = Use(key, 0, max(handle.size, 1) if isinstance(handle, Handle) else 1, Access.WRITE)
            future = self._engine.enter(
                "free", (handle.worker,), (use,), start, memory=True, bounded=False, frees=True, always=gone
            )
            self._ledger.begin_freeing(handle)
            return future

    def copy_to(self, handle: Handle, data: Any) -> TaskFuture:
        """Copy a host array to the memory of a handle; the caller may change the array after this call."""
        view = host_bytes(dense(data) if is_array(data) else data)
        if len(view) != handle.size:
            raise UsageError(f"{len(view)} bytes cannot be copied to {handle.size} bytes: {handle.describe()}")
        handle.resident(Access.WRITE)  # This raises an error for a read-only handle.
        taken = bytes(view)

        def start(node: Node, worker: int, done: Done) -> None:
            self._transport.put(worker, handle.buffer, handle.offset, taken, done)

        def over(node: Node, work: Work) -> None:
            self._ledger.count_copy(handle.worker, to=len(taken))

        return self._copy("copy_to", handle, Access.WRITE, start, over)

    def copy_from(self, handle: Handle) -> TaskFuture:
        """Copy memory of a worker to the host; the result of the returned future is a ``bytearray``."""

        def start(node: Node, worker: int, done: Done) -> None:
            self._transport.get(worker, handle.buffer, handle.offset, handle.size, done)

        def over(node: Node, work: Work) -> Any:
            self._ledger.count_copy(handle.worker, back=handle.size)
            return work.results[handle.worker]

        return self._copy("copy_from", handle, Access.READ, start, over)

    @contextmanager
    def scope(self) -> Iterator[Scope]:
        """Return a context manager for a scope, whose memory and objects are freed at the end of the block."""
        scope = Scope(self)
        try:
            yield scope
        finally:
            scope.close()

    # Tasks

    def submit(self, call: Callable[..., Any], /, *args: Any, worker: int | None = None, **kwargs: Any) -> TaskFuture:
        """Call a function on a worker and return the future of the function's result.

        The call runs on the worker of the resident arguments. Without resident arguments, the call runs on ``worker``,
        or on any worker if ``worker`` is None. Arrays are copied to the worker's memory for the call; the function gets
        them as :class:`~etdev.runtime.orchestrator.arrays.WorkerArray`. ``Out(array)`` and ``InOut(array)`` are copied
        back. Other arguments are sent unchanged. With processes and Ray, these arguments and the result must be
        picklable.
        """
        arguments = read_arguments(args, kwargs)
        place = arguments.worker(worker)
        with self._engine.turn():
            self._admit([arguments], (place,))
            return self._tasks(call, [arguments], (place,), kwargs)

    def submit_group(
        self,
        call: Callable[..., Any],
        args_list: Sequence[Sequence[Any]],
        *,
        workers: Sequence[int | None] | None = None,
    ) -> TaskFuture:
        """Call a function on several workers at the same time, with different arguments. All calls start, or none.

        ``workers`` contains a worker for each call. ``None`` means the worker of the call's resident arguments. Without
        resident arguments, it means any free worker. The group is one task. If a call fails, the task fails with the
        first error. Otherwise the task's result is the list of all results.
        """
        every, wanted = read_members(args_list, workers)
        with self._engine.turn():
            self._admit(every, wanted)
            return self._tasks(call, every, wanted, {}, group=True)

    def create(self, call: Callable[..., Any], /, *args: Any, worker: int, **kwargs: Any) -> ObjectHandle:
        """Call a function on a worker and store the result there as an object.

        The call returns immediately; use :meth:`ready` to wait for the object. A task that gets ``handle.resident()``
        receives the object itself. If the object has a method ``close``, freeing the object calls this method.
        """
        arguments = read_arguments(args, kwargs)
        arguments.worker(worker)
        with self._engine.turn():
            self._ledger.check_worker(worker)
            self._admit([arguments], (worker,))
            handle = self._ledger.add_object(worker)
            try:
                self._tasks(call, [arguments], (worker,), kwargs, keep=handle)
            except BaseException:
                self._ledger.remove(handle.key)
                raise
            return handle

    def ready(self, *handles: ObjectHandle) -> None:
        """Wait until objects are created; raise the error of the first creation that failed."""
        for future in [self.submit(_nothing, handle.resident(Access.READ)) for handle in handles]:
            error = future.exception()
            if error is not None:
                raise error.cause if isinstance(error, PoisonedError) else error

    # Workers

    def health(self, worker: int) -> Health:
        """Return the state of a worker: whether it is alive, its process id and its allocated bytes."""
        self._ledger.check_number(worker)
        return self._transport.health(worker)

    def restart(self, worker: int) -> None:
        """Start a lost worker again, with empty memory; earlier handles stay invalid."""
        with self._engine.turn():
            self._ledger.check_number(worker)
            if not self._ledger.is_lost(worker):
                raise PlacementError(f"worker {worker} is alive, so it cannot be restarted", hint="call `kill` first")
            self._ledger.revive(worker)  # From here on, the worker may be lost again. It gets no work until it runs.
        try:
            self._transport.restart(worker)
        except BaseException:
            self._engine.lost(worker, "the restart failed")
            raise
        with self._engine.turn():
            if not self._ledger.is_lost(worker):
                self._engine.scheduler.started_again(worker)

    def kill(self, worker: int) -> None:
        """Kill a worker immediately, even if it runs a task."""
        with self._engine.turn():
            self._ledger.check_worker(worker)
        self._transport.kill(worker)

    def stats(self) -> Stats:
        """Return statistics of workers, buffers and unfinished tasks."""
        with self._engine.turn(opened=False):
            workers = tuple(replace(found) for found in self._ledger.stats)
            return Stats(workers, self._ledger.buffers(), len(self._engine.scheduler.live()))

    # Shutdown

    def wait(self) -> None:
        """Wait for all tasks. If a task fails, only the task's future raises the error."""
        self._engine.refuse_callback("the end of all tasks")
        self._engine.wait()

    def close(self, *, cancel: bool = False, kill: bool = False) -> None:
        """Wait for all tasks, then end the workers.

        ``cancel`` cancels the tasks that have not started. ``kill`` kills the workers immediately. A second call has no
        effect. Other methods of a closed orchestrator raise :class:`ClosedError`.
        """
        if kill:
            self._engine.untangle()
        else:
            self._engine.refuse_callback("the end of all tasks")
        with self._engine.turn(opened=False):
            if self._engine.closed:
                return
            self._engine.closed = True
            live = self._engine.scheduler.live() if cancel or kill else ()
        for node in live:
            self._engine.cancel(node)
        for worker in range(len(self.specs) if kill else 0):
            self._transport.kill(worker)
        try:
            self._engine.wait(_KILLED_SECONDS if kill else None)
        except BaseException:
            for worker in range(len(self.specs)):
                self._transport.kill(worker)  # Otherwise other threads could wait forever for running tasks.
            raise
        finally:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self.close(cancel=kind is not None, kill=kind is KeyboardInterrupt)

    def is_inside(self) -> bool:
        """Return True if this thread holds the lock; finalizers must not call the orchestrator in this case."""
        return self._engine.is_inside()

    # The lock is held during these calls

    def _admit(self, every: Sequence[Arguments], wanted: Sequence[int | None]) -> None:
        """Wait until the limits permit a task or group; check its handles and workers before and after the wait."""
        self._check(every, wanted)
        if self._engine.wait_for_room(sum(arguments.nbytes for arguments in every)):
            self._check(every, wanted)

    def _check(self, every: Sequence[Arguments], wanted: Sequence[int | None]) -> None:
        for arguments in every:
            for handle in arguments.handles:
                self._ledger.check(handle)
        self._ledger.check_members(wanted)

    def _tasks(
        self,
        call: Callable[..., Any],
        every: Sequence[Arguments],
        wanted: tuple[int | None, ...],
        kwargs: Mapping[str, Any],
        *,
        group: bool = False,
        keep: ObjectHandle | None = None,
    ) -> TaskFuture:
        def start(node: Node, worker: int, done: Done) -> None:
            mine = every[node.workers.index(worker)]
            self._transport.run(worker, Job(call, mine.sent, kwargs, keep.buffer if keep else None), done)

        def over(node: Node, work: Work) -> Any:
            outcomes: list[Outcome] = [work.results[worker] for worker in node.workers]
            for worker, mine, outcome in zip(node.workers, every, outcomes, strict=True):
                self._ledger.count_task(worker, outcome.cost, mine.copies_to, len(outcome.outputs), mine.copies_avoided)
            work.future.outputs = tuple(
                write_back(mine, outcome.outputs) for mine, outcome in zip(every, outcomes, strict=True)
            )
            work.future.cost = tuple(outcome.cost for outcome in outcomes)
            values = [outcome.value for outcome in outcomes]
            return values if group else values[0]

        uses = [use for mine in every for use in mine.uses]
        if keep is not None:
            uses.append(keep.use(Access.WRITE))
        name = getattr(call, "__qualname__", type(call).__name__)
        return self._engine.enter(name, wanted, uses, start, nbytes=sum(mine.nbytes for mine in every), over=over)

    def _alloc(self, worker: int, nbytes: int) -> TaskFuture:
        buffer, incarnation = self._ledger.number(), self._ledger.incarnation(worker)

        def start(node: Node, worker: int, done: Done) -> None:
            self._transport.alloc(worker, buffer, nbytes, done)

        def over(node: Node, work: Work) -> Handle:
            return self._ledger.add(worker, incarnation, buffer, nbytes)

        return self._engine.enter("malloc", (worker,), (), start, memory=True, bounded=False, over=over)

    def _copy(
        self, label: str, handle: Handle, access: Access, start: Start, over: Callable[[Node, Work], Any]
    ) -> TaskFuture:
        with self._engine.turn():
            self._ledger.check(handle)
            if self._engine.wait_for_room(handle.size):
                self._ledger.check(handle)
            uses = (handle.use(access),)
            return self._engine.enter(label, (handle.worker,), uses, start, memory=True, nbytes=handle.size, over=over)


def _nothing(*_: Any) -> None:
    pass
