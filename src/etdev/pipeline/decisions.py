"""What a link decided, counted: copies by their kind, outputs that were laid over an operand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from etdev.decisions import Elision, ElisionKind, InPlace

KINDS: tuple[ElisionKind, ...] = get_args(ElisionKind)
"""In the order in which they are reported."""


@dataclass(frozen=True, slots=True)
class CopiesOfKind:
    """The copies of one kind that a link considered removing."""

    kind: ElisionKind
    removed: int
    """Those that are no more, and those of which only a part is still copied."""
    removed_bytes: int
    """What one pass over the instructions copies no more, of the largest sizes."""
    kept: int
    kept_bytes: int
    """What one pass copies all the same, of the largest sizes; not what is left of those that are removed in part."""
    reasons: dict[str, int]
    """Why copies stayed → how many, the most frequent first."""
    partly: dict[str, int]
    """Why a part stayed of what is removed → how many, the most frequent first."""

    @property
    def considered(self) -> int:
        """How many there were."""
        return self.removed + self.kept


@dataclass(frozen=True, slots=True)
class InPlaceOutputs:
    """The outputs that a link considered writing over an operand."""

    taken: int = 0
    """Those that lie over one."""
    taken_bytes: int = 0
    """What these need no memory of their own for, of the largest sizes; it counts whatever else is in use."""
    refused: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Why outputs have memory of their own → how many, the most frequent first."""

    @property
    def considered(self) -> int:
        """How many there were."""
        return self.taken + self.refused


def count_copies(elisions: Iterable[Elision]) -> tuple[CopiesOfKind, ...]:
    """What was decided about copies, for each kind of which there were any."""
    elisions = tuple(elisions)
    kinds = {item.kind for item in elisions}
    return tuple(_of_kind(kind, [item for item in elisions if item.kind == kind]) for kind in KINDS if kind in kinds)


def _of_kind(kind: ElisionKind, elisions: Sequence[Elision]) -> CopiesOfKind:
    kept = [item for item in elisions if item.action == "kept"]
    removed = [item for item in elisions if item.action != "kept"]
    return CopiesOfKind(
        kind=kind,
        removed=len(removed),
        removed_bytes=sum(item.nbytes for item in removed),
        kept=len(kept),
        kept_bytes=sum(item.nbytes for item in kept),
        reasons=_counted(item.reason for item in kept),
        partly=_counted(item.reason for item in removed if item.reason),
    )


def count_inplace(decisions: Iterable[InPlace]) -> InPlaceOutputs:
    """What was decided about outputs."""
    decisions = tuple(decisions)
    taken = [item for item in decisions if item.argument is not None]
    return InPlaceOutputs(
        taken=len(taken),
        taken_bytes=sum(item.nbytes for item in taken),
        refused=len(decisions) - len(taken),
        reasons=_counted(item.reason for item in decisions if item.argument is None),
    )


def _counted(reasons: Iterable[str]) -> dict[str, int]:
    return dict(Counter(reasons).most_common())
