"""Rung *bytes*: does the strict reader accept every table, index, extent and segment of the written file?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etdev.errors import ProgramError
from etdev.pipeline.result import RungResult
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.program.joined import read_joined


@dataclass(frozen=True)
class Requirements:
    """What a file asks the runtime for, per method."""

    operators: Mapping[str, frozenset[str]]
    """``aten::add.out``."""
    delegates: Mapping[str, frozenset[str]]
    """``XnnpackBackend``."""


def check_bytes(path: Path, data: Sequence[Path] = ()) -> tuple[RungResult, Program | None]:
    """Read the file back with its ``data`` files; return the program in it, or None if a file cannot be read."""
    try:
        found = read_joined(path, data)
    except ProgramError as error:
        which = "the file is malformed" if error.where == str(path) else f"its external data {error.where}"
        problem = f"{which}: {error.message}"
        return RungResult(rung="bytes", status="failed", summary=problem, problems=(problem,), hint=error.hint), None
    summary = f"{_count(len(found.execution_plan), 'method')}, {_count(_instructions(found), 'instruction')} read back"
    if data:
        summary += ", with its external data"
    if found.unknown_fields:
        summary += f"; fields that this version does not know: {', '.join(found.unknown_fields)}"
    devices = tuple(map(str, named_devices(found)))
    return RungResult(rung="bytes", status="passed", summary=summary, devices=devices), found


def requirements(found: Program) -> Requirements:
    """Operators and delegates that the methods of a program name."""
    return Requirements(
        operators={
            plan.name: frozenset(f"{op.name}.{op.overload}" if op.overload else op.name for op in plan.operators)
            for plan in found.execution_plan
        },
        delegates={plan.name: frozenset(item.id for item in plan.delegates) for plan in found.execution_plan},
    )


def _instructions(found: Program) -> int:
    return sum(len(chain.instructions) for plan in found.execution_plan for chain in plan.chains)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
