"""Decisions that a link makes about copies, tiling and in-place outputs, with their reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ElisionKind: TypeAlias = Literal["views", "slices", "cat", "write_back", "constants"]
"""Kind of data movement that a copy instruction does.

``views``: another shape. ``slices``: a part of a tensor. ``cat``: several tensors joined into one. ``write_back``: new
content for a buffer. ``constants``: reordered or cut elements of a constant.
"""
ALL_ELISIONS: frozenset[ElisionKind] = frozenset({"views", "slices", "cat", "write_back", "constants"})

Action: TypeAlias = Literal["alias", "constant", "view", "same value", "placed", "kept"]
"""Decision about a copy.

``alias``: output and input have the same bytes. ``constant``: the output is a constant in the file. ``view``: the
output becomes a view of the input at run time. ``same value``: readers of the output read the input instead.
``placed``: the inputs are computed directly in the bytes of the output. ``kept``: the copy stays.
"""


@dataclass(frozen=True, slots=True)
class Elision:
    """A copy that a link considered for removal."""

    instruction: int
    """Position in the program before the link."""
    operator: str
    action: Action
    nbytes: int
    """Bytes that the copy no longer moves, or still moves if it is kept. For dynamic sizes, the maximum."""
    reason: str = ""
    """Reason why the copy, or a part of it, was kept."""
    kind: ElisionKind = "views"


@dataclass(frozen=True, slots=True)
class TilingDecision:
    """Decision whether to compute ops of a method tile by tile, which saves memory and enlarges the file."""

    tiled: bool
    memory_saved: int | None = None
    """Bytes of planned memory that tiling saves; None if not measured."""
    file_growth: int | None = None
    """Bytes that tiling adds to the file; None if not measured."""
    reason: str = ""
    """Reason for the decision; empty if the two numbers explain it."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """An output that a link considered for computation in place."""

    instruction: int
    """Position in the program before the link."""
    operator: str
    output: int
    """Index among the operator's outputs, from 0."""
    argument: int | None
    """Position of the operand whose bytes the output reuses; None if the output has bytes of its own."""
    nbytes: int
    """Bytes of the output. For dynamic sizes, the maximum."""
    reason: str = ""
    """Reason why the output has bytes of its own."""
