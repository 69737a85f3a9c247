"""Transport to workers that are Ray actors, on this machine or on a cluster.

Ray must not restart an actor or repeat a task, because an actor that ends loses its memory.
"""

from __future__ import annotations

import pickle
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import GetTimeoutError, RayActorError

from etdev.runtime.hostmem import host_bytes
from etdev.runtime.orchestrator.errors import OrchestratorError, RemoteError
from etdev.runtime.orchestrator.messages import Job
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.orchestrator.transports.base import Done, Health, Transport, Unknown
from etdev.runtime.orchestrator.transports.process_parts import (
    Read,
    decode,
    dump_job,
    first_part,
    load_error,
    load_outcome,
    nothing,
)
from etdev.runtime.orchestrator.transports.ray_actor import GROUPS, RayWorker, pack, read_answer
from etdev.runtime.orchestrator.transports.ray_cluster import SHARED

_START_SECONDS = 120.0
_END_SECONDS = 10.0


class _Lane:
    """Ray actor of one worker. A restart creates a new :class:`_Lane`."""

    def __init__(self, number: int, actor: Any) -> None:
        self.number, self.actor = number, actor
        self.pid = 0
        self.over = False
        """True when answers and losses of this actor are no longer reported."""
        self.alive = True
        """True until the loss of the actor is reported."""
        self.gone = threading.Event()
        """Event that is set when Ray reports that the actor has ended."""
        self.live_bytes = 0
        self.objects: set[int] = set()
        self._stamp = -1

    def take(self, packed: Any) -> Sequence[Any]:
        """Return the encoded result in an answer, or raise the error in the answer."""
        stamp, live_bytes, failed, parts = read_answer(packed)
        if stamp > self._stamp:
            self._stamp, self.live_bytes = stamp, live_bytes
        if failed:
            raise load_error(parts)
        return parts

    def end(self) -> None:
        """Kill the process of the actor."""
        with suppress(Exception):  # The actor or the cluster has already ended.
            ray.kill(self.actor, no_restart=True)


class RayTransport(Transport):
    """Transport with one Ray actor for each worker.

    The actors use the Ray cluster of this process, the cluster at ``address``, or a new cluster. One thread handles all
    answers of all workers.
    """

    def __init__(self, specs: Sequence[WorkerSpec], *, address: str | None = None) -> None:
        super().__init__(specs)
        self._address = address
        self._lanes: list[_Lane] = []
        self._events: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._listen, name="etdev ray answers", daemon=True)
        self._closing = threading.Lock()
        self._closed = False
        self._kind: Any = ray.remote(
            num_cpus=0, max_restarts=0, max_task_retries=0, concurrency_groups=GROUPS, scheduling_strategy="SPREAD"
        )(RayWorker)

    def start(self, lost: Unknown) -> None:
        """Start the actors, and a cluster if there is none."""
        self._lost = lost
        SHARED.join(self._address)
        self._thread.start()
        try:
            self._lanes = self._open(range(len(self.specs)))
        except BaseException:
            self.close()
            raise

    def alloc(self, worker: int, buffer: int, nbytes: int, done: Done) -> None:
        """Allocate a buffer, even while the actor runs a task."""
        lane = self._lanes[worker]
        self._await(lane, lane.actor.alloc.remote(buffer, nbytes), done, nothing)

    def free(self, worker: int, buffer: int, done: Done) -> None:
        """Free a buffer, even while the actor runs a task; close an object after the task."""
        lane = self._lanes[worker]
        method = lane.actor.close if buffer in lane.objects else lane.actor.free
        lane.objects.discard(buffer)
        self._await(lane, method.remote(buffer), done, nothing)

    def put(self, worker: int, buffer: int, offset: int, data: Any, done: Done) -> None:
        """Copy host bytes to a buffer, even while the actor runs a task."""
        lane = self._lanes[worker]
        self._await(lane, lane.actor.put.remote(buffer, offset, *pack([host_bytes(data)])), done, nothing)

    def get(self, worker: int, buffer: int, offset: int, nbytes: int, done: Done) -> None:
        """Copy bytes of a buffer to the host, even while the actor runs a task."""
        lane = self._lanes[worker]
        self._await(lane, lane.actor.get.remote(buffer, offset, nbytes), done, first_part)

    def run(self, worker: int, job: Job, done: Done) -> None:
        """Run a job in the actor's thread for tasks.

        Raises :class:`~etdev.errors.UsageError` if an argument cannot be pickled.
        """
        lane = self._lanes[worker]
        if job.keep is not None:
            lane.objects.add(job.keep)
        self._await(lane, lane.actor.run.remote(*pack(dump_job(job, cloudpickle.dumps))), done, load_outcome)

    def health(self, worker: int) -> Health:
        """Return whether a worker's actor is alive, and how many bytes were allocated at its last answer."""
        lane = self._lanes[worker]
        return Health(lane.alive, lane.pid, lane.live_bytes if lane.alive else 0)

    def restart(self, worker: int) -> None:
        """Start a new actor for a lost worker."""
        (self._lanes[worker],) = self._open([worker])

    def kill(self, worker: int) -> None:
        """Kill the process of the actor."""
        lane = self._lanes[worker]
        self._in_thread(lambda: self._lose(lane, f"its process {lane.pid} was killed"))

    def close(self) -> None:
        """Kill the actors, wait until they have ended, and leave the cluster.

        If this process started the cluster, the cluster ends when the last orchestrator of the process leaves it.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._in_thread(self._stop_answers)
        for lane in self._lanes:
            self._retire(lane)
        outside = threading.current_thread() is not self._thread
        for lane in self._lanes:
            if outside:
                lane.gone.wait(_END_SECONDS)
            lane.alive = False
        self._events.put(None)
        if outside:
            self._thread.join()
        SHARED.leave()

    def _actor(self) -> Any:
        return self._kind.remote()

    def _retire(self, lane: _Lane) -> None:
        lane.end()

    def _open(self, numbers: Iterable[int]) -> list[_Lane]:
        lanes = [_Lane(number, self._actor()) for number in numbers]
        try:
            begun = [lane.actor.begin.remote(lane.number, self.specs[lane.number], sys.path) for lane in lanes]
            for lane, packed in zip(lanes, ray.get(begun, timeout=_START_SECONDS), strict=True):
                lane.pid = pickle.loads(lane.take(packed)[0])
        except BaseException as error:
            for lane in lanes:
                lane.end()
            if isinstance(error, GetTimeoutError | RayActorError):
                raise OrchestratorError(
                    f"Ray could not start a worker within {_START_SECONDS:g} s: {_reason(error)}",
                    hint="see `ray status` for missing resources, and install this version of etdev on all machines",
                ) from error
            raise
        for lane in lanes:
            lane.actor.pulse.remote().future().add_done_callback(self._stopped(lane))
        return lanes

    def _stopped(self, lane: _Lane) -> Callable[[Future[Any]], None]:
        def put(future: Future[Any]) -> None:
            lane.gone.set()
            self._events.put(lambda: self._lose(lane, _reason(future.exception())))

        return put

    def _await(self, lane: _Lane, reference: Any, done: Done, read: Read) -> None:
        """Handle an answer in the transport's thread when the answer arrives.

        An answer may lead to further commands. Ray's own thread cannot send commands, so it must not handle answers.
        """

        def put(future: Future[Any]) -> None:
            self._events.put(lambda: self._answer(lane, future, done, read))

        reference.future().add_done_callback(put)

    def _in_thread(self, action: Callable[[], None]) -> None:
        """Call a function in the transport's thread and wait for the end of the call."""
        if threading.current_thread() is self._thread:
            action()
            return
        over = threading.Event()

        def act() -> None:
            try:
                action()
            finally:
                over.set()

        self._events.put(act)
        over.wait()

    # Calls in the transport's thread

    def _listen(self) -> None:
        while (event := self._events.get()) is not None:
            event()
            del event  # Release the memory of the event while waiting for the next one.

    def _answer(self, lane: _Lane, future: Future[Any], done: Done, read: Read) -> None:
        if lane.over:
            return
        error = future.exception()
        if isinstance(error, RayActorError):
            self._lose(lane, _reason(error))
            return
        result: Any = None
        if error is None:
            result, error = self._read(lane, future.result(), read)
        else:
            error = RemoteError(f"Ray lost an answer of worker {lane.number}: {error}")
        done(result, error)

    def _read(self, lane: _Lane, packed: Any, read: Read) -> tuple[Any, BaseException | None]:
        try:
            parts = lane.take(packed)
        except BaseException as error:  # noqa: BLE001 - the error is the answer
            return None, error
        return decode(lane.number, parts, read)

    def _lose(self, lane: _Lane, reason: str) -> None:
        if not lane.over:
            lane.over = True
            lane.end()
            self._lost(lane.number, reason)
            lane.alive = False

    def _stop_answers(self) -> None:
        for lane in self._lanes:
            lane.over = True


def _reason(error: BaseException | None) -> str:
    """Return Ray's reason for the end or failed start of an actor."""
    words = " ".join(str(error).split())
    found = re.search(r"The actor is dead because (.+?)(?:\. |\.?$)", words)
    return found[1] if found else words.partition(". ")[0]
