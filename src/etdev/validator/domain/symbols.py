"""Symbols for contents. Equal keys represent equal contents.

A symbol represents a number, or an endless sequence of bytes. Programs use only a part of such a sequence. The key of a
result contains the operator, its attributes and the contents of its operands. The key of a merge contains the content
from each path.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

INITIAL, CONSTANT, INPUT, OPERATION, MERGE, LOOP, OTHER = range(7)
"""Kinds of symbols. The kind is the first element of a key."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Instruction that computed some content."""

    position: int
    """Position before the link. For an instruction that the link added, its position after the link."""
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
        """For each symbol, a bit set of the merges in loops on which the symbol depends.

        The meaning of the symbol changes each time one of these merges is reached.
        """
        self._origins: dict[int, Origin] = {}

    def number(self, key: tuple[object, ...], mentions: int = 0) -> int:
        """Return the symbol for a key. Create the symbol if necessary."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.keys)
            self.keys.append(key)
            self.mentions.append(mentions)
        return found

    def name(self, symbol: int, origin: Origin) -> None:
        """Record the origin of a symbol, unless the symbol already has an origin."""
        self._origins.setdefault(symbol, origin)

    def origin(self, symbol: int) -> Origin | None:
        """Return the instruction that computed the content of a symbol, or None if there is no such instruction."""
        return self._origins.get(symbol)

    def mentioned(self, symbols: Iterable[int]) -> int:
        """Return the bits of all merges on which these symbols depend."""
        found = 0
        for symbol in symbols:
            found |= self.mentions[symbol]
        return found
