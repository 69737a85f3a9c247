"""Measurement of throughput on several workers, with speedups where the measurements are reliable."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

from etdev.execution.timing import Thoroughness, enough
from etdev.execution.workers import OnWorkers
from etdev.pipeline.project.machine import Machine, describe_load
from etdev.pipeline.results.result import Part
from etdev.runtime.pool import outputs_of

_TASK_SECONDS = 0.05
"""Target duration in seconds of all calls of a task. Sending a task and its result needs 0.1 to 2 ms."""
_LEAST_BUSY = 0.9
"""Minimum value of :attr:`ThroughputResult.busy`. Below this, overhead distorts the throughput."""
_LEAST_TASKS = 5
"""Minimum number of tasks for each worker. Fewer tasks do not show if the times of tasks are steady."""
_MOST_SPREAD = 1.5
"""Maximum value of :attr:`ThroughputResult.spread` for which the machine counts as steady."""


class ThroughputResult(Part):
    """Throughput of a given number of workers. Each worker has its own core if there are enough cores."""

    workers: int
    calls: int
    calls_per_task: int
    """Number of calls that a worker makes in one task, without communication between the calls."""
    seconds: float
    """Seconds from the start of the first call to the end of the last call."""
    calls_per_second: float
    busy: float
    """Share of the workers' total time (``workers * seconds``) that they spent in calls."""
    spread: float
    """Time of a call in slow tasks (90th percentile), divided by the time of a call in fast tasks (10th percentile)."""
    factor: float | None = None
    """Speedup: throughput divided by the throughput of one worker; None if unknown."""
    no_factor: str | None = None
    """Reason why the speedup is unknown, although the throughput of one worker was measured; otherwise None."""


def batch_size(call_seconds: float, workers: int, thoroughness: Thoroughness) -> int:
    """Return the number of calls for each task. A task must last much longer than its transfer to the worker."""
    wanted = math.ceil(_TASK_SECONDS / max(call_seconds, 1e-9))
    if not thoroughness.seconds:  # The user asked for a number of calls; every worker must get some of them.
        wanted = min(wanted, thoroughness.calls // (workers * _LEAST_TASKS))
    return max(wanted, 1)


def measure_throughput(
    on_workers: OnWorkers, workers: int, samples: Sequence[tuple[Any, ...]], thoroughness: Thoroughness, batch: int
) -> ThroughputResult:
    """Measure calls on workers, with about ``batch`` calls in each task. The tasks cycle through the samples."""
    method = on_workers.plan.name
    with on_workers.opened(workers, samples, pinned=True) as (_, pool):
        for future in [
            pool.call(method, sample, worker=worker)
            for sample in islice(cycle(samples), thoroughness.warmup)
            for worker in range(workers)
        ]:
            outputs_of(future)
        if thoroughness.seconds:  # Calls without pauses may be faster than in the latency measurement.
            (once,) = pool.repeat(method, samples[:1], batch)
            batch = max(round(batch * _TASK_SECONDS / max(once, 1e-9)), 1)
        tasks = replace(thoroughness, calls=math.ceil(thoroughness.calls / batch))
        began = time.perf_counter()
        times = list(pool.repeat(method, enough(samples, tasks), batch))
        seconds = time.perf_counter() - began
    calls = len(times) * batch
    ordered = sorted(times)
    return ThroughputResult(
        workers=workers,
        calls=calls,
        calls_per_task=batch,
        seconds=seconds,
        calls_per_second=calls / seconds,
        busy=min(sum(times) / (workers * seconds), 1.0),
        spread=ordered[math.ceil(0.9 * len(ordered)) - 1] / max(ordered[math.ceil(0.1 * len(ordered)) - 1], 1e-9),
    )


def compare(found: Sequence[ThroughputResult], machine: Machine) -> tuple[ThroughputResult, ...]:
    """Return the results, each with the speedup over one worker, or with the reason why the speedup is unknown."""
    one = next((each for each in found if each.workers == 1), None)
    if one is None:
        return tuple(found)
    return tuple(_over(one, each, machine) for each in found)


def _over(one: ThroughputResult, found: ThroughputResult, machine: Machine) -> ThroughputResult:
    if found is one:
        return found.model_copy(update={"factor": 1.0})
    factor = found.calls_per_second / one.calls_per_second
    reason = next(filter(None, (_doubt(each, machine) for each in (found, one))), None)
    if reason is None and factor > found.workers * 1.1:
        reason = (
            f"{factor:.2f} times is more than {found.workers} workers can reach: other load disturbed the single worker"
        )
    return found.model_copy(update={"factor": factor if reason is None else None, "no_factor": reason})


def _doubt(found: ThroughputResult, machine: Machine) -> str | None:
    """Return the reason why a measurement is too unreliable for a speedup; None if it is reliable."""
    who = f"{found.workers} worker{'s' * (found.workers != 1)}"
    tasks = found.calls // found.calls_per_task
    if found.workers > machine.cores:
        return f"{who} share {machine.cores} core{'s' * (machine.cores != 1)}"
    if tasks < _LEAST_TASKS * found.workers:
        return f"{who} had only {tasks} task{'s' * (tasks != 1)}: measure for longer with `--seconds`"
    if found.busy < _LEAST_BUSY:
        return f"{who} spent only {found.busy:.0%} of the time in calls, and the rest on transfers"
    if found.spread > _MOST_SPREAD:
        return f"some calls of {who} took {found.spread:.1f} times as long as others: the machine is not steady"
    if describe_load(machine) is not None:
        return f"other processes were running before, with a load of {machine.load:.1f}"
    return None
