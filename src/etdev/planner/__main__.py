"""``python -m etdev.planner FILE.csv``: plans a problem in CSV format."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from etdev.planner.csvfile import CsvError, read_buffers
from etdev.planner.make import PLANNERS, make_plan
from etdev.planner.problem import Plan, PlanError, Problem

_NO_FIT, _BAD_INPUT = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return exit code 0, or 1 if the plan exceeds the capacity, or 2 if the input is invalid."""
    options = _parser().parse_args(arguments)
    try:
        text = sys.stdin.read() if str(options.file) == "-" else options.file.read_text(encoding="utf-8-sig")
        buffers = read_buffers(text.splitlines(), options.alignment)
        problem = Problem(tuple(buffers), options.capacity)
        begin = time.perf_counter()
        plan = make_plan(problem, options.planner)
        seconds = time.perf_counter() - begin
    except (OSError, UnicodeDecodeError, CsvError, PlanError) as error:
        print(f"error: {options.file}: {_reason(error)}", file=sys.stderr)
        return _BAD_INPUT
    if options.output == "json":
        print(json.dumps(_document(problem, plan, seconds)))
    else:
        print(_sentence(problem, plan, seconds))
    return _NO_FIT if problem.capacity is not None and plan.size > problem.capacity else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m etdev.planner",
        description="Plan the memory of buffers: FILE is CSV with the columns id, lower, upper and size. "
        "The columns alignment and offset (a pin) are optional. "
        "Exit code 1: the plan exceeds the capacity; 2: bad input.",
    )
    parser.add_argument("file", type=Path, help="the CSV file; - reads standard input")
    parser.add_argument(
        "--capacity", type=int, metavar="N", help="capacity in bytes: search longer, and stop at a plan that fits"
    )
    parser.add_argument(
        "--alignment", type=int, default=1, metavar="N", help="alignment of buffers without one (default: 1)"
    )
    parser.add_argument("--planner", choices=list(PLANNERS), default="best", help="planner (default: best)")
    parser.add_argument(
        "--output", choices=["text", "json"], default="text", help="format of the output (default: text)"
    )
    return parser


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _document(problem: Problem, plan: Plan, seconds: float) -> dict[str, object]:
    return {
        "size": plan.size,
        "lower_bound": plan.lower_bound,
        "optimal": plan.optimal,
        "seconds": round(seconds, 6),
        "offsets": {buffer.name: offset for buffer, offset in zip(problem.buffers, plan.offsets, strict=True)},
    }


def _sentence(problem: Problem, plan: Plan, seconds: float) -> str:
    gap = plan.size - plan.lower_bound
    said = "optimal" if plan.optimal else f"lower bound {plan.lower_bound:,}, gap {gap:,}"
    fits = ""
    if problem.capacity is not None:
        over = plan.size - problem.capacity
        fits = f"; exceeds the capacity by {over:,}" if over > 0 else "; fits the capacity"
    return f"{len(problem.buffers):,} buffers: {plan.size:,} bytes, {said}{fits}; {seconds:.3f} s"


if __name__ == "__main__":
    sys.exit(main())
