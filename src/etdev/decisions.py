"""Decisions of the link and of lowering, with their reasons.

The link decides about copies, in-place outputs and orders of instructions. Lowering decides about tiling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ElisionKind: TypeAlias = Literal["views", "slices", "cat", "write_back", "constants"]
"""Kind of data movement of a copy instruction.

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
    """Position of the copy in the program before the link."""
    operator: str
    action: Action
    nbytes: int
    """Number of bytes that the program no longer copies. For a kept copy, the number of bytes that it copies.

    For dynamic sizes, the maximum.
    """
    reason: str = ""
    """Reason why the link kept the copy or a part of the copy; empty if the link removed the whole copy."""
    kind: ElisionKind = "views"


@dataclass(frozen=True, slots=True)
class TilingDecision:
    """Decision whether to compute ops of a method tile by tile. Tiling saves memory and enlarges the file."""

    tiled: bool
    memory_saved: int | None = None
    """Number of bytes of planned memory that tiling saves, or None if not measured."""
    file_growth: int | None = None
    """Number of bytes that tiling adds to the file, or None if not measured."""
    reason: str = ""
    """Reason for the decision; empty if ``memory_saved`` and ``file_growth`` explain the decision."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """Decision whether an output reuses the bytes of an operand."""

    instruction: int
    """Position of the instruction in the program before the link."""
    operator: str
    output: int
    """Index of the output among the operator's outputs, from 0."""
    argument: int | None
    """Position of the operand whose bytes the output reuses, or None if the output has separate bytes."""
    nbytes: int
    """Size of the output in bytes. For dynamic sizes, the maximum."""
    reason: str = ""
    """Reason why the output has separate bytes; empty if the output reuses bytes."""


@dataclass(frozen=True, slots=True)
class Reordering:
    """New order of a method's instructions."""

    moved: int
    """Minimum number of instructions that must move to get from the original order to the new order."""
    memory: int | None
    """Bytes of planned memory that the method needs in its original order; None if they do not fit into the banks."""
