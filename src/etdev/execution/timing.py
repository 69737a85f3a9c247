"""Measurement of a method's latency in a loaded runtime."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median
from typing import Any

from etdev.execution.runtimes import Runtime
from etdev.pipeline.results.result import LatencyResult
from etdev.runtime.native import NativeRuntime
from etdev.runtime.stock import StockRuntime


@dataclass(frozen=True)
class Thoroughness:
    """Extent of a measurement: number of calls and duration."""

    warmup: int = 3
    """Number of calls that each worker makes before the measurement."""
    calls: int = 20
    """Minimum number of calls measured."""
    seconds: float = 2.0
    """Minimum duration of the measurement in seconds."""


def measure_latency(
    runtime: Runtime, method: str, samples: Sequence[tuple[Any, ...]], thoroughness: Thoroughness
) -> tuple[LatencyResult, float | None]:
    """Measure calls of a method one after another, and return their statistics and the transfer time.

    The calls cycle through the samples. Each call may use all threads of the runtime. The transfer time is the median
    seconds to send inputs to the runtime's process and outputs back; None if the runtime is in this process.
    """
    for sample in islice(cycle(samples), thoroughness.warmup):
        runtime.call(method, sample)
    times, ways = zip(*(timed_call(runtime, method, sample) for sample in enough(samples, thoroughness)), strict=True)
    return summarize(times), median(ways) if is_separate(runtime) else None


def is_separate(runtime: Runtime) -> bool:
    """Return True if the runtime runs in a process of its own, so that inputs and outputs are transferred."""
    return isinstance(runtime, StockRuntime | NativeRuntime)


def timed_call(runtime: Runtime, method: str, sample: tuple[Any, ...]) -> tuple[float, float]:
    """Call a method. Return the seconds of the call, and the seconds of the transfer of inputs and outputs."""
    began = time.perf_counter()
    runtime.call(method, sample)
    whole = time.perf_counter() - began
    seconds = runtime.seconds if isinstance(runtime, StockRuntime | NativeRuntime) else whole
    return seconds, whole - seconds


def summarize(times: Sequence[float]) -> LatencyResult:
    """Return statistics of measured times in seconds; ``times`` must not be empty."""
    ordered = sorted(times)

    def percentile(percent: int) -> float:
        return ordered[math.ceil(len(ordered) * percent / 100) - 1]

    return LatencyResult(
        calls=len(ordered),
        min=ordered[0],
        p50=percentile(50),
        p95=percentile(95),
        p99=percentile(99),
        max=ordered[-1],
        mean=math.fsum(ordered) / len(ordered),
    )


def enough(samples: Sequence[tuple[Any, ...]], thoroughness: Thoroughness) -> Iterator[tuple[Any, ...]]:
    """Yield samples in a cycle until both the minimum number of calls and the minimum duration are reached."""
    end = time.perf_counter() + thoroughness.seconds
    for number, sample in enumerate(cycle(samples)):
        if number >= thoroughness.calls and time.perf_counter() >= end:
            return
        yield sample
