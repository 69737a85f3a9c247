"""Results of a validation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "content", "size", "kind", "number", "overlap", "extent", "state", "instruction", "control flow", "caller's memory",
    "clobbered", "never written", "unwritten",
]  # fmt: skip
"""Kind of violation.

* ``content``, ``size``, ``kind``, ``number``: an operand, output or state has a different content, size, type or
  number than before the link.
* ``overlap``: an operand overlaps an output.
* ``extent``: a tensor extends outside its buffer.
* ``state``: a method does not preserve state.
* ``instruction``: an instruction is missing, new or different.
* ``control flow``: the programs take different paths.
* ``caller's memory``: an output is not in the memory that the caller provides for that output.

These kinds occur only in the validation of a single file:

* ``clobbered``: an instruction reads a value after another value was written to the same bytes.
* ``never written``: an instruction reads bytes that no instruction writes.
* ``unwritten``: an instruction reads a value that no instruction writes, from the bytes of other values.
"""


@dataclass(frozen=True, slots=True)
class Violation:
    """A difference between a linked program and its original, or an error in a single program."""

    kind: Kind
    method: str
    """Name of the method; empty if the violation concerns the whole program."""
    message: str
    """Sentence that describes the violation."""
    before: int | None = None
    """Position of the instruction in the program before the link."""
    after: int | None = None
    """Position of the instruction in the program after the link."""
    operator: str | None = None
    value: int | None = None
    """Index of the wrong value in the program after the link."""
    buffer: int | None = None
    """Buffer (``memory_id``) that contains the value."""
    start: int | None = None
    """First wrong byte in the buffer."""
    end: int | None = None
    """End of the wrong bytes (exclusive)."""
    expected: str | None = None
    """Description of the expected content."""
    found: str | None = None
    """Description of the actual content, or of the instruction that wrote this content."""


@dataclass(frozen=True, slots=True)
class NotValidated:
    """A method that was not validated, and the reason."""

    method: str
    reason: str


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """Violations and statistics of a validation."""

    violations: tuple[Violation, ...]
    not_validated: tuple[NotValidated, ...]
    instructions: int
    """Number of instructions in the validated methods, after the link."""
    reads: int
    """Number of operands, outputs and pieces of state that were compared."""
    never_written: tuple[Violation, ...] = ()
    """Reads of bytes that have no initial value and that no instruction writes. Empty if two programs were
    compared.

    ExecuTorch 1.4.1 and 1.5.1 emit such reads for views of a ``cond``'s result.
    """
    overlapping: tuple[Violation, ...] = ()
    """Instructions that may overwrite an operand before they have read it. Filled only for a single file.

    The results are correct if the kernels of these instructions allow the overlap.
    """

    unwritten: tuple[Violation, ...] = ()
    """Values that are probably read before they are written. Filled only for a single file.

    A valid file may contain such reads.
    """

    @property
    def proved(self) -> bool:
        """Return whether every method is proved to compute the same as before the link."""
        return not self.violations and not self.not_validated
