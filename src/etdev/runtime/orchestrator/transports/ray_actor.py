"""A Ray actor that contains a worker, for the transport ``ray``."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import ray
from ray import cloudpickle

from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.orchestrator.transports.process_parts import dump_error, run_job
from etdev.runtime.orchestrator.transports.process_worker import end_with_parent
from etdev.runtime.orchestrator.worker import Worker

GROUPS = {"tasks": 1, "memory": 1, "pulse": 1}
"""Maps a concurrency group of an actor to its number of threads. Methods of different groups can run in parallel."""
_LARGE = 1 << 16
"""Minimum size in bytes of a part that goes through shared memory."""

_Method = TypeVar("_Method", bound=Callable[..., Any])

Answer = tuple[int, int, bool, Sequence[Any]]
"""Tuple: number of the answer, allocated bytes, True if the answer is an error, and encoded content.

The answer with the highest number has the current number of allocated bytes.
"""


def _thread(group: str) -> Callable[[_Method], _Method]:
    """Return a decorator that assigns a method to a concurrency group."""
    return cast(Callable[[_Method], _Method], ray.method(concurrency_group=group))


def pack(parts: Sequence[Any]) -> list[Any]:
    """Prepare parts for Ray: large parts as arrays, which Ray puts into shared memory, and small parts as bytes."""
    return [np.frombuffer(part, np.uint8) if len(part) >= _LARGE else bytes(part) for part in parts]


def read_answer(packed: Any) -> Answer:
    """Decode an answer of an actor."""
    found: Answer = pickle.loads(packed) if isinstance(packed, bytes) else packed
    return found


class RayWorker:
    """A worker in a Ray actor.

    A method that fails returns its error as the answer. Ray itself sees a failure only when the actor ends.
    """

    def __init__(self) -> None:
        self._stamp = 0
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    @_thread("tasks")
    def begin(self, number: int, spec: WorkerSpec, paths: Sequence[str]) -> Any:
        """Open the memory of the worker, extend ``sys.path``, and answer with the process id."""

        def begin() -> Sequence[Any]:
            end_with_parent()  # Without this, the actor would end seconds after the whole cluster was killed.
            sys.path.extend(path for path in paths if path not in sys.path)
            self._worker = Worker(number, spec)
            return [pickle.dumps(os.getpid())]

        return self._answer(begin)

    @_thread("tasks")
    def run(self, *parts: Any) -> Any:
        """Run a job."""
        return self._answer(lambda: self._run(parts))

    @_thread("tasks")
    def close(self, number: int) -> Any:
        """Close an object, in the thread that runs tasks."""
        return self._answer(lambda: self._there.free(number))

    @_thread("memory")
    def alloc(self, buffer: int, nbytes: int) -> Any:
        """Allocate a buffer."""
        return self._answer(lambda: self._there.alloc(buffer, nbytes))

    @_thread("memory")
    def free(self, buffer: int) -> Any:
        """Free a buffer."""
        return self._answer(lambda: self._there.free(buffer))

    @_thread("memory")
    def put(self, buffer: int, offset: int, data: Any) -> Any:
        """Copy host bytes to a buffer."""
        return self._answer(lambda: self._there.put(buffer, offset, data))

    @_thread("memory")
    def get(self, buffer: int, offset: int, nbytes: int) -> Any:
        """Copy bytes of a buffer to the host."""
        return self._answer(lambda: [self._there.get(buffer, offset, nbytes)])

    @_thread("pulse")
    def pulse(self) -> None:
        """Block forever. When the actor ends, this call fails, so that the transport notices the end immediately."""
        threading.Event().wait()

    @property
    def _there(self) -> Worker:
        assert self._worker is not None
        return self._worker

    def _run(self, parts: Sequence[Any]) -> Sequence[Any]:
        return run_job(self._there, parts, cloudpickle.dumps)

    def _answer(self, action: Callable[[], Sequence[Any] | None]) -> Any:
        try:
            return self._pack(False, action() or ())
        except BaseException as error:  # noqa: BLE001 - a task may raise anything, SystemExit too
            return self._pack(True, dump_error(error, cloudpickle.dumps))

    def _pack(self, failed: bool, parts: Sequence[Any]) -> Any:
        with self._lock:
            self._stamp += 1
            stamp, live_bytes = self._stamp, self._worker.live_bytes() if self._worker else 0
        packed = pack(parts)
        answer: Answer = stamp, live_bytes, failed, packed
        small = all(isinstance(part, bytes) for part in packed)
        return pickle.dumps(answer) if small else answer  # Ray's own pickling is slower.
