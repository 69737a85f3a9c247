"""Check *bytes*: read the written files back with the strict reader, and look for missing data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from etdev.errors import ProgramError
from etdev.pipeline.results.result import CheckResult
from etdev.program import Program, flat_tensor
from etdev.program.data_files.joined import read_joined
from etdev.program.data_files.lookups import delegate_lookups, missing_data
from etdev.program.devices import named_devices

_LISTED = 20
"""Maximum number of missing names listed."""


def check_bytes(
    path: Path, data: Sequence[Path] = (), lookups: Mapping[str, Collection[str]] | None = None
) -> tuple[CheckResult, Program | None]:
    """Read the file back with its ``data`` files; return its program, or None if a file cannot be read.

    One of the files must hold each item of data that the program needs. ``lookups`` are names, per method, that its
    delegates are known to look up.
    """
    try:
        found = read_joined(path, data)
        held = {item.key for file in data for item in flat_tensor.read(file).named_data}
    except ProgramError as error:
        which = "the file is malformed" if error.where == str(path) else f"its external data {error.where}"
        problem = f"{which}: {error.message}"
        return CheckResult(name="bytes", status="failed", summary=problem, problems=(problem,), hint=error.hint), None
    missing = tuple(map(str, missing_data(found, held, lookups)))
    if missing:
        more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        check = CheckResult(
            name="bytes",
            status="failed",
            summary=f"{missing[0]}{more}",
            problems=missing[:_LISTED],
            hint="say which files have it, with a `--data FILE.ptd` for each",
        )
        return check, found
    summary = f"{_count(len(found.execution_plan), 'method')}, {_count(_instructions(found), 'instruction')} read back"
    if data:
        summary += ", with its external data"
    if unknown := _unknown_lookups(found, lookups or {}):
        summary += f"; the data that delegates of {', '.join(unknown)} look up is not known"
    if found.unknown_fields:
        summary += f"; fields that this version does not know: {', '.join(found.unknown_fields)}"
    devices = tuple(map(str, named_devices(found)))
    return CheckResult(name="bytes", status="passed", summary=summary, devices=devices), found


def _unknown_lookups(found: Program, lookups: Mapping[str, Collection[str]]) -> list[str]:
    """Return the ids of delegates whose lookups neither their blobs nor ``lookups`` tell."""
    plans = [plan for plan in found.execution_plan if plan.name not in lookups]
    return sorted({one.id for plan in plans for one in plan.delegates if delegate_lookups(found, one) is None})


def _instructions(found: Program) -> int:
    return sum(len(chain.instructions) for plan in found.execution_plan for chain in plan.chains)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
