"""Check *budget*: compares a file's figures with the config's limits.

The figures are the file's size, its weights, the memory on each device, copied bytes and the share of delegated ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from etdev.devices import HOST
from etdev.inspection.breakdown import (
    Parts,
    bank_parts,
    copy_parts,
    memory_parts,
    section_parts,
    undelegated_parts,
    weight_parts,
)
from etdev.inspection.transfers import transfers_per_call
from etdev.pipeline.project import Project
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.results.result_parts import MemoryOutside, ram_parts
from etdev.pipeline.stages.link.nested import device_memory
from etdev.program import Program
from etdev.program.analysis.runtime_objects import runtime_objects
from etdev.units import format_share, format_size
from etdev.verification.advice import advise
from etdev.verification.check import Check, Need
from etdev.verification.limits import Limit, Measured, Unjudged, judge
from etdev.verification.subject import Subject


class BudgetCheck(Check):
    """Are the file's figures within the config's limits?"""

    name = "budget"
    needs = (Need.CONFIG,)

    def run(self, subject: Subject) -> CheckResult:
        """Check each limit; if the program cannot be read, check only the limit on the file's size."""
        built = subject.built
        return check_budget(built.project, built.target, built.measured(subject.found), lambda: subject.outside)


def check_budget(
    project: Project, target: str, measured: Measured, outside: Callable[[], tuple[MemoryOutside, ...] | str]
) -> CheckResult:
    """Compare a file with each limit of ``[targets.X.budget]``, except the limits on growth and latency.

    ``outside`` returns the memory of each method outside of its planned buffers. If this memory cannot be measured,
    ``outside`` returns the reason. ``outside`` is called only if the config sets the limit ``ram``.
    """
    limits, unjudged = _Limits(project, target, measured), []
    budget = limits.budget
    found = [*limits.of_file()]
    if measured.program is not None:
        found += limits.of_program(measured.program)
        if budget.ram is not None:
            ram = limits.of_ram(measured.program, outside(), budget.ram)
            least = limits.of_least_ram(measured.program, budget.ram) if isinstance(ram, str) else ram
            if isinstance(ram, Limit) or least.missed is not None:
                found.append(least)
            else:
                unjudged.append(Unjudged(("budget", "ram"), f"{ram}; known: {least.seen}"))
        if budget.delegated is not None and measured.methods:
            found.append(limits.of_delegation(measured.program, budget.delegated))
        elif budget.delegated is not None:
            reason = "neither the file nor a report.json of its build states the number of delegated ops"
            unjudged.append(Unjudged(("budget", "delegated"), reason))
    else:
        asked = {name: getattr(budget, name) for name in ("weights", "memory", "ram", "copies", "delegated")}
        unread = (name for name, limit in asked.items() if limit not in (None, {}))
        unjudged += [Unjudged(("budget", name), "the check `bytes` failed") for name in unread]
    for judged in limits.of_scratch():
        found += [judged] if isinstance(judged, Limit) else []
        unjudged += [judged] if isinstance(judged, Unjudged) else []
    return judge("budget", project, target, found, unjudged)


class _Limits:
    """The limits of one target, each paired with the value that was measured for the built file."""

    def __init__(self, project: Project, target: str, measured: Measured) -> None:
        self._project, self._target, self._measured = project, target, measured
        self.budget = project.config.targets[target].budget

    def of_file(self) -> Iterator[Limit]:
        found = self._measured
        if self.budget.file is not None:
            parts = None if found.program is None else partial(section_parts, found.path)
            yield self._bytes("file", found.size, self.budget.file, parts, "file")

    def of_program(self, program: Program) -> Iterator[Limit]:
        figures, budget = self._measured.figures(program), self.budget
        if budget.weights is not None:
            parts = partial(weight_parts, program, pooled=self._measured.pooled)
            yield self._bytes("weights", figures.weights, budget.weights, parts, "weights")
        inside = device_memory(program) if budget.memory else {}
        numbers, notes = {name: index for index, name in self._measured.banks.items()}, self._measured.notes
        for device, limit in budget.memory.items():
            if device in numbers:
                found, parts = (figures.banks or {})[device], partial(bank_parts, program, numbers[device], notes)
                yield self._bytes(f"memory of bank {device}", found, limit, parts, "memory", device)
                continue
            _, nested = inside.get(device, (0, 0))
            name = f"memory of {device}" + (f", including {format_size(nested)} in delegates" if nested else "")
            parts = partial(memory_parts, program, device, notes)
            yield self._bytes(name, figures.memory.get(device, 0), limit, parts, "memory", device)
        for plan in program.execution_plan if budget.copies is not None else ():
            name, copied = f"copies in a call of {plan.name!r}", transfers_per_call(plan).total
            yield self._bytes(name, copied, budget.copies or 0, partial(copy_parts, plan), "copies")

    def of_ram(self, program: Program, outside: tuple[MemoryOutside, ...] | str, limit: int) -> Limit | str:
        """Return the limit of the RAM on the host, or the reason why a part of it is unknown."""
        if isinstance(outside, str):
            return outside
        parts = ram_parts(self._measured.figures(program).memory.get(str(HOST), 0), outside)
        if parts is None:
            return "heap memory is counted only with glibc"
        return self._bytes("ram", sum(parts.values()), limit, lambda: Parts(tuple(parts.items())), "ram")

    def of_least_ram(self, program: Program, limit: int) -> Limit:
        """Return the limit of the RAM for a program that cannot run here, with the parts that are known without a run.

        These are the planned memory, the runtime's objects on a part with 32 bits, and the scratch memory of delegates.
        """
        scratch = self._measured.delegate_sizes("scratch")
        parts = {
            "planned memory": self._measured.figures(program).memory.get(str(HOST), 0),
            "objects of the runtime": sum(runtime_objects(plan, 4) for plan in program.execution_plan),
            "scratch memory": 0 if isinstance(scratch, str) else max(scratch.values(), default=0),
        }
        known = Parts(tuple((name, size) for name, size in parts.items() if size))
        total = sum(parts.values())
        judged = self._bytes("ram", total, limit, lambda: known, "ram", at_least=True)
        seen = f"at least {total:,} bytes ({known.largest()})"
        return replace(judged, seen=seen, remedy="reduce the largest part, or raise budget.ram")

    def of_scratch(self) -> Iterator[Limit | Unjudged]:
        """Compare the largest ``scratch`` and ``fast_scratch`` of the file's delegates with the limits."""
        for key, limit in (("scratch", self.budget.scratch), ("fast_scratch", self.budget.fast_scratch)):
            if limit is not None:
                sizes = self._measured.delegate_sizes(key)
                if isinstance(sizes, str):
                    yield Unjudged(("budget", key), sizes)
                    continue
                name, found = key.replace("_", " "), max(sizes.values(), default=0)
                judged = self._bytes(name, found, limit, partial(Parts, tuple(sizes.items())), key)
                seen = judged.seen if sizes else f"{name}: no delegate of the file states that it needs this memory"
                yield replace(judged, seen=seen)

    def of_delegation(self, program: Program, least: float) -> Limit:
        figures, methods = self._measured.figures(program), self._measured.methods
        taken, left = figures.delegated_ops or 0, figures.undelegated_ops or 0
        share = 1.0 if figures.delegated is None else figures.delegated  # Without ops, the share counts as 1.
        seen = f"{taken:,} of {taken + left:,} ops delegated"
        lacking = f"{seen}: {format_share(share)}, less than budget.delegated ({format_share(least)})"
        return Limit(
            ("budget", "delegated"),
            f"{seen} (at least {format_share(least)})",
            lacking if share < least else None,
            lambda: f"on the runtime's own kernels: {undelegated_parts(methods).largest()}",
            "add a backend that takes these ops (partitioners), or lower budget.delegated",
        )

    def _bytes(
        self, name: str, found: int, limit: int, parts: Callable[[], Parts] | None, *key: str, at_least: bool = False
    ) -> Limit:
        setting = ".".join(("budget", *key))
        figure = f"at least {found:,}" if at_least else f"{found:,}"
        return Limit(
            ("budget", *key),
            f"{name} {format_size(found)} of {format_size(limit)}",
            f"{name}: {figure} bytes, {found - limit:,} more than {setting} ({limit:,})" if found > limit else None,
            (lambda: parts().largest()) if parts is not None else None,
            advise(self._project, self._target, self._measured, f"budget.{key[0]}", *key),
        )
