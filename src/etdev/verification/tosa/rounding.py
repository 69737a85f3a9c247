"""Comparison of the outputs of TOSA graphs with those of the quantized model, and the effect of rounding on them.

A TOSA graph scales its sums in fixed point. The quantized model rounds once, in floats. So each rounding to integers
may return another integer, one step away, if the value is near the middle between two integers. Later layers add up
such steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etdev.program import model as m
from etdev.program.analysis.effects import effects, instruction_name
from etdev.verification.compare import MOST_STEPS, QUANTIZED_SNR_RANGE
from etdev.verification.tosa.calls import Call

if TYPE_CHECKING:
    import numpy as np

_STEPPED = ("int8", "int16")
"""Dtypes of quantized values, which rounding may change. Values of other dtypes must be equal."""
_QUANTIZE = "::quantize_per_"
ROUNDING_SNR_DB = QUANTIZED_SNR_RANGE[1]
"""Minimum SNR, in dB, of an output that differs by more than one step."""


@dataclass
class _Deviation:
    """Difference of one output of a delegate from the quantized model, accumulated over many calls."""

    elements: int = 0
    differing: int = 0
    steps: int = 0
    worst: str = ""
    """Description of the first call with the largest difference."""
    total: float = 0.0
    squares: float = 0.0
    """Sum of the squares of the quantized model's integers; :attr:`total` is their plain sum."""
    noise: float = 0.0

    @property
    def snr_db(self) -> float | None:
        """SNR in dB; None if the outputs are equal or the quantized model's output is constant.

        The zero point of the integers is unknown, so the signal is their deviation from the mean.
        """
        signal = self.squares - self.total**2 / max(self.elements, 1)
        return 10 * math.log10(signal / self.noise) if self.noise and signal > 0 else None

    def add(self, found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], at: str) -> None:
        import numpy as np

        error = np.abs(found.astype(np.int64) - expected.astype(np.int64))
        steps = int(error.max(initial=0))
        if steps > self.steps:
            self.steps, self.worst = steps, at
        self.elements += error.size
        self.differing += int((error != 0).sum())
        values = expected.astype(np.float64)
        self.total += float(values.sum())
        self.squares += float((values**2).sum())
        self.noise += float((error.astype(np.float64) ** 2).sum())

    def excess(self, allowed: int) -> str | None:
        """Describe a difference that rounding does not explain; None if there is none."""
        snr = self.snr_db
        few = self.steps <= 1 or (snr is not None and snr >= ROUNDING_SNR_DB)
        if self.steps <= allowed and few:
            return None
        needed = f", but needs {ROUNDING_SNR_DB:g} dB" if self.steps <= allowed else ""
        ratio = "its SNR is undefined" if snr is None else f"its SNR is {snr:.1f} dB"
        return (
            f"differs from the quantized model in {self.differing:,} of {self.elements:,} elements, by up to "
            f"{self.steps:,} step{'s' * (self.steps != 1)} ({allowed} allowed; {ratio}{needed}; most in {self.worst})"
        )


def roundings(program: m.Program) -> tuple[int, ...]:
    """Return the largest number of roundings to integers on a path from an input to each output.

    ``program`` computes the ops of a delegate with kernels, in its method ``forward``.
    """
    (plan,) = (plan for plan in program.execution_plan if plan.name == "forward")
    depth: dict[int, int] = {}
    for call in plan.instructions:
        done = effects(plan, call)
        found = max((depth.get(value, 0) for value in done.reads), default=0)
        found += _QUANTIZE in instruction_name(plan, call)
        for value in (*done.writes, *done.updates):
            depth[value] = found
        for base, out in (pair for pair in (done.view, done.move) if pair is not None):
            depth[out] = depth.get(base, 0)
    return tuple(depth.get(value, 0) for value in plan.outputs)


def allowed_steps(count: int, dtype: str) -> int:
    """Return the number of steps by which elements of an output may differ.

    ``count`` is the number of roundings on the path to the output. Each may add one step. The result is at most
    :data:`~etdev.verification.compare.MOST_STEPS`, and 0 for a dtype whose values are not quantized.
    """
    return min(max(count, 1), MOST_STEPS) if dtype in _STEPPED else 0


def compare_calls(
    calls: Sequence[Call],
    answers: Sequence[tuple[np.ndarray[Any, Any], ...] | str],
    counts: Mapping[str, Sequence[int]],
) -> tuple[list[str], int]:
    """Return the problems, at most one for each delegate, and the largest difference in quantization steps.

    ``counts`` maps the digest of a delegate to the result of :func:`roundings`.
    """
    problems: dict[str, str] = {}
    outputs: dict[tuple[str, int], tuple[str, _Deviation]] = {}
    for call, answer in zip(calls, answers, strict=True):
        name = _name(call.digest)
        if isinstance(answer, str):
            problems.setdefault(call.digest, f"the TOSA reference model refuses {name}: {answer}")
            continue
        for subject, text in _mismatches(answer, call.expected):
            problems.setdefault(call.digest, f"{subject}{name} {text}")
        if call.digest not in problems:
            for index, (found, expected) in enumerate(zip(answer, call.expected, strict=True)):
                _, deviation = outputs.setdefault((call.digest, index), (str(expected.dtype), _Deviation()))
                deviation.add(found, expected, call.at)
    for (digest, index), (dtype, deviation) in outputs.items():
        excess = deviation.excess(allowed_steps(counts[digest][index], dtype))
        if excess is not None:
            problems.setdefault(digest, f"output {index} of {_name(digest)} {excess}")
    worst = max((deviation.steps for _, deviation in outputs.values()), default=0)
    return list(problems.values()), worst


def _name(digest: str) -> str:
    return f"the TOSA graph of delegate {digest[:12]}…"


def _mismatches(
    answer: Sequence[np.ndarray[Any, Any]], wanted: Sequence[np.ndarray[Any, Any]]
) -> Iterator[tuple[str, str]]:
    """Yield texts about outputs of another number, dtype or shape: before and after the graph's name."""
    if len(answer) != len(wanted):
        yield "", f"has {len(answer)} outputs, but the delegate has {len(wanted)}"
        return
    for index, (found, expected) in enumerate(zip(answer, wanted, strict=True)):
        if found.dtype != expected.dtype or found.shape != expected.shape:
            text = f"is {found.dtype} {list(found.shape)} instead of {expected.dtype} {list(expected.shape)}"
            yield f"output {index} of ", text
