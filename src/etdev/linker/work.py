"""The state of a method between passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from etdev.decisions import Elision, InPlace
from etdev.devices import Device
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory, method_memory
from etdev.program.blob import Blob
from etdev.program.constants import Run


@dataclass(frozen=True, slots=True)
class Work:
    """A method, and the facts and decisions about it so far."""

    plan: m.ExecutionPlan
    memory: MethodMemory
    inputs: Mapping[int, int]
    """Position of each delegate call → number of its arguments that are inputs."""
    persistent: frozenset[int]
    moved: Mapping[int, int]
    """Position before the link → current position, for the instructions that are left."""
    elisions: tuple[Elision, ...] = ()
    inplace: tuple[InPlace, ...] = ()
    added: tuple[Blob | Run, ...] = ()
    """Data of constants that passes created. Their indices follow those of the program's constants."""
    grown: bool = False
    """Whether any of them needs space in the file in addition to the constant that it was made from."""
    neighbors: Mapping[int, int] = field(default_factory=dict)
    """Tensor that a pass added → original value that it replicates or is a part of, and is numbered next to."""
    ends: tuple[Mapping[int, Device], Mapping[int, Device]] = field(default_factory=lambda: ({}, {}))
    """Inputs and outputs that are on devices before the link, by position."""

    def starts(self) -> dict[int, int]:
        """Return a map from current positions to positions before the link, for instructions that existed then."""
        return {now: start for start, now in self.moved.items()}

    def with_plan(self, plan: m.ExecutionPlan, moved: Mapping[int, int] | None = None) -> Work:
        """Return the work with a pass's plan. ``moved`` maps positions before the pass to positions after it."""
        if plan == self.plan:
            return self
        work = self
        if moved is not None:
            inputs = {moved[position]: count for position, count in self.inputs.items()}
            positions = {start: moved[position] for start, position in self.moved.items() if position in moved}
            work = replace(work, inputs=inputs, moved=positions)
        return replace(work, plan=plan, memory=method_memory(plan, work.inputs, work.persistent))

    def after(self, plan: m.ExecutionPlan, moved: Mapping[int, int], elisions: Sequence[Elision]) -> Work:
        """Return the work after a pass that removes copies."""
        start = self.starts()
        found = (*self.elisions, *(replace(item, instruction=start[item.instruction]) for item in elisions))
        return replace(
            self.with_plan(plan, moved), elisions=tuple(sorted(found, key=lambda elision: elision.instruction))
        )
