"""What was found wrong with the orchestrator once: laws of D1 to D7, in the corners of bounds, ends and callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import numpy as np
import pytest

from etdev.errors import EtdevError
from etdev.runtime.orchestrator import Access, BackPressureError, HandleError, Orchestrator, WorkerLost, WorkerSpec
from etdev.runtime.orchestrator.errors import CancelledTaskError
from etdev.runtime.orchestrator.handles import Key, Use
from etdev.runtime.orchestrator.hazards import Hazards
from etdev.runtime.orchestrator.ledger import Ledger
from etdev.runtime.orchestrator.nodes import Node
from etdev.runtime.orchestrator.worker import Worker

Make = Callable[..., Orchestrator]
SECONDS = 10.0


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Orchestrator] = []

    def one(workers: object = 1, **more: object) -> Orchestrator:
        made.append(Orchestrator(workers, "thread", **more))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for orchestrator in made:
        orchestrator.close(kill=True)


class Gate:
    """Keeps a task until it is opened."""

    def __init__(self) -> None:
        self._open = Event()

    def __call__(self, *_: Any) -> None:
        assert self._open.wait(SECONDS)

    def open(self) -> None:
        self._open.set()


def nothing(*_: Any) -> None:
    pass


def at_once(action: Callable[[], Any]) -> Any:
    """What an action gives or raises. It must not hang, which a thread of its own can tell."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(action())
        except BaseException as error:  # noqa: BLE001 - raised below
            found.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert found, "it hangs"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


@pytest.mark.parametrize("use", ["submit", "group", "create", "copy_to"])
def test_memory_that_is_freed_while_its_user_waits_for_room_is_refused(make: Make, use: str) -> None:
    orchestrator, gate = make(max_tasks=1), Gate()
    handle = orchestrator.malloc(0, 8)
    orchestrator.submit(gate)
    users: dict[str, Callable[[], Any]] = {
        "submit": lambda: orchestrator.submit(nothing, handle.resident()),
        "group": lambda: orchestrator.submit_group(nothing, [[handle.resident()]], workers=[0]),
        "create": lambda: orchestrator.create(nothing, handle.resident(), worker=0),
        "copy_to": lambda: orchestrator.copy_to(handle, bytes(8)),
    }

    def free() -> None:
        time.sleep(0.1)
        orchestrator.free(handle).result(SECONDS)
        gate.open()

    Thread(target=free).start()
    with pytest.raises(HandleError, match="freed already"):
        at_once(users[use])


def test_an_object_for_which_there_is_no_room_is_not_in_the_books(make: Make) -> None:
    orchestrator, gate = make(max_tasks=1, timeout=0.05), Gate()
    orchestrator.submit(gate)
    with pytest.raises(BackPressureError):
        orchestrator.create(dict, worker=0)
    gate.open()
    assert orchestrator.stats().buffers == ()


class Stubborn:
    """An object that does not want to end."""

    def close(self) -> None:
        raise ValueError("not yet")


def test_a_free_cannot_be_cancelled(make: Make) -> None:
    orchestrator, gate = make(), Gate()
    handle = orchestrator.malloc(0, 1000)
    orchestrator.submit(gate, handle.resident())
    freed = orchestrator.free(handle)
    assert not freed.cancel()
    gate.open()
    assert freed.exception(SECONDS) is None
    assert orchestrator.health(0).live_bytes == 0


def test_an_object_that_was_never_made_is_freed(make: Make) -> None:
    orchestrator = make()
    handle = orchestrator.create(lambda: 1 // 0, worker=0)
    assert orchestrator.free(handle).exception(SECONDS) is None
    assert orchestrator.stats().buffers == ()


def test_a_worker_is_lost_whatever_its_objects_make_of_it(make: Make) -> None:
    orchestrator = make()
    orchestrator.ready(orchestrator.create(Stubborn, worker=0))
    orchestrator.kill(0)
    with pytest.raises(WorkerLost):
        orchestrator.submit(nothing, worker=0)


def test_an_object_that_does_not_want_to_end_keeps_no_worker(make: Make) -> None:
    orchestrator = make(2)
    orchestrator.ready(orchestrator.create(Stubborn, worker=0))
    workers = [lane.worker for lane in orchestrator._transport._lanes]
    for worker in range(2):
        orchestrator.malloc(worker, 100)
    orchestrator.close()
    assert [worker.live_bytes() for worker in workers] == [0, 0]


@pytest.mark.parametrize("size", [0, 8])
def test_no_bytes_are_not_missed_when_their_buffer_is_gone(make: Make, size: int) -> None:
    orchestrator, gate = make(), Gate()
    handle = orchestrator.malloc(0, size)
    orchestrator.submit(gate)
    users = [orchestrator.submit(nothing, handle.view(size // 2, 0).resident())]
    orchestrator.free(handle).result(SECONDS)
    gate.open()
    assert [user.exception(SECONDS) for user in users] == [None]


def test_no_thread_is_left_of_workers_that_do_not_start() -> None:
    before = set(enumerate_threads())
    with pytest.raises(EtdevError):
        Orchestrator(["cpu", "cpu", WorkerSpec("cuda:0")], "thread")
    for thread in set(enumerate_threads()) - before:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_callback_may_wait_for_memory(make: Make) -> None:
    orchestrator, gate, found = make(), Gate(), []

    def use(_: Any) -> None:
        handle = orchestrator.malloc(0, 4)
        orchestrator.copy_to(handle, b"four")
        found.append(orchestrator.copy_from(handle).result(SECONDS))

    orchestrator.submit(gate).add_done_callback(use)
    behind = orchestrator.submit(nothing)
    gate.open()
    at_once(orchestrator.wait)
    assert found == [b"four"]
    assert behind.done()


def test_a_callback_that_wants_to_end_everything_ends_no_worker(make: Make) -> None:
    orchestrator, gate = make(), Gate()

    def leave(_: Any) -> None:
        raise SystemExit

    orchestrator.submit(gate).add_done_callback(leave)
    behind = orchestrator.submit(nothing)
    gate.open()
    assert behind.exception(SECONDS) is None
    at_once(orchestrator.wait)


def test_a_task_may_meet_a_task_that_was_cancelled(make: Make) -> None:
    orchestrator = make()

    def meet() -> None:
        raise CancelledTaskError("another one")

    future = orchestrator.submit(meet)
    with pytest.raises(CancelledTaskError):
        raise future.exception(SECONDS)  # type: ignore[misc]
    assert orchestrator.submit(nothing).exception(SECONDS) is None


def test_memory_of_a_worker_that_was_started_again_meanwhile_is_no_memory() -> None:
    ledger = Ledger(1)
    before = ledger.incarnation(0)
    ledger.lose(0, WorkerLost(0, "killed"))
    with pytest.raises(WorkerLost):
        ledger.add(0, before, 1, 8)
    ledger.revive(0)
    with pytest.raises(WorkerLost):
        ledger.add(0, before, 1, 8)
    assert ledger.buffers() == ()


def test_parts_that_are_written_as_a_whole_are_one_again() -> None:
    """Else all that uses a buffer pays for each part that it was ever split into."""
    key, hazards = Key(0, 1, 1), Hazards[Node]()
    parts = [Node(number, "part") for number in range(100)]
    for start, part in enumerate(parts):
        hazards.enter(part, [Use(key, start, start + 1, Access.WRITE)])
    whole, reader = Node(100, "whole"), Node(101, "reader")
    assert hazards.enter(whole, [Use(key, 10, 90, Access.WRITE)]) == dict.fromkeys(parts[10:90], False)
    assert len(hazards._buffers[key]) == 21
    found = hazards.enter(reader, [Use(key, 0, 100, Access.READ)])
    assert found == dict.fromkeys([*parts[:10], whole, *parts[90:]], True)


def test_a_wait_for_the_end_that_is_interrupted_leaves_nobody_waiting(make: Make, monkeypatch: Any) -> None:
    orchestrator, gate = make(), Gate()
    running = orchestrator.submit(gate)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(orchestrator._engine, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        orchestrator.close()
    gate.open()
    assert isinstance(running.exception(SECONDS), WorkerLost)


def test_an_interrupt_in_a_copy_reaches_who_copies(make: Make, monkeypatch: Any) -> None:
    orchestrator = make()
    handle = orchestrator.malloc(0, 8)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "put", interrupt)
    with pytest.raises(KeyboardInterrupt):
        orchestrator.copy_to(handle, bytes(8))
    at_once(orchestrator.wait)


def test_an_interrupt_that_leaves_the_lock_with_nobody_ends_all_the_same() -> None:
    """As between the moment when the lock is taken and the block that gives it back."""
    o = Orchestrator(2)
    future = o.submit(time.sleep, 0.01)
    o._engine.lock.acquire()
    with pytest.raises(KeyboardInterrupt), o:
        raise KeyboardInterrupt
    future.exception(SECONDS)


def test_a_number_of_numpys_is_a_value(make: Make) -> None:
    """And no array, for which there would be memory on the worker."""
    assert make(["sim"]).submit(abs, np.float32(-3)).result(SECONDS) == 3
