"""Counts of a link's decisions on copies, for each kind of copy, and on outputs in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from etdev.decisions import Elision, ElisionKind, InPlace

KINDS: tuple[ElisionKind, ...] = get_args(ElisionKind)
"""Kinds of copies, in the order of reports."""


@dataclass(frozen=True, slots=True)
class CopiesOfKind:
    """Counts of a link's decisions on the copies of one kind."""

    kind: ElisionKind
    removed: int
    """Number of copies removed, fully or in part."""
    removed_bytes: int
    """Bytes that are no longer copied when each instruction runs once, at the largest sizes."""
    kept: int
    kept_bytes: int
    """Total bytes of the kept copies when each instruction runs once, at the largest sizes.

    Copies that were removed in part are not included.
    """
    reasons: dict[str, int]
    """Number of kept copies, by reason. The most frequent reason is first."""
    partly: dict[str, int]
    """Number of copies removed only in part, by the reason for keeping the rest. The most frequent reason is first."""

    @property
    def considered(self) -> int:
        """Number of removed and kept copies."""
        return self.removed + self.kept


@dataclass(frozen=True, slots=True)
class InPlaceOutputs:
    """Counts of a link's decisions on outputs in place."""

    taken: int = 0
    """Number of outputs that are written over an operand."""
    taken_bytes: int = 0
    """Bytes of the outputs in place, at the largest sizes. The reduction of the peak may be smaller."""
    refused: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Number of outputs that are not written over an operand, by reason. The most frequent reason is first."""

    @property
    def considered(self) -> int:
        """Number of outputs that the linker decided on."""
        return self.taken + self.refused


def count_copies(elisions: Iterable[Elision]) -> tuple[CopiesOfKind, ...]:
    """Count the decisions on copies, for each kind that occurs."""
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
    """Count the decisions on outputs that may be written over an operand."""
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
