"""What workers cost and what they save: the overhead of an empty task, scheduling of many, weights that stay.

    python benchmarks/orchestrator.py [--transports NAME ...] [--only PART ...]

The parts: *tasks*, round trips of an empty task, on each transport, beside what the machine itself takes to wake a
thread or a process and be woken by it; *queue*, many tasks that wait, in time and per
task; *residency*, a decoder with 64 MB of weights, called 200 times by two workers on simulated devices that the host
cannot read; *speed*, pieces of photographs through the zoo's resnet on the runtime's portable kernels, by one worker
and by two, each with one thread on a core of its own. Ends with 1 if a figure misses what is asked of it.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from threading import Thread
from typing import Any

import numpy as np

from etdev.runtime.orchestrator import Orchestrator, WorkerArray
from etdev.runtime.orchestrator.transports import TRANSPORTS

PARTS = ("tasks", "queue", "residency", "speed")
ROUND_TRIPS = {"thread": 3000, "process": 3000, "ray": 500}
MOST_MICROSECONDS = {"thread": 50.0, "process": 300.0}
"""For the median of an empty task; nothing is asked of Ray."""
QUEUES = (2_500, 5_000, 10_000, 20_000)
_LINEAR = 1.5
"""How much longer a task takes at most among twice as many: Python's garbage collector looks at all of them."""
WEIGHTS = 64 * 1024 * 1024
"""Bytes."""
CALLS = 200
_SENT = 4
"""Calls that take the weights along, for comparison."""
SECONDS = 12.0
"""Of evaluation by one worker."""
FACTOR = 1.6
"""How much faster two workers are at least."""


def nothing() -> None:
    """An empty task."""


def decode(weights: WorkerArray, token: WorkerArray) -> float:
    """Something that depends on the token and reaches all over the weights."""
    found = weights.device_numpy()[:: 1 << 16]
    return float(found.sum() * token.device_numpy().sum())


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=list(TRANSPORTS), metavar="NAME")
    arguments = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}\n")
    parts: dict[str, Callable[[list[str]], bool]] = {
        "tasks": measure_tasks,
        "queue": measure_queue,
        "residency": measure_residency,
        "speed": measure_speed,
    }
    good = [parts[name](arguments.transports) for name in arguments.only]
    return 0 if all(good) else 1


def measure_tasks(transports: list[str]) -> bool:
    """Submit an empty task and wait for it, one after the other."""
    bare = {"thread": _thread_round_trip(), "process": _process_round_trip()}
    print(
        "| an empty task | median, µs | p95, µs | asked for, µs | nothing but waking, µs |\n|---|---:|---:|---:|---:|"
    )
    good = True
    for name in transports:
        with Orchestrator(1, name) as o:
            for _ in range(100):
                o.submit(nothing, worker=0).result()
            times = sorted(_seconds(lambda: o.submit(nothing, worker=0).result()) for _ in range(ROUND_TRIPS[name]))
        middle = median(times) * 1e6
        most = MOST_MICROSECONDS.get(name)
        good &= most is None or middle <= most
        asked = "" if most is None else f"{most:.0f}"
        waking = f"{bare[name] * 1e6:.1f}" if name in bare else ""
        print(f"| {name} | {middle:.1f} | {times[len(times) * 95 // 100] * 1e6:.1f} | {asked} | {waking} |")
    print()
    return good


def _thread_round_trip() -> float:
    """Median seconds until another thread has fulfilled a future."""
    wanted: SimpleQueue[Future[None] | None] = SimpleQueue()

    def fulfil() -> None:
        while (future := wanted.get()) is not None:
            future.set_result(None)

    def ask() -> None:
        future: Future[None] = Future()
        wanted.put(future)
        future.result()

    thread = Thread(target=fulfil)
    thread.start()
    try:
        return median(_seconds(ask) for _ in range(ROUND_TRIPS["thread"]))
    finally:
        wanted.put(None)
        thread.join()


def _process_round_trip() -> float:
    """Median seconds until another process has answered a byte."""
    echo = (
        "import sys\nwhile text := sys.stdin.buffer.read(1): sys.stdout.buffer.write(text); sys.stdout.buffer.flush()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ours, theirs = process.stdin, process.stdout

        def ask() -> None:
            ours.write(b"?")
            theirs.read(1)

        found = median(_seconds(ask) for _ in range(ROUND_TRIPS["process"]))
        ours.close()
    return found


def measure_queue(_: list[str]) -> bool:
    """Submit tasks that wait for one that was submitted before, then run them all, without any thread."""
    print("| tasks in the queue | submit, s | run, s | per task, µs |\n|---|---:|---:|---:|")
    each = []
    for count in QUEUES:
        with Orchestrator(["sim"], seed=0, max_tasks=1 << 30) as o:
            handle = o.malloc(0, 8)
            o.submit(_hold, handle.resident("update"))
            submit = _seconds(lambda o=o, handle=handle, count=count: _queue(o, handle, count))
            run = _seconds(o.wait)
        each.append((submit + run) / count)
        print(f"| {count:,} | {submit:.2f} | {run:.2f} | {each[-1] * 1e6:.1f} |")
    linear = each[-1] <= _LINEAR * each[-2]
    print(f"\nper task, twice as many take {each[-1] / each[-2]:.2f} times as long\n")
    return linear


def _queue(o: Orchestrator, handle: Any, count: int) -> None:
    for number in range(count):
        o.submit(_hold, handle.resident("read" if number % 4 else "update"))


def _hold(_: WorkerArray) -> None:
    pass


def measure_residency(transports: list[str]) -> bool:
    """The weights go once to each worker; the tokens go there for each call."""
    weights, token = np.ones(WEIGHTS // 4, np.float32), np.ones(4, np.float32)
    print("| 64 MB of weights, 200 calls, 2 workers | B to workers | B avoided | s | s, weights sent each time |")
    print("|---|---:|---:|---:|---:|")
    good = True
    for name in transports:
        with Orchestrator(["sim", "sim"], name) as o:
            handles = [o.malloc(worker, weights.nbytes) for worker in range(2)]
            for handle in handles:
                o.copy_to(handle, weights)
            o.wait()
            residents = [handle.resident(dtype="float32") for handle in handles]
            began = time.perf_counter()
            for future in [o.submit(decode, residents[number % 2], token) for number in range(CALLS)]:
                future.result()
            stays = time.perf_counter() - began
            stats = o.stats().workers
            began = time.perf_counter()
            for number in range(_SENT):
                o.submit(decode, weights, token, worker=number % 2).result()
            each = (time.perf_counter() - began) / _SENT
        moved, avoided = sum(w.bytes_to for w in stats), sum(w.bytes_avoided for w in stats)
        good &= moved == 2 * weights.nbytes + CALLS * token.nbytes and avoided == CALLS * weights.nbytes
        print(f"| {name} | {moved:,} | {avoided:,} | {stays:.2f} | {each * CALLS:.1f} (from {_SENT} calls) |")
    print()
    return good


def measure_speed(_: list[str]) -> bool:
    """Pieces of photographs through the zoo's resnet, by one worker and by two."""
    import torch

    from etdev.runtime.pool import ProgramPool, ProgramSource

    pieces = list(_pieces())

    def evaluate(file: Path, workers: int, count: int) -> tuple[float, list[torch.Tensor]]:
        source = ProgramSource(file, "stock")
        with Orchestrator(workers, "process") as o, ProgramPool(o, source) as pool:
            list(pool.map("forward", [(piece,) for piece in pieces[: 5 * workers]]))
            began = time.perf_counter()
            samples = ((pieces[number % len(pieces)],) for number in range(count))
            found = [outputs[0] for _, outputs in pool.map("forward", samples)]
            return time.perf_counter() - began, found

    with tempfile.TemporaryDirectory() as folder:
        file = _resnet(Path(folder))
        each = evaluate(file, 1, 100)[0] / 100
        count = int(SECONDS / each)
        (one, expected), (two, found) = (evaluate(file, workers, count) for workers in (1, 2))
    same = all(torch.equal(*pair) for pair in zip(expected, found, strict=True))
    factor = one / two
    print("| zoo resnet, portable, process | samples | 1 worker, s | 2 workers, s | factor | asked for |")
    print("|---|---:|---:|---:|---:|---:|")
    outputs = "equal" if same else "DIFFERENT"
    print(f"| outputs {outputs} | {count:,} | {one:.2f} | {two:.2f} | {factor:.2f} | {FACTOR} |\n")
    return same and factor >= FACTOR


def _pieces() -> Iterator[Any]:
    """The photographs that come with scikit-learn, in pieces of 64 x 64."""
    import torch
    from sklearn.datasets import load_sample_images

    for image in load_sample_images().images:
        pixels = torch.from_numpy((image / 255).astype(np.float32)).permute(2, 0, 1)
        for top in range(0, pixels.shape[1] - 63, 32):
            for left in range(0, pixels.shape[2] - 63, 32):
                yield pixels[None, :, top : top + 64, left : left + 64].contiguous()


def _resnet(folder: Path) -> Path:
    import etdev

    config = Path(__file__).resolve().parent / "zoo_project" / "etdev.toml"
    override = f"project.out={json.dumps(str(folder))}"
    built = etdev.build(config, targets=["portable"], verify=False, overrides=[override], environ={})
    return built.path("portable")


def _seconds(action: Callable[[], Any]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
