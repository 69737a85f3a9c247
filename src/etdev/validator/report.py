"""Results of a validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "content", "size", "kind", "number", "overlap", "extent", "state", "instruction", "control flow", "caller's memory",
    "clobbered", "never written", "unwritten",
]  # fmt: skip
"""Kind of violation.

* ``content``, ``size``, ``kind``, ``number``: an operand, output or state has another content, size, type or number.
* ``overlap``: an operand overlaps an output.
* ``extent``: a tensor reaches out of its buffer.
* ``state``: state is not kept.
* ``instruction``: an instruction is missing, new or different.
* ``control flow``: the programs take different paths.
* ``caller's memory``: an output is not in the memory that the caller brings for it.

Of a single file only:

* ``clobbered``: a value is read after another one was written over it.
* ``never written``: bytes are read that nothing writes.
* ``unwritten``: a value is read that no instruction writes, from bytes of other values.
"""


@dataclass(frozen=True, slots=True)
class Violation:
    """One difference between a program and its original, or one thing that no program may do."""

    kind: Kind
    method: str
    """Name of the method; empty if the violation concerns the whole program."""
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
    """Buffer of the value: ``memory_id``."""
    start: int | None = None
    """First byte that is wrong, in that buffer."""
    end: int | None = None
    """End of the bytes that are wrong, exclusive."""
    expected: str | None = None
    """Description of the content that should be read."""
    found: str | None = None
    """Description of the content that is read, or of the instruction that wrote it."""


@dataclass(frozen=True, slots=True)
class NotValidated:
    """Method of which nothing is proved."""

    method: str
    reason: str


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Violations and figures of a validation."""

    violations: tuple[Violation, ...]
    not_validated: tuple[NotValidated, ...]
    instructions: int
    """Number of instructions after the link, in the methods that were validated."""
    reads: int
    """Number of operands, outputs and pieces of state that were compared."""
    never_written: tuple[Violation, ...] = ()
    """Reads in a single file of bytes that nothing writes and that have no initial value.

    ExecuTorch 1.4.1 emits some for views of a ``cond``'s result.
    """
    overlapping: tuple[Violation, ...] = ()
    """Operators in a single file that write over an operand that they still read, as far as known.

    Their results depend on their kernels.
    """

    unwritten: tuple[Violation, ...] = ()
    """Values in a single file that are probably read without being written. A valid file may look like this."""

    @property
    def proved(self) -> bool:
        """True if every method computes what it computed before the link."""
        return not self.violations and not self.not_validated
