"""Programs at random: they give what serial execution gives, and with faults every future ends, in a result or a named
error (D3 to D7)."""

from __future__ import annotations

from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.runtime.orchestrator import Handle, ObjectHandle, Orchestrator, PoisonedError, TaskFuture, WorkerLost
from orchestrator import jobs

ELEMENTS = 8
LIMIT = 60.0


class Poison(Exception):  # noqa: N818 - a value of the model, never raised
    """What the model says of a task that is not run, or fails."""


@dataclass
class Cell:
    """A buffer in the model: its elements, and those that a failed task was to write."""

    worker: int
    values: np.ndarray = field(default_factory=lambda: np.zeros(ELEMENTS, np.float32))
    lost: np.ndarray = field(default_factory=lambda: np.zeros(ELEMENTS, bool))
    freed: bool = False


@dataclass
class Step:
    """A task that was submitted, and what the model says comes of it."""

    future: TaskFuture
    expected: object


class Serial:
    """Runs steps in an orchestrator, and one after the other in a model."""

    def __init__(self, orchestrator: Orchestrator, workers: int) -> None:
        self._o, self._workers = orchestrator, workers
        self.cells: list[Cell] = []
        self._handles: list[Handle] = []
        self._counters: list[tuple[ObjectHandle, int]] = []
        self._totals: list[int] = []
        self.steps: list[Step] = []

    def malloc(self, worker: int) -> None:
        handle = self._o.malloc(worker, 4 * ELEMENTS)
        cell = Cell(worker)
        self._o.copy_to(handle, cell.values)
        self._handles.append(handle)
        self.cells.append(cell)

    def create(self, worker: int) -> None:
        self._counters.append((self._o.create(jobs.Counter, 0, worker=worker), worker))
        self._totals.append(0)

    def live(self, worker: int | None = None) -> list[int]:
        return [
            index
            for index, cell in enumerate(self.cells)
            if not cell.freed and (worker is None or cell.worker == worker)
        ]

    def counters(self) -> int:
        return len(self._counters)

    def free(self, cell: int) -> None:
        self.cells[cell].freed = True
        self.steps.append(Step(self._o.free(self._handles[cell]), None))

    def copy_to(self, cell: int, start: int, stop: int, value: float) -> None:
        data = np.full(stop - start, value, np.float32)
        self.steps.append(Step(self._o.copy_to(self._part(cell, start, stop), data), None))
        data[...] = -1  # The bytes are those that it had.
        self.cells[cell].values[start:stop] = value
        self.cells[cell].lost[start:stop] = False

    def copy_from(self, cell: int, start: int, stop: int) -> None:
        found = self.cells[cell]
        expected = Poison() if found.lost[start:stop].any() else bytearray(found.values[start:stop].tobytes())
        self.steps.append(Step(self._o.copy_from(self._part(cell, start, stop)), expected))

    def task(self, cell: int, start: int, stop: int, access: str, value: float, *, fails: bool) -> None:
        """Add to a part, fill it, or read it."""
        found = self.cells[cell]
        part = self._part(cell, start, stop).resident(access, dtype="float32")
        poisoned = access != "write" and bool(found.lost[start:stop].any())
        if access == "read":
            future = self._o.submit(jobs.fail if fails else jobs.total, *(("told to",) if fails else (part,)))
            expected: object = float(found.values[start:stop].sum())
            expected = Poison() if fails or poisoned else expected
        else:
            call = jobs.add if access == "update" else jobs.fill
            future = self._o.submit(call, part, "no number" if fails else value)
            expected = Poison() if fails or poisoned else None
            if fails or poisoned:
                found.lost[start:stop] = True
            else:
                found.lost[start:stop] = False
                old = found.values[start:stop] if access == "update" else 0
                found.values[start:stop] = old + np.float32(value)
        self.steps.append(Step(future, expected))

    def group(self, cells: list[int], value: float, named: list[bool], others: int) -> None:
        """Add to all of some buffers at once, and to ``others`` on any workers. Not all members name their worker."""
        parts = [[self._handles[cell].resident("update", dtype="float32"), value] for cell in cells]
        parts += [[np.zeros(1, np.float32), value] for _ in range(others)]
        poisoned = any(self.cells[cell].lost.any() for cell in cells)
        known = [self.cells[cell].worker if say else None for cell, say in zip(cells, named, strict=True)]
        workers = [*known, *[None] * others] if any(named) else None
        future = self._o.submit_group(jobs.add, parts, workers=workers)
        for cell in cells:
            if poisoned:
                self.cells[cell].lost[:] = True
            else:
                self.cells[cell].values += np.float32(value)
        self.steps.append(Step(future, Poison() if poisoned else [None] * len(parts)))

    def count(self, counter: int, by: int) -> None:
        self._totals[counter] += by
        future = self._o.submit(jobs.count, self._counters[counter][0].resident(), by)
        self.steps.append(Step(future, self._totals[counter]))

    def _part(self, cell: int, start: int, stop: int) -> Handle:
        return self._handles[cell].view(4 * start, 4 * (stop - start))


def draw_steps(data: st.DataObject, serial: Serial, workers: int, *, faults: bool) -> None:
    """Submit up to 50 tasks."""
    for worker in range(workers):
        serial.malloc(worker)
    for _ in range(data.draw(st.integers(1, 50), "tasks")):
        kind = data.draw(st.sampled_from(["part"] * 8 + ["malloc", "free", "group", "create", "count"]))
        if kind in ("malloc", "create"):
            getattr(serial, kind)(data.draw(st.integers(0, workers - 1)))
        elif kind == "count" and serial.counters():
            serial.count(data.draw(st.integers(0, serial.counters() - 1)), data.draw(st.integers(1, 5)))
        elif kind == "group":
            draw_group(data, serial, workers)
        elif kind == "free" and serial.live():
            serial.free(data.draw(st.sampled_from(serial.live())))
        elif kind == "part" and serial.live():
            draw_use(data, serial, faults=faults)


def draw_group(data: st.DataObject, serial: Serial, workers: int) -> None:
    every = [serial.live(worker) for worker in range(workers)]
    chosen = data.draw(st.sets(st.sampled_from(range(workers)), min_size=1))
    cells = [data.draw(st.sampled_from(every[worker])) for worker in sorted(chosen) if every[worker]]
    if cells:
        named = data.draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells)))
        others = data.draw(st.integers(0, workers - len(cells)))
        serial.group(cells, float(data.draw(st.integers(1, 5))), named, others)


def draw_use(data: st.DataObject, serial: Serial, *, faults: bool) -> None:
    """A task or a copy with a part of a buffer."""
    cell = data.draw(st.sampled_from(serial.live()))
    start = data.draw(st.integers(0, ELEMENTS - 1))
    stop = data.draw(st.integers(start + 1, ELEMENTS))
    value = float(data.draw(st.integers(1, 5)))
    use = data.draw(st.sampled_from(["read", "write", "update"] * 2 + ["to", "from"]))
    if use == "to":
        serial.copy_to(cell, start, stop, value)
    elif use == "from":
        serial.copy_from(cell, start, stop)
    else:
        serial.task(cell, start, stop, use, value, fails=faults and data.draw(st.integers(0, 9)) == 0)


def check(serial: Serial) -> None:
    for step in serial.steps:
        error = step.future.exception(LIMIT)
        if isinstance(step.expected, Poison):
            assert isinstance(error, ValueError | TypeError | PoisonedError), (step.future.label, error)
        else:
            assert error is None, (step.future.label, error)
            assert step.future.result() == step.expected, step.future.label
    for cell in serial.live():
        found = serial.cells[cell]
        serial.copy_from(cell, 0, ELEMENTS)
        last = serial.steps[-1]
        if not found.lost.any():
            assert last.future.result(LIMIT) == last.expected


def run_any(data: st.DataObject, *, threads: bool, faults: bool) -> None:
    workers = data.draw(st.integers(1, 4), "workers")
    with Orchestrator(["sim"] * workers, seed=_seed(data, threads=threads), timeout=LIMIT) as o:
        serial = Serial(o, workers)
        draw_steps(data, serial, workers, faults=faults)
        check(serial)


def _seed(data: st.DataObject, *, threads: bool) -> int | None:
    """Without threads, the order of tasks is drawn too."""
    return None if threads else data.draw(st.integers(0, 1 << 30), "seed")


@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("threads", [False, True])
@settings(max_examples=25)
@given(data=st.data())
def test_any_graph_gives_what_serial_execution_gives(threads: bool, faults: bool, data: st.DataObject) -> None:
    run_any(data, threads=threads, faults=faults)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("threads", [False, True])
@settings(max_examples=1000)
@given(data=st.data())
def test_a_thousand_graphs_give_what_serial_execution_gives(threads: bool, faults: bool, data: st.DataObject) -> None:
    run_any(data, threads=threads, faults=faults)


@pytest.mark.parametrize("threads", [False, True])
@settings(max_examples=25)
@given(data=st.data())
def test_when_workers_die_every_future_ends(threads: bool, data: st.DataObject) -> None:
    """What ends in a result has the right one."""
    workers = data.draw(st.integers(1, 4), "workers")
    with Orchestrator(["sim"] * workers, seed=_seed(data, threads=threads), timeout=LIMIT) as o:
        serial = Serial(o, workers)
        draw_steps(data, serial, workers, faults=False)
        for _ in range(0 if threads else data.draw(st.integers(0, 10))):
            o._engine.transport.step()
        killed = data.draw(st.integers(0, workers - 1))
        o.kill(killed)
        for step in serial.steps:
            try:
                assert step.future.result(LIMIT) == step.expected
            except (WorkerLost, PoisonedError, CancelledError):
                continue
        o.wait()
        o.restart(killed)
        assert o.submit(jobs.give, 1, worker=killed).result(LIMIT) == 1
        assert o.stats().waiting == 0
