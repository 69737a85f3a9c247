"""Bank sizes that would suffice for tensors that do not fit. The error of the link suggests these sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from etdev.linker.banks import Banks
from etdev.planner.banks import COST_RATIO

_AMPLE = 1 << 48
"""Size in bytes of a bank that holds every tensor."""
_ROOM = (Fraction(1), Fraction(65, 64), Fraction(17, 16), Fraction(5, 4))
"""Sizes to try for a bank, as multiples of the bytes that a link uses in this bank if the bank has no limit."""
_HALVINGS = 4
"""Number of smaller sizes to try, by bisection, once a size suffices."""


def sizes_that_suffice(banks: Banks, link: Callable[[Banks], Sequence[int] | None]) -> Iterator[tuple[str, int]]:
    """Yield ``(bank, size in bytes)``. If this bank gets this size and all others stay the same, all tensors fit.

    ``link`` returns the bytes that a link uses in each bank, or None if the tensors do not fit. To find a size, the
    function first links with a bank that is unlimited and more expensive than all others. So this bank holds only the
    tensors that the other banks cannot hold. Then smaller sizes are tried. An even smaller size may suffice. A bank is
    omitted if none of the tried sizes makes all tensors fit.
    """
    highest = max(bank.cost for bank in banks.banks) or Fraction(1)
    for number, bank in enumerate(banks.banks):
        used = link(_with_bank(banks, number, size=_AMPLE, cost=highest * COST_RATIO))
        sizes = [-int(-used[number] * room // 1) for room in _ROOM] if used else []
        for size in sizes:
            if size > bank.size and link(_with_bank(banks, number, size=size, cost=bank.cost)):
                yield bank.name, _smaller(banks, number, size, link)
                break


def _smaller(banks: Banks, number: int, size: int, link: Callable[[Banks], Sequence[int] | None]) -> int:
    """Return the smallest size found for a bank with which all tensors fit, at most ``size``."""

    def used(size: int) -> int | None:
        found = link(_with_bank(banks, number, size=size, cost=banks.banks[number].cost))
        return found[number] if found else None

    low, exact = banks.banks[number].size, size
    for _ in range(_HALVINGS):
        middle = (low + size) // 2
        taken = used(middle)
        if taken is None:
            low = middle
        else:
            size, exact = middle, taken
    return exact if low < exact < size and used(exact) is not None else size


def _with_bank(banks: Banks, number: int, *, size: int, cost: Fraction) -> Banks:
    """Return the banks with another size and cost for one bank, and with ``share_most``."""
    changed = list(banks.banks)
    changed[number] = replace(changed[number], size=size, cost=cost)
    return replace(banks, banks=tuple(changed), share_most=True)
