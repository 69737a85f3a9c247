"""What a validation answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "content", "size", "kind", "number", "overlap", "extent", "state", "instruction", "control flow", "caller's memory",
    "clobbered", "never written", "unwritten",
]  # fmt: skip
"""What is wrong: an operand, output or state holds something else; it has another size, or type; a number is another
one; an operand lies over an output; a tensor reaches out of its buffer; state is not kept; an instruction is missing,
new or another one; the programs go different ways; an output is not where the caller looks for it. Of a single file:
a value is read after another was written over it; bytes are read that nothing writes; a value is read that only others
have left there."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that a program does otherwise than the one it came from, or that no program may do."""

    kind: Kind
    method: str
    """Empty if it is about the program as a whole."""
    message: str
    """A sentence."""
    before: int | None = None
    """Position of the instruction in the program before the link."""
    after: int | None = None
    """Position in the program after it."""
    operator: str | None = None
    value: int | None = None
    """Index of the value that is wrong, in the program after the link."""
    buffer: int | None = None
    """Where it lies: ``memory_id``."""
    start: int | None = None
    """First byte that is wrong, in that buffer."""
    end: int | None = None
    """Behind the last one."""
    expected: str | None = None
    """Who should have written it."""
    found: str | None = None
    """Who has."""


@dataclass(frozen=True, slots=True)
class NotValidated:
    """A method of which nothing is proved."""

    method: str
    reason: str


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What was compared, and what came out."""

    violations: tuple[Violation, ...]
    not_validated: tuple[NotValidated, ...]
    instructions: int
    """Of the program after the link, in the methods that were validated."""
    reads: int
    """Operands, outputs and pieces of state that were compared."""
    never_written: tuple[Violation, ...] = ()
    """Of a single file: reads of bytes that nothing writes and that have no initial value. ExecuTorch 1.4.1 makes some
    of the views of a ``cond``'s result."""
    overlapping: tuple[Violation, ...] = ()
    """Of a single file: operators that write over an operand that they still read, as far as is known. What they
    compute depends on their kernels."""

    unwritten: tuple[Violation, ...] = ()
    """Of a single file: values that are probably read without having been written. A valid file may look like this."""

    @property
    def proved(self) -> bool:
        """Does every method do what it did?"""
        return not self.violations and not self.not_validated
