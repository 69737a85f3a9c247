"""Rung *budget*: do the file, the memory of each device and what is copied stay within the config's limits?"""

from __future__ import annotations

from etdev.pipeline.project import Project
from etdev.pipeline.result import RungResult
from etdev.pipeline.transfers import copies_per_call
from etdev.program import Program
from etdev.program.footprint import planned_memory
from etdev.units import format_size


def check_budget(project: Project, target: str, size: int, program: Program | None) -> RungResult:
    """Compare the file's ``size``, the planned memory per device and the bytes copied per call with the limits.

    ``program`` is None for a file that cannot be read.
    """
    budget = project.config.targets[target].budget
    limits: list[tuple[str, tuple[str, ...], int, int]] = []
    if budget.file is not None:
        limits.append(("file", ("file",), budget.file, size))
    if program is not None:
        memory = planned_memory(program)
        for device, limit in budget.memory.items():
            limits.append((f"memory of {device}", ("memory", device), limit, memory.get(device, 0)))
        if budget.copies is not None:
            for plan in program.execution_plan:
                copied = copies_per_call(plan).total
                limits.append((f"copies in a call of {plan.name!r}", ("copies",), budget.copies, copied))
    if not limits:
        nothing = budget.copies is None and not budget.memory
        reason = "the config sets no budget" if nothing else "the rung `bytes` failed"
        return RungResult(rung="budget", status="not run", summary=reason)
    problems, places = [], []
    for name, key, limit, found in limits:
        if found > limit:
            setting = ".".join(("budget", *key))
            problems.append(f"{name}: {found:,} bytes, {found - limit:,} more than {setting} ({limit:,})")
            places.append(key)
    if not problems:
        seen = ", ".join(f"{name} {format_size(found)} of {format_size(limit)}" for name, _, limit, found in limits)
        return RungResult(rung="budget", status="passed", summary=seen)
    return RungResult(
        rung="budget",
        status="failed",
        gate=True,
        summary=problems[0],
        problems=tuple(problems),
        where=project.where("targets", target, "budget", *places[0]),
        hint=_hint(project, target, places[0]),
    )


def _hint(project: Project, target: str, key: tuple[str, ...]) -> str:
    settings = project.config.targets[target]
    if key[0] == "file":
        return f"{'' if settings.quantize else 'quantize the model, or '}raise budget.file"
    if key[0] == "copies":
        return "let a delegate take the ops between two others, keep inputs and outputs on the device (io), or raise it"
    planner = "" if settings.memory.planner == "best" else 'use memory.planner = "best", '
    return f"{planner}make the largest inputs smaller (the max of dims), or raise budget.memory"
