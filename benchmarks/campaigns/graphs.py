"""Random task graphs for the orchestrator, with workers that die, tasks that fail or are slow, and wrong handles.

Each trial makes an orchestrator, submits up to 50 tasks, copies, groups and frees on up to four workers, and closes it.
The results are compared with those of serial execution (``tests/orchestrator/graphs.py``). Half of the trials have
faults: a task raises an error, takes long, or ends its process; a worker is killed; a future is cancelled; a call has a
wrong handle.

Demanded: every future ends, in its right result or in an error that says why. A wrong call raises an ``EtdevError`` at
once. ``close()`` returns within 5 s. No process, no shared memory, no thread, no descriptor and no buffer is left.

    python benchmarks/campaigns/graphs.py [--count N] [--seconds S] [--seed N] [--start N] [--transports NAME ...]
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import numpy as np
from campaign import Run, Settings, Trial, describe, main

from etdev.errors import EtdevError
from etdev.runtime.orchestrator import Orchestrator, OrchestratorError, PoisonedError, WorkerLost
from orchestrator import jobs, process_jobs
from orchestrator.graphs import ELEMENTS, Poison, Serial, draw_step

CLOSED_WITHIN = 5.0
ENDED_WITHIN = 30.0
_SHARES = {"thread": 16, "process": 4, "ray": 1}
_NAMES = Path("/dev/shm")
_LEFT = 64 << 20
"""Memory by which a process may grow in a whole campaign: caches and the allocator's own."""


class _Graph:
    """One orchestrator, what is submitted to it, and what is done to it."""

    def __init__(self, chance: random.Random, transport: str, trial: Trial) -> None:
        self.chance, self.trial, self.transport = chance, trial, transport
        self.workers = chance.randint(1, 4 if transport == "thread" else 2)
        seed = chance.randint(0, 1 << 30) if transport == "thread" and chance.randrange(2) else None
        self.stepped = seed is not None
        limit = chance.choice((100_000, 100_000, 8))
        self.o = Orchestrator(["sim"] * self.workers, transport, seed=seed, max_tasks=limit, timeout=ENDED_WITHIN)
        self.serial = Serial(self.o, self.workers)
        self.others: list[tuple[str, Any]] = []
        """Futures whose results the model does not know."""
        self.killed = False

    def run(self, *, faults: bool) -> None:
        """Submit everything, and wait for it."""
        for worker in range(self.workers):
            self.serial.malloc(worker)
        for _ in range(self.chance.randint(1, 50)):
            try:
                if faults and not self.chance.randrange(6):
                    self._fault()
                else:
                    draw_step(self.chance, self.serial, self.workers, faults=faults)
            except EtdevError as error:
                if not self.killed:
                    self.trial.wrong.append(f"submit: {describe(error)}")
                    return
                self.trial.ends.append("refused after a death")
        self._wait()

    # Faults

    def _fault(self) -> None:
        fault = self.chance.choice((self._slow, self._fails, self._wrong, self._wrong, self._cancel, self._dies))
        self.trial.ends.append(f"fault {fault.__name__[1:]}")
        fault()

    def _slow(self) -> None:
        worker = self.chance.choice((None, self.chance.randrange(self.workers)))
        self.others.append(("slow", self.o.submit(time.sleep, self.chance.random() / 50, worker=worker)))

    def _fails(self) -> None:
        call, args = self.chance.choice(
            (
                (jobs.fail, ("told to",)),
                (jobs.fail_stubbornly, ()),
                (process_jobs.leave, (3,)),
                (process_jobs.generate, ()),
                (process_jobs.echo, (threading.Lock(),)),
                (jobs.refuse, (1, 2)),
            )
        )
        self.others.append(("fails", self.o.submit(call, *args)))

    def _cancel(self) -> None:
        future = self.o.submit(time.sleep, 0.005, worker=self.chance.randrange(self.workers))
        future.cancel()
        self.others.append(("cancelled", future))

    def _dies(self) -> None:
        """End a worker, and sometimes start it again."""
        worker, self.killed = self.chance.randrange(self.workers), True
        how = self.chance.randrange(4)
        if self.transport == "process" and how == 0:
            self.others.append(("dies", self.o.submit(process_jobs.end_with, 3, worker=worker)))
        elif self.transport == "process" and how == 1 and (pid := self.o.health(worker).pid):
            with suppress(ProcessLookupError):  # An earlier task may have ended it.
                os.kill(pid, self.chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)))
        else:
            if self.stepped:
                for _ in range(self.chance.randint(0, 5)):
                    self.o._engine.transport.step()
            self.o.kill(worker)
        if self.chance.randrange(2) and self._is_lost(worker):
            self.o.restart(worker)
            self.others.append(("after the restart", self.o.submit(jobs.give, 1, worker=worker)))

    def _is_lost(self, worker: int) -> bool:
        end = time.monotonic() + 5
        while self.o.health(worker).alive:
            if time.monotonic() > end or self.stepped:
                return False
            time.sleep(0.005)
        return True

    def _wrong(self) -> None:
        """Make a call that cannot be right. It must say so at once."""
        handle = self.serial._handles[0]
        with Orchestrator(["sim"], "thread") as another:
            foreign = another.malloc(0, 16)
        freed = next((self.serial._handles[at] for at, cell in enumerate(self.serial.cells) if cell.freed), foreign)
        wrong: dict[str, Callable[[], Any]] = {
            "freed": lambda: self.o.copy_from(freed),
            "freed twice": lambda: self.o.free(freed),
            "foreign": lambda: self.o.submit(jobs.total, foreign.resident(dtype="float32")),
            "part": lambda: self.o.free(handle.view(4, 8)),
            "size": lambda: self.o.copy_to(handle, np.zeros(3, np.float32)),
            "range": lambda: handle.view(4 * ELEMENTS, 4),
            "negative": lambda: handle.view(-4, 8),
            "worker": lambda: self.o.submit(jobs.nothing, worker=self.workers),
            "no number": lambda: self.o.malloc("0", 8),
            "bytes": lambda: self.o.malloc(0, -1),
            "dtype": lambda: self.o.submit(jobs.total, handle.resident(dtype="float23")),
            "access": lambda: handle.resident("delete"),
            "elsewhere": lambda: self.o.submit(jobs.total, handle.resident(dtype="float32"), worker=self.workers - 1),
            "group": lambda: self.o.submit_group(jobs.total, [[], []], workers=[0, 0]),
            "alive": lambda: self.o.restart(self.workers + 1),
        }
        name = self.chance.choice(sorted(wrong))
        if name == "elsewhere" and handle.worker == self.workers - 1:
            return
        begin = time.monotonic()
        try:
            wrong[name]()
        except EtdevError as error:
            if not error.message.strip():
                self.trial.wrong.append(f"wrong call {name}: without a word")
        except Exception as error:  # noqa: BLE001 - what is looked for
            self.trial.wrong.append(f"wrong call {name}: {describe(error)}")
        else:
            self.trial.wrong.append(f"wrong call {name}: accepted")
        if time.monotonic() - begin > ENDED_WITHIN / 3:
            self.trial.wrong.append(f"wrong call {name}: took {time.monotonic() - begin:.1f} s")

    # The end

    def _wait(self) -> None:
        for step in self.serial.steps:
            try:
                found = step.future.result(ENDED_WITHIN)
            except TimeoutError:
                self.trial.wrong.append(f"{step.future.label}: no end after {ENDED_WITHIN:g} s")
                return
            except (ValueError, TypeError, OrchestratorError, CancelledError) as error:
                expected = isinstance(step.expected, Poison) or isinstance(error, WorkerLost | PoisonedError)
                if not expected or not (self.killed or isinstance(step.expected, Poison)):
                    self.trial.wrong.append(f"{step.future.label}: {describe(error)}")
                self.trial.ends.append(f"future: {type(error).__name__}")
                continue
            if isinstance(step.expected, Poison) or found != step.expected:
                self.trial.wrong.append(f"{step.future.label}: {found!r} instead of {step.expected!r}")
            self.trial.ends.append("future: result")
        for name, future in self.others:
            try:
                future.result(ENDED_WITHIN)
                self.trial.ends.append(f"{name}: result")
            except TimeoutError:
                self.trial.wrong.append(f"{name}: no end after {ENDED_WITHIN:g} s")
            except CancelledError:
                self.trial.ends.append(f"{name}: cancelled")
            except BaseException as error:  # noqa: BLE001 - of the task
                self.trial.ends.append(f"{name}: {type(error).__name__}")

    def close(self) -> None:
        """Close the orchestrator, in one of its ways."""
        ways: tuple[dict[str, bool], ...] = ({}, {"cancel": True}, {"kill": True})
        begin = time.monotonic()
        self.o.close(**self.chance.choice(ways))
        seconds = time.monotonic() - begin
        self.trial.most[f"seconds of close, {self.transport}"] = seconds
        if seconds > CLOSED_WITHIN:
            self.trial.wrong.append(f"close: took {seconds:.1f} s")


class _Campaign:
    """Trials of task graphs."""

    def __init__(self, settings: Settings) -> None:
        self.seed = settings.seed
        self.transports = settings.options.transports
        if "ray" in self.transports:
            from etdev.runtime.orchestrator.transports.ray_cluster import SHARED

            SHARED.join(None)  # Or each trial starts a cluster, which takes seconds.
            Orchestrator(["sim"], "ray").close()  # Ray opens connections for the first actor, and keeps them.
        self.resident: int | None = None

    def run(self, number: int) -> Trial:
        chance = random.Random(f"{self.seed} {number}")
        transport = chance.choices(self.transports, [_SHARES[name] for name in self.transports])[0]
        faults = bool(chance.randrange(2))
        trial = Trial(ends=[f"{transport}, {'with' if faults else 'without'} faults"])
        before = _left()
        graph = _Graph(chance, transport, trial)
        try:
            graph.run(faults=faults)
        except Exception as error:  # noqa: BLE001 - what is looked for
            trial.wrong.append(f"graph: {describe(error)}")
        graph.close()
        alive = weakref.ref(graph.o)
        del graph
        self._look(before, alive, number, trial)
        if trial.wrong:
            trial.files = {".json": f'{{"seed": {self.seed}, "number": {number}}}\n'.encode()}
        return trial

    def _look(self, before: dict[str, set[Any]], alive: weakref.ref[Any], number: int, trial: Trial) -> None:
        """Look for what is left: processes and threads have a moment to end."""
        end = time.monotonic() + 5
        while (left := _more(before, _left())) and time.monotonic() < end:
            time.sleep(0.002)
        trial.wrong += [f"left: {len(items)} {kind}: {sorted(map(str, items))[:3]}" for kind, items in left.items()]
        if number % 50 == 0:
            gc.collect()
            if alive() is not None:
                trial.wrong.append("left: the orchestrator itself")
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            if self.resident is None and number >= 100:
                self.resident = resident
            grown = resident - (self.resident or resident)
            trial.most["MiB of growth"] = grown / (1 << 20)
            if grown > _LEFT:
                trial.wrong.append(f"left: {grown >> 20} MiB of memory")


def _left() -> dict[str, set[Any]]:
    """Return what an orchestrator could leave."""
    return {
        "processes": set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
        "actors": _actors(),
        "threads": {thread.ident for thread in threading.enumerate()},
        "descriptors": _descriptors(),
        "names in shared memory": {
            path.name for path in _NAMES.iterdir() if "etdev" in path.name or "psm_" in path.name
        },
    }


def _descriptors() -> set[str]:
    """Return the files of the open descriptors, without those that another thread closes meanwhile."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(link))
    return found


def _actors() -> set[str]:
    """Return the actors of Ray that live; their processes belong to Ray."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return set()
    return {name for name, actor in ray._private.state.actors().items() if actor["State"] != "DEAD"}


def _more(before: dict[str, set[Any]], after: dict[str, set[Any]]) -> dict[str, set[Any]]:
    """Return what is there now and was not there before."""
    kinds = {kind: after[kind] - before[kind] for kind in after}
    kinds["descriptors"] = {name for name in kinds["descriptors"] if "/proc/" not in name}
    return {kind: items for kind, items in kinds.items() if items}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--transports", nargs="*", default=list(_SHARES), choices=list(_SHARES))


def make(settings: Settings) -> Run:
    """Return the trial of each number."""
    return _Campaign(settings).run


if __name__ == "__main__":
    sys.exit(main("graphs", make, doc=__doc__, count=5_000, hang=180, options=_options))
