"""A method on its way through the passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from etdev.decisions import Elision, InPlace
from etdev.devices import Device
from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.constants import Run
from etdev.program.storage import MethodMemory, method_memory


@dataclass(frozen=True, slots=True)
class Work:
    """A method, and what is known of it by now."""

    plan: m.ExecutionPlan
    memory: MethodMemory
    inputs: Mapping[int, int]
    """Position of each delegate call → how many of its arguments are inputs."""
    persistent: frozenset[int]
    moved: Mapping[int, int]
    """Positions of the instructions that are left: in the program before the link → by now."""
    elisions: tuple[Elision, ...] = ()
    inplace: tuple[InPlace, ...] = ()
    added: tuple[Blob | Run, ...] = ()
    """Data of constants that the passes made, whose indices follow those that the program has."""
    grown: bool = False
    """Whether any of them is there beside the constant that it was made of."""
    neighbors: Mapping[int, int] = field(default_factory=dict)
    """Tensor that a pass added → the original value that it is a replica or a part of, and is numbered next to."""
    ends: tuple[Mapping[int, Device], Mapping[int, Device]] = field(default_factory=lambda: ({}, {}))
    """Inputs and outputs that the program has on devices before the link, by position."""

    def starts(self) -> dict[int, int]:
        """Positions by now → in the program before the link, of the instructions that were there."""
        return {now: start for start, now in self.moved.items()}

    def with_plan(self, plan: m.ExecutionPlan, moved: Mapping[int, int] | None = None) -> Work:
        """After a pass: with what that made of the method, and of the positions of its instructions."""
        if plan == self.plan:
            return self
        work = self
        if moved is not None:
            inputs = {moved[position]: count for position, count in self.inputs.items()}
            positions = {start: moved[position] for start, position in self.moved.items() if position in moved}
            work = replace(work, inputs=inputs, moved=positions)
        return replace(work, plan=plan, memory=method_memory(plan, work.inputs, work.persistent))

    def after(self, plan: m.ExecutionPlan, moved: Mapping[int, int], elisions: Sequence[Elision]) -> Work:
        """After a pass that removes copies."""
        start = self.starts()
        found = (*self.elisions, *(replace(item, instruction=start[item.instruction]) for item in elisions))
        return replace(
            self.with_plan(plan, moved), elisions=tuple(sorted(found, key=lambda elision: elision.instruction))
        )
