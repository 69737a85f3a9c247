"""Comparison of the latency of two programs, measured in turn on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from statistics import median, quantiles
from typing import Any, NamedTuple

from etdev.execution.timing import Thoroughness, summarize
from etdev.pipeline.results.result import LatencyResult, Part

TimedCall = Callable[[tuple[Any, ...]], tuple[float, float]]
"""Function that makes one call with a sample. It returns the seconds of the call, and those of the transfer."""

_ROUND_SECONDS = 0.05
"""Target duration in seconds of the calls that one program makes in a round."""
LEAST_COMPARED = 5
"""Minimum number of rounds for a comparison."""
_LEAST_ROUNDS = 10
"""Number of rounds to aim at if the user asks for a number of calls."""


class RatioResult(Part):
    """Latency of a program, divided by the latency of another program, over several rounds.

    In each round, each program makes the same number of calls, one program after the other. The ratio of a round
    divides the sums of both. The first program of a round is the second one of the next round.
    """

    median: float
    low: float
    """Lower quartile of the ratios."""
    high: float
    """Upper quartile of the ratios."""
    rounds: int
    calls_per_round: int
    """Number of calls of each program in a round."""


class InTurn(NamedTuple):
    """Measurements of two programs."""

    latencies: tuple[LatencyResult, LatencyResult]
    ways: tuple[float, float]
    """Median seconds of the transfer of inputs and outputs, for each program."""
    ratio: RatioResult


def measure_in_turn(
    calls: tuple[TimedCall, TimedCall],
    samples: tuple[Sequence[tuple[Any, ...]], Sequence[tuple[Any, ...]]],
    thoroughness: Thoroughness,
) -> InTurn:
    """Measure two programs in rounds until each has the calls and the seconds of ``thoroughness``.

    Rounds make other load on the machine slow down both programs. ``samples`` has equally many samples for each
    program; their calls cycle through them.
    """
    size = min(_calls_per_round(call, given, thoroughness) for call, given in zip(calls, samples, strict=True))
    endless = tuple(map(cycle, samples))
    figures: tuple[list[tuple[float, float]], ...] = ([], [])
    ratios: list[float] = []
    end = time.perf_counter() + 2 * thoroughness.seconds
    while len(ratios) * size < thoroughness.calls or time.perf_counter() < end:
        sums = [0.0, 0.0]
        for side in (0, 1) if len(ratios) % 2 == 0 else (1, 0):
            found = [calls[side](sample) for sample in islice(endless[side], size)]
            figures[side].extend(found)
            sums[side] = math.fsum(seconds for seconds, _ in found)
        ratios.append(sums[0] / max(sums[1], 1e-9))
    first, second = ([list(column) for column in zip(*each, strict=True)] for each in figures)
    return InTurn(
        (summarize(first[0]), summarize(second[0])),
        (median(first[1]), median(second[1])),
        _ratio(ratios, size),
    )


def _calls_per_round(call: TimedCall, samples: Sequence[tuple[Any, ...]], thoroughness: Thoroughness) -> int:
    """Make the calls to warm up. Return the number of calls that one program makes in a round."""
    whole = [sum(call(sample)) for sample in islice(cycle(samples), max(thoroughness.warmup, 1))]
    wanted = math.ceil(_ROUND_SECONDS / max(whole[-1], 1e-9))
    if not thoroughness.seconds:  # The user asked for a number of calls, which must make several rounds.
        wanted = min(wanted, thoroughness.calls // _LEAST_ROUNDS)
    return max(wanted, 1)


def _ratio(ratios: Sequence[float], size: int) -> RatioResult:
    low, middle, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else (ratios[0],) * 3
    return RatioResult(median=middle, low=low, high=high, rounds=len(ratios), calls_per_round=size)
