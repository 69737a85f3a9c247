"""Results as tables, and what they have to hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
    """Largest median of etdev's memory over greedy's."""
    speed: float | None
    """Smallest median of times faster; None: no goal but that no model is slower."""


GOALS: dict[Backend, Goal] = {"portable": Goal(memory=0.5, speed=3.0), "xnnpack": Goal(memory=1.0, speed=None)}


def print_tables(backend: Backend, results: Sequence[Result]) -> bool:
    """Print a backend's tables and criteria; whether all of them hold."""
    measured = [result for result in results if result.plain is not None]
    print(f"\n## {backend}: planned memory, B (+ growth of the file)\n")
    _print_table(_MEMORY_COLUMNS, [*map(_memory_cells, measured), *_memory_spreads(measured)])
    print(f"\n## {backend}: outputs and latency\n")
    _print_table(_RUN_COLUMNS, [*map(_run_cells, measured), *_speed_spreads(measured)])
    print(f"\n## {backend}: memory of the process beyond the bare runtime, MB\n")
    _print_table(_PROCESS_COLUMNS, [*map(_process_cells, measured), *_share_spreads(measured)])
    print(f"\n## {backend}: criteria\n")
    found = list(_criteria(backend, results))
    for holds, text, exceptions in found:
        print(f"- {'holds' if holds else 'FAILS'}: {text}{': ' + '; '.join(exceptions) if exceptions else ''}")
    for result in results:
        for trouble in (*result.troubles, *([f"greedy: {result.overlap}"] if result.overlap else ())):
            print(f"- {result.model}: {trouble}")
    return all(holds for holds, _, _ in found)


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without columns that were not measured."""
    rows = list(rows)
    kept = [index for index in range(len(columns)) if any(row[index] not in ("", "1") for row in rows)]
    for row in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(row[index].replace('|', '/') for index in kept)} |")


_MEMORY_COLUMNS = (
    "model",
    "instructions",
    "etdev's",
    "greedy",
    "ExecuTorch's best",
    *(step.name for step in STEPS),
    "lower bound",
    "above it",
    "plan / greedy",
    "with growth",
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
        f"{ratio:.3f}" if (ratio := _plan_ratio(result)) else "",
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


def _plan_ratio(result: Result) -> float | None:
    """Return etdev's planned memory over greedy's, or None if greedy's plan is wrong."""
    if result.final is None or result.plain is None or result.overlap is not None:
        return None
    return result.final.memory / result.plain.memory


def _above_bound(result: Result) -> str:
    if result.final is None:
        return ""
    over = result.final.memory / max(1, result.final.lower_bound) - 1
    return "0" if over <= 0 else f"{over:.2%}"


_SPREADS: Sequence[tuple[str, Callable[[Iterable[float]], float]]] = (("median", median), ("least", min), ("most", max))


def _memory_spreads(results: Sequence[Result]) -> Iterable[list[str]]:
    """Yield the median, the least and the most of each column's cost over greedy's, of models that have both."""

    def ratios(file: Callable[[Result], File | None]) -> list[float]:
        return [
            found.cost(result.plain) / result.plain.memory
            for result in results
            if result.plain and result.overlap is None and (found := file(result))
        ]

    def step(name: str) -> Callable[[Result], File | None]:
        return lambda result: next((step for step in result.steps if step.name == name), None)

    columns = [ratios(lambda result: result.tuned), *(ratios(step(item.name)) for item in STEPS)]
    for name, spread in _SPREADS:
        cells = [f"{spread(column):.3f}" if column else "" for column in columns]
        plans = [ratio for result in results if (ratio := _plan_ratio(result)) is not None]
        yield [f"**{name}**", "", "", "1", *cells, "", "", f"{spread(plans):.3f}" if plans else "", cells[-1], ""]


def _speed_spreads(results: Sequence[Result]) -> Iterable[list[str]]:
    timed = [result.latency.ratios for result in results if result.latency is not None]
    if timed:
        for name, spread in _SPREADS:
            yield [f"**{name}**", *[""] * 6, f"{spread(map(median, timed)):.2f}", "", ""]


_PROCESS_COLUMNS = (
    "model",
    "ExecuTorch's file",
    "etdev's file",
    "ExecuTorch's plan",
    "etdev's plan",
    "process, ExecuTorch",
    "process, etdev",
    "plan of process, ExecuTorch",
    "plan of process, etdev",
)


def _process_cells(result: Result) -> list[str]:
    """Return sizes in MB; a process counts beyond what it takes with the runtime alone."""
    plain, final, process = result.plain, result.final, result.process
    assert plain is not None
    if final is None or process is None:
        return [result.model, *[""] * 8]
    grown = (process.plain - process.runtime, process.etdev - process.runtime)
    sizes = (plain.size, final.size, plain.memory, final.memory, *grown)
    return [result.model, *(f"{size / 1e6:,.1f}" for size in sizes), *(f"{share:.1%}" for share in _shares(result))]


def _shares(result: Result) -> tuple[float, float]:
    """Return planned memory over what the process grows by, for the plain file and for etdev's."""
    plain, final, process = result.plain, result.final, result.process
    assert plain is not None
    assert final is not None
    assert process is not None
    return plain.memory / (process.plain - process.runtime), final.memory / (process.etdev - process.runtime)


def _share_spreads(results: Sequence[Result]) -> Iterable[list[str]]:
    shares = [_shares(result) for result in results if result.final is not None and result.process is not None]
    if shares:
        for name, spread in _SPREADS:
            yield [f"**{name}**", *[""] * 6, *(f"{spread(column):.1%}" for column in zip(*shares, strict=True))]


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
    middle = median(ratios.values()) if ratios else None
    said = "nothing measured" if middle is None else f"{middle:.3f} over {len(ratios)} models"
    holds = middle is not None and (middle <= goal.memory if goal.memory < 1 else middle < 1)
    limit = f"at most {goal.memory}" if goal.memory < 1 else "below 1"
    yield holds, f"the median of memory and growth over greedy's memory is {limit} ({said})", []
    plans = {result.model: ratio for result in results if (ratio := _plan_ratio(result)) is not None}
    yield _none("no model plans more memory than greedy", (name for name, ratio in plans.items() if ratio > 1))
    grown = [name for name, ratio in ratios.items() if ratio > 1]
    yield True, f"with the growth of the file, {len(grown)} take more than greedy's memory", grown
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
        middle = median(map(median, timed.values())) if timed else None
        least = median(ratio_bounds(ratios)[0] for ratios in timed.values()) if timed else 0.0
        said = "nothing measured" if middle is None else f"{middle:.2f}; of the 95 % bounds {least:.2f}"
        yield middle is not None and middle >= goal.speed, f"{goal.speed:g} times faster, median ({said})", []
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
