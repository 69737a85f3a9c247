"""State shared by the parts of one execution of a method."""

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
"""Limit on violations of one method; one mistake often causes many."""


InPlace: TypeAlias = Mapping[str, Collection[tuple[int, int]]]
"""Operator → ``(argument, output)`` over which it may write according to trials, in addition to the known ones."""


@dataclass(slots=True)
class Run:
    """Both methods, executed side by side."""

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
    """True if the current code may run more than once."""
    in_body: bool = False
    """True if the current code is between the head of a loop and the jump back to it."""
    unlike: set[int] = field(default_factory=set)
    """Values after the link whose number or sizes the next call finds different from those before the link."""

    def report(self, violation: Violation) -> None:
        """Add a violation, up to the limit."""
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(violation)

    def no_rows(self, position: int) -> int:
        """Return the symbol for the place where an instruction appends rows, before the first row.

        ``position``: that of the instruction before the link.
        """
        return self.symbols.number((OTHER, "no rows yet", position))


def form(facts: Facts, value: int) -> object:
    """Return the type and sizes of a value, independent of its content."""
    tensor = facts.tensors.get(value)
    if tensor is None:
        return type(facts.plan.values[value])
    return tensor.kind, tensor.sizes, tensor.dynamic
