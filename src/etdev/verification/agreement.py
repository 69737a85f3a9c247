"""Share of the elements of an output that agree with the reference.

Two indices, such as token ids, are equal or not: their distance has no meaning. So outputs of integers or truth values
have no error and no SNR. By default, all elements must equal the reference. ``verify.min_agreement`` of the config may
require less. Elements of floats agree if their error is within the tolerance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class Agreement:
    """Counts of the elements of one output, accumulated over many calls."""

    elements: int = 0
    differing: int = 0
    first: str = ""
    """Description of the first call with an element that differs."""

    def add(self, differing: int, elements: int, at: str) -> None:
        """Add the counts of one or more calls. ``at`` describes the first of these calls that differs."""
        if differing and not self.differing:
            self.first = at
        self.elements += elements
        self.differing += differing

    def __str__(self) -> str:
        """Return a text such as ``1 of 64 elements differs``."""
        return f"{self.differing:,} of {self.elements:,} elements differ{'s' * (self.differing == 1)}"

    @property
    def share(self) -> str:
        """The share of equal elements as a text such as ``98.4%``, rounded down."""
        equal = self.elements - self.differing
        return f"{math.floor(1000 * equal / max(self.elements, 1)) / 10:.1f}%"


def allowed_elements(min_agreement: float | None, elements: int, *, few: bool = False) -> int:
    """Return the number of elements that may differ from the reference.

    ``min_agreement`` is the limit of the config; None allows no difference. ``few`` is True if a check compares only a
    few of the calls. The number is then rounded up, so that a difference that other checks accept in all calls does not
    fail this check.
    """
    exact = (1 - (1 if min_agreement is None else min_agreement)) * elements
    return math.ceil(exact - 1e-6) if few else math.floor(exact + 1e-6)
