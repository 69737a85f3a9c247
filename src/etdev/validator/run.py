"""Data shared by all classes that execute a method."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from etdev.validator.agree import Agreement
from etdev.validator.domain.symbols import OTHER, Symbols
from etdev.validator.explain import Explainer
from etdev.validator.facts import Facts
from etdev.validator.machine import Machine
from etdev.validator.report import Violation

_MOST_VIOLATIONS = 20
"""Maximum number of violations per method. One mistake often causes many."""


InPlace: TypeAlias = Mapping[str, Collection[tuple[int, int]]]
"""Maps an operator to pairs ``(argument, output)``. Trials showed that its kernel allows each pair to overlap."""


@dataclass(slots=True)
class Run:
    """One run of the same method in both programs, side by side."""

    symbols: Symbols
    facts: tuple[Facts, Facts]
    machine: Machine
    agreement: Agreement
    explain: Explainer
    in_place: InPlace = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    reads: int = 0
    """Number of operands, outputs and pieces of state that were compared."""
    in_loop: bool = False
    """True if the current instruction may run several times in a call."""
    in_body: bool = False
    """True if the current instruction is in the body of a loop, as listed in ``Layout.bodies``."""
    unlike: set[int] = field(default_factory=set)
    """Values of the linked program whose number or sizes differ between the programs when the next call begins."""

    def report(self, violation: Violation) -> None:
        """Record a violation, unless the limit is reached."""
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(violation)

    def no_rows(self, position: int) -> int:
        """Return the symbol for the content of a tensor before an instruction appends the first row.

        ``position`` is the position of that instruction before the link.
        """
        return self.symbols.number((OTHER, "no rows yet", position))


def form(facts: Facts, value: int) -> object:
    """Return the type of a value. For a tensor, also return its sizes and whether they are dynamic."""
    tensor = facts.tensors.get(value)
    if tensor is None:
        return type(facts.plan.values[value])
    return tensor.kind, tensor.sizes, tensor.dynamic
