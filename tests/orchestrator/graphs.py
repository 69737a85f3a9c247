"""Random task graphs, and what serial execution says comes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import numpy as np

from etdev.runtime.orchestrator import Handle, ObjectHandle, Orchestrator, PoisonedError, TaskFuture
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


def draw_steps(chance: Random, serial: Serial, workers: int, *, faults: bool) -> None:
    """Submit up to 50 tasks."""
    for worker in range(workers):
        serial.malloc(worker)
    for _ in range(chance.randint(1, 50)):
        draw_step(chance, serial, workers, faults=faults)


def draw_step(chance: Random, serial: Serial, workers: int, *, faults: bool) -> None:
    """Submit a task, or a change of memory."""
    kind = chance.choice(["part"] * 8 + ["malloc", "free", "group", "create", "count"])
    if kind in ("malloc", "create"):
        getattr(serial, kind)(chance.randrange(workers))
    elif kind == "count" and serial.counters():
        serial.count(chance.randrange(serial.counters()), chance.randint(1, 5))
    elif kind == "group":
        draw_group(chance, serial, workers)
    elif kind == "free" and serial.live():
        serial.free(chance.choice(serial.live()))
    elif kind == "part" and serial.live():
        draw_use(chance, serial, faults=faults)


def draw_group(chance: Random, serial: Serial, workers: int) -> None:
    every = [serial.live(worker) for worker in range(workers)]
    chosen = sorted(chance.sample(range(workers), chance.randint(1, workers)))
    cells = [chance.choice(every[worker]) for worker in chosen if every[worker]]
    if cells:
        named = [bool(chance.randrange(2)) for _ in cells]
        serial.group(cells, float(chance.randint(1, 5)), named, chance.randint(0, workers - len(cells)))


def draw_use(chance: Random, serial: Serial, *, faults: bool) -> None:
    """A task or a copy with a part of a buffer."""
    cell = chance.choice(serial.live())
    start = chance.randrange(ELEMENTS)
    stop = chance.randint(start + 1, ELEMENTS)
    value = float(chance.randint(1, 5))
    use = chance.choice(["read", "write", "update"] * 2 + ["to", "from"])
    if use == "to":
        serial.copy_to(cell, start, stop, value)
    elif use == "from":
        serial.copy_from(cell, start, stop)
    else:
        serial.task(cell, start, stop, use, value, fails=faults and chance.randrange(10) == 0)


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
