"""Symbols for contents: equal keys are equal contents.

A symbol represents an endless stretch of bytes, of which programs use a part, or for one number. The key of a computed
content has its operator, the attributes and the contents of the operands. The key of a content after a merge of paths
has the contents that come in on each path.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

INITIAL, CONSTANT, INPUT, OPERATION, MERGE, LOOP, OTHER = range(7)
"""Kind of a symbol, the first element of its key."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Instruction that computed a content."""

    position: int
    """Position in the program before the link if the instruction is there, else in the one after."""
    operator: str
    value: int | None
    """Value index of the output."""
    side: int


class Symbols:
    """All symbols of one validation."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self.keys: list[tuple[object, ...]] = []
        self.mentions: list[int] = []
        """By symbol: bits of the merges in loops that it depends on. Its meaning changes after each of them."""
        self._origins: dict[int, Origin] = {}

    def number(self, key: tuple[object, ...], mentions: int = 0) -> int:
        """Return the symbol of a key."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.keys)
            self.keys.append(key)
            self.mentions.append(mentions)
        return found

    def name(self, symbol: int, origin: Origin) -> None:
        """Record the origin of a symbol, if it has none yet."""
        self._origins.setdefault(symbol, origin)

    def origin(self, symbol: int) -> Origin | None:
        """Return the origin of a symbol, if an instruction computed it."""
        return self._origins.get(symbol)

    def mentioned(self, symbols: Iterable[int]) -> int:
        """Return the bits of the merges that any of some symbols depends on."""
        found = 0
        for symbol in symbols:
            found |= self.mentions[symbol]
        return found
