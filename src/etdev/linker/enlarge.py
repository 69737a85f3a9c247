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
"""Sizes to try, as multiples of the bytes that a link uses of an unlimited bank."""


def sizes_that_suffice(banks: Banks, link: Callable[[Banks], Sequence[int] | None]) -> Iterator[tuple[str, int]]:
    """Yield each bank whose enlargement alone makes all tensors fit, with a sufficient size in bytes.

    ``link`` returns the bytes that a link uses of each bank, or None if the tensors do not fit. To find a size, the
    function first links with an unlimited bank of the highest cost. Such a bank takes only the tensors that the other
    banks cannot hold. A bank is omitted if no tried size fits.
    """
    highest = max(bank.cost for bank in banks.banks) or Fraction(1)
    for number, bank in enumerate(banks.banks):
        used = link(_with_bank(banks, number, size=_AMPLE, cost=highest * COST_RATIO))
        sizes = [-int(-used[number] * room // 1) for room in _ROOM] if used else []
        for size in sizes:
            if size > bank.size and link(_with_bank(banks, number, size=size, cost=bank.cost)):
                yield bank.name, size
                break


def _with_bank(banks: Banks, number: int, *, size: int, cost: Fraction) -> Banks:
    """Return the banks, with another size and cost of one bank. A link then takes the first candidate that fits."""
    changed = list(banks.banks)
    changed[number] = replace(changed[number], size=size, cost=cost)
    return replace(banks, banks=tuple(changed), share_most=True)
