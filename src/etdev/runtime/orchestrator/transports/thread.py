"""Transport to workers in this process. Each worker has a thread for tasks. Copies run in the calling thread."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Lock, Thread, current_thread, main_thread
from typing import Any

from etdev.runtime.orchestrator.messages import Job
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.orchestrator.transports.base import Done, Health, Transport, Unknown
from etdev.runtime.orchestrator.worker import Worker

_Task = tuple[Job, Done]


class _Lane:
    """A worker and its thread. A restart creates a new :class:`_Lane`."""

    def __init__(self, number: int, spec: WorkerSpec) -> None:
        self.worker = Worker(number, spec)
        self.alive = True
        self._jobs: SimpleQueue[_Task | None] = SimpleQueue()
        self._lock = Lock()
        self._users = 0
        """Number of threads that are using the worker's memory."""

    def start(self) -> None:
        """Start the thread that runs queued tasks."""
        Thread(target=self._loop, name=f"etdev worker {self.worker.number}", daemon=True).start()

    def put(self, task: _Task | None) -> None:
        """Queue a task; None ends the thread."""
        self._jobs.put(task)

    def _loop(self) -> None:
        while (task := self._jobs.get()) is not None:
            self.run(task)
            del task  # Release the memory of the task while waiting for the next one.

    def run(self, task: _Task) -> None:
        """Run a task in the calling thread."""
        job, done = task
        self.use(lambda: self.worker.run(job), done)

    def use(self, action: Callable[[], Any], done: Done) -> None:
        """Run ``action``, which uses the worker's memory; if the worker is still alive, pass the result to ``done``."""
        with self._lock:
            if not self.alive:
                return
            self._users += 1
        result: Any = None
        failure: BaseException | None = None
        try:
            result = action()
        except BaseException as error:  # noqa: BLE001 - the error is the answer
            failure = error
        if self._leave():
            done(result, failure)
        if isinstance(failure, KeyboardInterrupt) and current_thread() is main_thread():
            raise failure  # The interrupt is for the caller, who does not wait for this copy.

    def _leave(self) -> bool:
        """Record that a thread has finished using the memory; return True if the worker is alive."""
        with self._lock:
            self._users -= 1
            alive, last = self.alive, not self._users
        if not alive and last:
            self.worker.close()
        return alive

    def end(self) -> None:
        """Stop answering, and free the memory when no thread uses it any more."""
        with self._lock:
            alive, self.alive = self.alive, False
            last = not self._users
        self.put(None)
        if alive and last:
            self.worker.close()


class ThreadTransport(Transport):
    """Transport with one thread for each worker or, with ``seed``, without threads.

    With ``seed``, tasks run in the thread that waits for them, in a random order that the seed determines.
    """

    def __init__(self, specs: Sequence[WorkerSpec], *, seed: int | None = None) -> None:
        super().__init__(specs)
        self._random = None if seed is None else random.Random(seed)
        self._waiting: list[tuple[_Lane, _Task]] = []
        self._lanes: list[_Lane] = []

    def start(self, lost: Unknown) -> None:
        """Start the threads."""
        self._lost = lost
        try:
            for number in range(len(self.specs)):
                self._lanes.append(self._lane(number))
        except BaseException:
            self.close()
            raise

    def alloc(self, worker: int, buffer: int, nbytes: int, done: Done) -> None:
        """Allocate a buffer in the calling thread."""
        lane = self._lanes[worker]
        lane.use(lambda: lane.worker.alloc(buffer, nbytes), done)

    def free(self, worker: int, buffer: int, done: Done) -> None:
        """Free a buffer or an object in the calling thread."""
        lane = self._lanes[worker]
        lane.use(lambda: lane.worker.free(buffer), done)

    def put(self, worker: int, buffer: int, offset: int, data: Any, done: Done) -> None:
        """Copy host bytes to a worker's buffer. The calling thread makes the copy."""
        lane = self._lanes[worker]
        lane.use(lambda: lane.worker.put(buffer, offset, data), done)

    def get(self, worker: int, buffer: int, offset: int, nbytes: int, done: Done) -> None:
        """Copy bytes of a buffer to the host in the calling thread."""
        lane = self._lanes[worker]
        lane.use(lambda: lane.worker.get(buffer, offset, nbytes), done)

    def run(self, worker: int, job: Job, done: Done) -> None:
        """Queue a job for the worker's thread."""
        lane = self._lanes[worker]
        if self._random is None:
            lane.put((job, done))
        else:
            self._waiting.append((lane, (job, done)))

    def step(self) -> bool | None:
        """Run one queued task in the calling thread; return False if no task is queued.

        Return None if the workers have threads.
        """
        if self._random is None:
            return None
        if not self._waiting:
            return False
        lane, task = self._waiting.pop(self._random.randrange(len(self._waiting)))
        lane.run(task)
        return True

    def health(self, worker: int) -> Health:
        """Return the state of a worker: whether it is alive, its process id, and its allocated bytes."""
        lane = self._lanes[worker]
        return Health(lane.alive, os.getpid(), lane.worker.live_bytes() if lane.alive else 0)

    def restart(self, worker: int) -> None:
        """Start a new thread for a lost worker, with empty memory."""
        self._lanes[worker] = self._lane(worker)

    def kill(self, worker: int) -> None:
        """Mark the worker as lost. Its thread cannot be killed, so a running task continues; its answer is ignored."""
        lane = self._lanes[worker]
        if lane.alive:
            lane.end()
            self._lost(worker, "it was killed")

    def close(self) -> None:
        """End the threads."""
        for lane in self._lanes:
            lane.end()

    def _lane(self, number: int) -> _Lane:
        lane = _Lane(number, self.specs[number])
        if self._random is None:
            lane.start()
        return lane
