"""What a link decided about copies and about outputs that could lie over an operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ElisionKind: TypeAlias = Literal["views", "slices", "cat", "write_back", "constants"]
"""What a copy is for: another shape, a part of a tensor, one tensor of several, the new content of a buffer, another
order of a constant's elements or a part of it."""
ALL_ELISIONS: frozenset[ElisionKind] = frozenset({"views", "slices", "cat", "write_back", "constants"})

Action: TypeAlias = Literal["alias", "constant", "view", "same value", "placed", "kept"]
"""What becomes of a copy: its output lies where its input does, is a constant, is pointed to its input at run time, or
is replaced by its input; its inputs are made where its output is; or the copy stays."""


@dataclass(frozen=True, slots=True)
class Elision:
    """A copy that a link considered removing."""

    instruction: int
    """Its position in the program before the link."""
    operator: str
    action: Action
    nbytes: int
    """Bytes that are copied no more, of the largest size; of a copy that was kept, those that it copies."""
    reason: str = ""
    """Why it was kept, or a part of it."""
    kind: ElisionKind = "views"


@dataclass(frozen=True, slots=True)
class TilingDecision:
    """Decision about doing ops of a method in pieces, one after the other, which takes less memory and more file."""

    tiled: bool
    memory_saved: int | None = None
    """Bytes of planned memory that tiling saves; None if it was not measured."""
    file_growth: int | None = None
    """Bytes that the file grows by for it; None if it was not measured."""
    reason: str = ""
    """Reason that the figures do not give."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """An output that a link considered writing over an operand."""

    instruction: int
    """Its position in the program before the link."""
    operator: str
    output: int
    """Which of the operator's outputs, from 0."""
    argument: int | None
    """Position of the operand whose bytes it takes over; None if it has bytes of its own."""
    nbytes: int
    """Of the output, of the largest size."""
    reason: str = ""
    """Why it has bytes of its own."""
