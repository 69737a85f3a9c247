"""Names for what is computed: equal keys are equal contents.

A symbol stands for a stretch of bytes without end, of which programs use a part, or for one number. What is computed
has the key of its operator, its attributes and the contents of its operands; what lies somewhere after a merge of paths
has the key of the contents that come in on each of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

INITIAL, CONSTANT, INPUT, OPERATION, MERGE, LOOP, OTHER = range(7)
"""The first element of a key: what kind of thing the symbol stands for."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who computed what a symbol stands for."""

    position: int
    """Of the instruction, in the program before the link if it is there, else in the one after."""
    operator: str
    value: int | None
    """Index of the output."""
    side: int


class Symbols:
    """All symbols of one validation."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.keys: list[tuple[object, ...]] = []
        self.mentions: list[int] = []
        """By symbol: bits of the loops' merges that it depends on. It has a new meaning after each of them."""
        self._origins: dict[int, Origin] = {}

    def number(self, key: tuple[object, ...], mentions: int = 0) -> int:
        """The symbol of a key."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.keys)
            self.keys.append(key)
            self.mentions.append(mentions)
        return found

    def name(self, symbol: int, origin: Origin) -> None:
        """Say who computed it, if nobody has."""
        self._origins.setdefault(symbol, origin)

    def origin(self, symbol: int) -> Origin | None:
        """Who computed it, if an instruction did."""
        return self._origins.get(symbol)

    def mentioned(self, symbols: Iterable[int]) -> int:
        """Bits of all of them together."""
        found = 0
        for symbol in symbols:
            found |= self.mentions[symbol]
        return found
