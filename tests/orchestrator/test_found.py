"""What was found wrong with the orchestrator once: laws of D1 to D7, in the corners of bounds, ends and callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import Any

import numpy as np
import pytest

from etdev.errors import EtdevError, UsageError
from etdev.runtime.orchestrator import (
    Access,
    BackPressureError,
    Handle,
    HandleError,
    Orchestrator,
    OrchestratorError,
    WorkerLost,
    WorkerSpec,
    engine,
)
from etdev.runtime.orchestrator.errors import CancelledTaskError
from etdev.runtime.orchestrator.handles import Key, Use
from etdev.runtime.orchestrator.hazards import Hazards
from etdev.runtime.orchestrator.ledger import Ledger
from etdev.runtime.orchestrator.nodes import Node
from etdev.runtime.orchestrator.placement import Placement
from etdev.runtime.orchestrator.scheduler import Scheduler
from etdev.runtime.orchestrator.worker import Worker
from orchestrator import jobs

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
    with pytest.raises(HandleError, match="was already freed"):
        at_once(users[use])


def test_an_object_for_which_there_is_no_room_is_not_in_the_books(make: Make) -> None:
    orchestrator, gate = make(max_tasks=1, timeout=0.05), Gate()
    orchestrator.submit(gate)
    with pytest.raises(BackPressureError):
        orchestrator.create(dict, worker=0)
    gate.open()
    assert orchestrator.stats().buffers == ()


def test_a_group_with_a_member_for_any_worker_does_not_hang(make: Make) -> None:
    """It was a ``KeyError: None``, after which the orchestrator could not be closed."""
    orchestrator = make(2)
    assert at_once(lambda: orchestrator.submit_group(abs, [[-1], [-2]], workers=[0, None]).result(SECONDS)) == [1, 2]
    at_once(orchestrator.close)


class OddlyNamed:
    """A callable that has no name."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError

    def __call__(self, *_: Any) -> None: ...


SUBMITS: dict[str, Callable[[Orchestrator, Handle], Any]] = {
    "submit": lambda o, handle: o.submit(nothing, handle.resident("update"), np.zeros(4)),
    "group": lambda o, handle: o.submit_group(nothing, [[handle.resident("write")], [1]]),
    "create": lambda o, handle: o.create(nothing, handle.resident("update"), worker=0),
    "malloc": lambda o, _: o.malloc(0, 8),
    "free": lambda o, handle: o.free(handle),
    "copy_to": lambda o, handle: o.copy_to(handle, bytes(8)),
    "copy_from": lambda o, handle: o.copy_from(handle),
}
TASKS = ("submit", "group", "create")
WRITERS = (*TASKS, "free", "copy_to")
FAILURES: list[tuple[object, str, Any]] = [
    (engine, "TaskFuture", SUBMITS),
    (Hazards, "enter", SUBMITS),
    (Hazards, "_write", WRITERS),
    (Scheduler, "_advance", SUBMITS),
    (Placement, "add", TASKS),
    (Scheduler, "_begin", ("malloc", "free", "copy_to", "copy_from")),
]
"""Where a submit can fail: the owner of a function, its name, and the submits that come there."""


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("submit", "owner", "name"), [(submit, owner, name) for owner, name, users in FAILURES for submit in users]
)
@pytest.mark.sampled(30)
def test_a_submit_that_fails_leaves_nothing(
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    submit: str,
    owner: object,
    name: str,
    before: bool,
    error: type[BaseException],
) -> None:
    """Neither in the graph nor in the books. Later tasks wait for the earlier ones, and for nothing else."""
    orchestrator, gate = make(2), Gate()
    handle = orchestrator.malloc(0, 8)
    orchestrator.copy_to(handle, b"12345678").result(SECONDS)
    if name not in ("add", "_begin"):  # Nothing comes there that has to wait.
        orchestrator.submit(gate, handle.resident("update"))
    known = (orchestrator.stats().buffers, orchestrator.stats().waiting)
    real = getattr(owner, name)

    def fail(*args: Any, **more: Any) -> None:
        if not before:
            real(*args, **more)
        raise error

    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(error):
        SUBMITS[submit](orchestrator, handle)
    monkeypatch.undo()
    assert (orchestrator.stats().buffers, orchestrator.stats().waiting) == known
    found = orchestrator.copy_from(handle)
    assert found.done() == (known[1] == 0)
    gate.open()
    assert found.result(SECONDS) == b"12345678"
    at_once(orchestrator.wait)
    assert (orchestrator._engine._count, orchestrator._engine._bytes) == (0, 0)
    at_once(orchestrator.close)


@pytest.mark.parametrize("submit", ["submit", "create"])
def test_a_callable_whose_name_cannot_be_had_leaves_nothing(make: Make, submit: str) -> None:
    orchestrator = make()
    submits = {
        "submit": lambda: orchestrator.submit(OddlyNamed()),
        "create": lambda: orchestrator.create(OddlyNamed(), worker=0),
    }
    with pytest.raises(ZeroDivisionError):
        submits[submit]()
    assert (orchestrator.stats().buffers, orchestrator.stats().waiting) == ((), 0)
    at_once(orchestrator.close)


@pytest.mark.parametrize("transport", ["thread", "process"])
def test_a_task_that_cannot_be_sent_ends_whatever_the_reason(transport: str) -> None:
    """The code of an argument runs when it is pickled, and may raise what is not an ``Exception``."""
    with Orchestrator(1, transport) as o:
        if transport == "process":
            with pytest.raises(KeyboardInterrupt):
                o.submit(abs, Interrupting())
        else:
            with pytest.raises(TypeError):
                o.submit(abs, Interrupting()).result(SECONDS)
        assert o.submit(abs, -2).result(SECONDS) == 2
        at_once(o.wait)


class Interrupting:
    """A value that is interrupted while it is pickled."""

    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def test_memory_that_nobody_waits_for_any_more_is_freed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    orchestrator = make()

    def interrupt(*_: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.TaskFuture, "result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        orchestrator.malloc(0, 8)
    at_once(orchestrator.wait)
    assert orchestrator.stats().buffers == ()
    assert orchestrator.health(0).live_bytes == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda o: o.malloc(0, -1),
        lambda o: o.malloc(0, 8.0),
        lambda o: o.malloc(0, "8"),
        lambda o: o.malloc(0, True),
        lambda o: o.malloc(None, 8),
        lambda o: o.malloc("0", 8),
        lambda o: o.submit(abs, 1, worker=0.0),
        lambda o: o.create(dict, worker=None),
        lambda o: o.malloc(0, 8).view(1.0, 2),
        lambda o: o.malloc(0, 8).view(1, True),
    ],
)
def test_numbers_that_are_none_are_refused(make: Make, ask: Callable[[Orchestrator], Any]) -> None:
    orchestrator = make()
    with pytest.raises(UsageError, match=r"is not the number of a worker|, not a number of bytes"):
        ask(orchestrator)
    assert orchestrator.stats().waiting == 0


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
    workers = [lane.worker for lane in orchestrator._transport._lanes]  # type: ignore[attr-defined]
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


@pytest.mark.parametrize("transport", ["thread", "process"])
@pytest.mark.parametrize("wait", ["result", "exception", "malloc", "wait", "close"])
@pytest.mark.sampled(4)
def test_a_callback_that_waits_for_an_answer_is_told_so(transport: str, wait: str, tmp_path: Path) -> None:
    """It waited for ever: its own thread brings the answers of the worker."""
    found: list[BaseException] = []
    with Orchestrator(1, transport) as o:
        waits: dict[str, Callable[[], Any]] = {
            "result": lambda: o.submit(jobs.nothing).result(),
            "exception": lambda: o.submit(jobs.nothing).exception(),
            "malloc": lambda: o.free(o.malloc(0, 8)),
            "wait": o.wait,
            "close": o.close,
        }

        def use(_: Any) -> None:
            try:
                waits[wait]()
            except OrchestratorError as error:
                found.append(error)

        begun = tmp_path / "begun"
        o.submit(jobs.wait_for, str(begun)).add_done_callback(use)
        begun.touch()
        at_once(o.wait)
        assert o.stats().buffers == ()
    if wait == "malloc" and transport == "thread":
        assert not found  # Memory of threads is there at once.
    else:
        assert ["a callback of a task must not wait for" in str(error) for error in found] == [True]


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
