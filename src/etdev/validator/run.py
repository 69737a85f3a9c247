"""What the parts of one execution of a method share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from etdev.validator.agree import Agreement
from etdev.validator.explain import Explainer
from etdev.validator.facts import Facts
from etdev.validator.machine import Machine
from etdev.validator.report import Violation
from etdev.validator.symbols import OTHER, Symbols

_MOST_VIOLATIONS = 20
"""Of one method; what is wrong once is often wrong again."""


InPlace: TypeAlias = Mapping[str, Collection[tuple[int, int]]]
"""Operator → ``(argument, output)``: operands over which it may write, as was tried, besides those that are known."""


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
    """Operands, outputs and pieces of state that were compared."""
    in_loop: bool = False
    """Whether what is executed may run more than once."""
    in_body: bool = False
    """Whether what is executed lies between the head of a loop and the jump back to it."""
    unlike: set[int] = field(default_factory=set)
    """Numbers and tensors, after the link, of which the next call finds other values, or sizes, than before it."""

    def report(self, violation: Violation) -> None:
        """Enter something that is wrong."""
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(violation)

    def no_rows(self, position: int) -> int:
        """What lies where an instruction puts rows together, before the first row is there. ``position``: before the
        link."""
        return self.symbols.number((OTHER, "no rows yet", position))


def form(facts: Facts, value: int) -> object:
    """What a value is, whatever it holds."""
    tensor = facts.tensors.get(value)
    if tensor is None:
        return type(facts.plan.values[value])
    return tensor.kind, tensor.sizes, tensor.dynamic
