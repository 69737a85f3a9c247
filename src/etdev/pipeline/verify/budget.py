"""Rung *budget*: do the file, the memory of each device and what is copied stay within the config's limits?"""

from __future__ import annotations

from collections.abc import Sequence

from etdev.devices import parse_device
from etdev.pipeline.nested import device_memory
from etdev.pipeline.project import Project
from etdev.pipeline.result import RungResult
from etdev.pipeline.transfers import copies_per_call
from etdev.program import Program
from etdev.program import model as m
from etdev.program.devices import D2H_COPY, H2D_COPY
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
        memory = device_memory(program) if budget.memory else {}
        for device, limit in budget.memory.items():
            planned, nested = memory.get(device, (0, 0))
            inside = f", {format_size(nested)} of it in delegates" if nested else ""
            limits.append((f"memory of {device}{inside}", ("memory", device), limit, planned + nested))
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
        where="; ".join(dict.fromkeys(project.where("targets", target, "budget", *place) for place in places)),
        hint=_hints(project, target, places, program),
    )


def _hints(project: Project, target: str, keys: Sequence[tuple[str, ...]], program: Program | None) -> str:
    """What helps against each kind of limit that was missed."""
    found = dict.fromkeys(_remedy(project, target, key, program) for key in keys)
    return "; ".join(found)


def _remedy(project: Project, target: str, key: tuple[str, ...], program: Program | None) -> str:
    settings = project.config.targets[target]
    if key[0] == "file":
        return f"{'' if settings.quantize else 'quantize the model, or '}raise budget.file"
    if key[0] == "copies":
        at_ends = "leave inputs and outputs on their device (io), " if program and _copies_ends(program) else ""
        return f"{at_ends}let a delegate take the ops between two others, or raise budget.copies"
    planner = "" if settings.memory.planner == "best" else 'use memory.planner = "best", '
    inputs = "the max of dims" if _has_dynamic_dims(project) else "their shapes"
    device = "" if parse_device(key[1]).is_host else "move a part of the model to another device, "
    return f"{planner}{device}make the largest inputs smaller ({inputs}), or raise budget.memory"


def _copies_ends(program: Program) -> bool:
    """Whether a method copies one of its inputs to a device, or one of its outputs back."""
    return any(
        call.args[0] in plan.inputs if plan.operators[call.op_index].name == H2D_COPY else call.args[1] in plan.outputs
        for plan in program.execution_plan
        for chain in plan.chains
        for call in chain.instructions
        if isinstance(call, m.KernelCall) and plan.operators[call.op_index].name in (H2D_COPY, D2H_COPY)
    )


def _has_dynamic_dims(project: Project) -> bool:
    return any(dim.min != dim.max for method in project.config.methods.values() for dim in method.dims.values())
