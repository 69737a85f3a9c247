"""Decisions of a link about copies, tiling and in-place outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ElisionKind: TypeAlias = Literal["views", "slices", "cat", "write_back", "constants"]
"""Purpose of a copy, in the order of the values.

Another shape, a part of a tensor, one tensor of several, the new content of a buffer, and another order or a part of a
constant's elements.
"""
ALL_ELISIONS: frozenset[ElisionKind] = frozenset({"views", "slices", "cat", "write_back", "constants"})

Action: TypeAlias = Literal["alias", "constant", "view", "same value", "placed", "kept"]
"""Decision about a copy.

``alias``: the output is stored where the input is. ``constant``: the output is a constant. ``view``: the output refers
to its input at run time. ``same value``: the input replaces the output. ``placed``: the inputs are computed in their
place in the output. ``kept``: the copy stays.
"""


@dataclass(frozen=True, slots=True)
class Elision:
    """A copy that a link considered for removal."""

    instruction: int
    """Position in the program before the link."""
    operator: str
    action: Action
    nbytes: int
    """Bytes that are no longer copied; of a kept copy, the bytes that it copies. At the largest dynamic sizes."""
    reason: str = ""
    """Reason why it was kept, or a part of it."""
    kind: ElisionKind = "views"


@dataclass(frozen=True, slots=True)
class TilingDecision:
    """Decision about computing ops of a method in pieces, which takes less memory and a larger file."""

    tiled: bool
    memory_saved: int | None = None
    """Bytes of planned memory that tiling saves; None if it was not measured."""
    file_growth: int | None = None
    """Bytes by which tiling grows the file; None if it was not measured."""
    reason: str = ""
    """Reason for the decision; empty if its numbers show the reason."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """An output that a link considered for computation in place."""

    instruction: int
    """Position in the program before the link."""
    operator: str
    output: int
    """Index among the operator's outputs, from 0."""
    argument: int | None
    """Position of the operand whose bytes it reuses; None if it has bytes of its own."""
    nbytes: int
    """Bytes of the output, at the largest dynamic sizes."""
    reason: str = ""
    """Reason why it has bytes of its own."""
