"""Results as tables, and what they have to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

from zoo_parts.latency import ratio_bounds
from zoo_parts.result import Backend, File, Latency, Result
from zoo_parts.steps import STEPS

_NEAR = 1.01
"""How far above its lower bound a plan may be."""
_ERROR_RATIO, _ERROR_FLOOR = 2.0, 1e-5
"""How much larger than plain ExecuTorch's the error may be; one below the floor is no matter."""
_SURE = 0.001
"""A file counts as slower if pairs that are all alike would look so with this probability at most."""
_MUCH_SLOWER = 1 / 1.03
"""It does too if the upper 95 % bound of times faster is below this."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a backend's results have to reach."""

    memory: float
    """Geometric mean of etdev's memory over greedy's, at most."""
    speed: float | None
    """Geometric mean of times faster, at least; None: no goal but that no model is slower."""


GOALS: dict[Backend, Goal] = {"portable": Goal(memory=0.5, speed=3.0), "xnnpack": Goal(memory=1.0, speed=None)}


def geometric_mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    logarithms = [log(value) for value in values]
    return exp(sum(logarithms) / len(logarithms)) if logarithms else None


def print_tables(backend: Backend, results: Sequence[Result]) -> bool:
    """Print a backend's tables and criteria; whether all of them hold."""
    measured = [result for result in results if result.plain is not None]
    print(f"\n## {backend}: planned memory, B (+ growth of weights)\n")
    _print_table(_MEMORY_COLUMNS, [*map(_memory_cells, measured), _means(measured)])
    print(f"\n## {backend}: outputs and latency\n")
    _print_table(_RUN_COLUMNS, map(_run_cells, measured))
    print(f"\n## {backend}: criteria\n")
    found = list(_criteria(backend, results))
    for holds, text, exceptions in found:
        print(f"- {'holds' if holds else 'FAILS'}: {text}{': ' + '; '.join(exceptions) if exceptions else ''}")
    for result in results:
        for trouble in (*result.troubles, *([f"greedy: {result.overlap}"] if result.overlap else ())):
            print(f"- {result.model}: {trouble}")
    return all(holds for holds, _, _ in found)


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    for row in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |")


_MEMORY_COLUMNS = (
    "model",
    "instructions",
    "etdev's",
    "greedy",
    "ExecuTorch's best",
    *(step.name for step in STEPS),
    "lower bound",
    "above it",
    "ratio",
    "relinked",
)
_RUN_COLUMNS = (
    "model",
    "error of ExecuTorch",
    "of its best",
    "of etdev",
    "linked = object",
    "ExecuTorch, ms",
    "etdev, ms",
    "times faster",
    "at least (95 %)",
    "faster pairs",
)


def _memory_cells(result: Result) -> list[str]:
    plain, tuned, final = result.plain, result.tuned, result.final
    assert plain is not None
    by_name = {step.name: step for step in result.steps}
    return [
        result.model,
        f"{plain.instructions:,}",
        f"{final.instructions:,}" if final else "",
        f"{plain.memory:,}" if result.overlap is None else f"{plain.memory:,}, overwrites live values",
        f"{_memory(tuned, plain)} ({tuned.settings})" if tuned else "",
        *(_memory(by_name.get(step.name), plain) for step in STEPS),
        f"{final.lower_bound:,}" if final else "",
        _above_bound(result),
        f"{ratio:.3f}" if (ratio := _ratio(result)) else "",
        f"{result.relinked:,}" if result.relinked is not None else "",
    ]


def _memory(file: File | None, plain: File) -> str:
    if file is None:
        return ""
    growth = file.cost(plain) - file.memory
    return f"{file.memory:,}" + (f" + {growth:,}" if growth else "")


def _ratio(result: Result) -> float | None:
    """etdev's cost over greedy's; None if greedy's plan is none."""
    if result.final is None or result.plain is None or result.overlap is not None:
        return None
    return result.final.cost(result.plain) / result.plain.memory


def _above_bound(result: Result) -> str:
    if result.final is None:
        return ""
    over = result.final.memory / max(1, result.final.lower_bound) - 1
    return "0" if over <= 0 else f"{over:.2%}"


def _means(results: Sequence[Result]) -> list[str]:
    """Geometric means of each column's cost over greedy's, of the models that have both."""

    def mean(file: Callable[[Result], File | None]) -> str:
        ratios = [
            found.cost(result.plain) / result.plain.memory
            for result in results
            if result.plain and result.overlap is None and (found := file(result))
        ]
        value = geometric_mean(ratios)
        return "" if value is None else f"{value:.3f}"

    def step(name: str) -> Callable[[Result], File | None]:
        return lambda result: next((step for step in result.steps if step.name == name), None)

    means = [mean(step(item.name)) for item in STEPS]
    return ["**geometric mean**", "", "", "1", mean(lambda result: result.tuned), *means, "", "", "", ""]


def _run_cells(result: Result) -> list[str]:
    plain, final = result.plain, result.final
    assert plain is not None
    return [
        result.model,
        _error(plain),
        _error(result.tuned),
        _error(final),
        ("yes" if all(step.identical for step in result.steps) else "NO") if final else "",
        *(_latency_cells(result.latency) if result.latency else [""] * 5),
    ]


def _latency_cells(latency: Latency) -> list[str]:
    ratios = latency.ratios
    return [
        f"{median(latency.plain) * 1000:,.2f}",
        f"{median(latency.etdev) * 1000:,.2f}",
        f"{median(ratios):.2f}",
        f"{ratio_bounds(ratios)[0]:.2f}",
        f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)}",
    ]


def _error(file: File | None) -> str:
    return "" if file is None or file.error is None else f"{file.error:.1e}"


def _criteria(backend: Backend, results: Sequence[Result]) -> Iterable[tuple[bool, str, list[str]]]:
    """Whether it holds, what it says, and the models that break it."""
    goal = GOALS[backend]
    ratios = {result.model: ratio for result in results if (ratio := _ratio(result)) is not None}
    mean = geometric_mean(ratios.values())
    said = "nothing measured" if mean is None else f"{mean:.3f} over {len(ratios)} models"
    holds = mean is not None and (mean <= goal.memory if goal.memory < 1 else mean < 1)
    limit = f"at most {goal.memory}" if goal.memory < 1 else "below 1"
    yield holds, f"geometric mean of memory over greedy's is {limit} ({said})", []
    yield _none("no model takes more memory than greedy", (name for name, ratio in ratios.items() if ratio > 1))
    yield _none(
        "each plan is within 1 % of its lower bound",
        (f"{r.model} {s.name}" for r in results for s in r.steps if s.memory > _NEAR * s.lower_bound),
    )
    yield _none(
        "linking changes no bit",
        (
            *(f"{r.model} {s.name}" for r in results for s in r.steps if not s.identical),
            *(f"{r.model} relinked" for r in results if r.relinked_identical is False),
        ),
    )
    yield _none("the error is at most twice ExecuTorch's, or 1e-5", filter(None, map(_error_beyond, results)))
    yield from _speed_criteria(goal, results)
    yield _none("everything could be measured", (r.model for r in results if r.troubles))


def _speed_criteria(goal: Goal, results: Sequence[Result]) -> Iterable[tuple[bool, str, list[str]]]:
    timed = {result.model: result.latency.ratios for result in results if result.latency is not None}
    if goal.speed is not None:
        mean = geometric_mean(map(median, timed.values()))
        least = geometric_mean(max(1e-9, ratio_bounds(ratios)[0]) for ratios in timed.values())
        said = "nothing measured" if mean is None else f"{mean:.2f}; of the 95 % bounds {least:.2f}"
        yield mean is not None and mean >= goal.speed, f"{goal.speed:g} times faster, geometric mean ({said})", []
    yield _none("no model is slower", (name for name, ratios in timed.items() if surely_slower(ratios)))


def _none(text: str, exceptions: Iterable[str]) -> tuple[bool, str, list[str]]:
    found = list(exceptions)
    return not found, text, found


def _error_beyond(result: Result) -> str | None:
    if result.final is None or result.plain is None or result.final.error is None or result.plain.error is None:
        return None
    if result.final.error <= max(_ERROR_RATIO * result.plain.error, _ERROR_FLOOR):
        return None
    return f"{result.model} {result.final.error:.1e}, ExecuTorch {result.plain.error:.1e}"


def surely_slower(ratios: Sequence[float]) -> bool:
    """Whether so many pairs are slower, or so many so much slower, that chance does not explain it.

    The limit of the sign test is low because all models are asked: at 5 %, one of twenty equally fast ones would fail.
    """
    from math import comb

    slower = sum(ratio < 1 for ratio in ratios)
    as_slow = sum(comb(len(ratios), count) for count in range(slower, len(ratios) + 1))
    return as_slow <= _SURE * 2.0 ** len(ratios) or ratio_bounds(ratios)[1] < _MUCH_SLOWER
