"""Checks of indices and names in a program: each index refers to an item, and no name is empty."""

from __future__ import annotations

from collections.abc import Sequence

from etdev.program import model as m
from etdev.program.flaw import FlawError


def check_index(index: int, into: Sequence[object], what: str, *path: str) -> None:
    """Raise :class:`FlawError` if no item of ``into`` has this index."""
    if not 0 <= index < len(into):
        raise FlawError(f"{index} is not an index into the {len(into)} {what}", *path)


def check_value_indices(indices: tuple[int, ...], plan: m.ExecutionPlan, *path: str) -> None:
    """Raise :class:`FlawError` for the first index that does not belong to a value of the method."""
    if indices and (min(indices) < 0 or max(indices) >= len(plan.values)):
        for number, index in enumerate(indices):
            check_index(index, plan.values, "values", *path, f"[{number}]")


def check_name(name: str, *path: str, may_be_empty: bool = False) -> None:
    """Raise :class:`FlawError` for a name that the runtime cannot look up."""
    if not name and not may_be_empty:
        raise FlawError("a name is empty", *path)
    if "\0" in name:
        raise FlawError(f"the name {name!r} contains a zero byte, and the runtime would end the name there", *path)
