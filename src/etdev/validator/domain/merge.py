"""Symbols for contents where paths merge, and the meaning of these symbols on each path.

A *way* is the index of a path into a merge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import gcd
from typing import TypeAlias, cast

from etdev.validator.domain import numbers
from etdev.validator.domain.memory import NOTHING, Cell, Content, Valid, aligned, joined, shifted
from etdev.validator.domain.numbers import Dims, Number
from etdev.validator.domain.symbols import MERGE, OTHER, Symbols

_DEEPEST = 40
"""Maximum depth of nested merges that are resolved. Deeper merges stay unresolved."""
_DEEPEST_PARTLY = 10
"""Maximum depth for merges of dynamic writes. Resolving such a merge may examine all paths into the merge."""
AGAIN = -1
"""Pseudo-merge for results that differ in each iteration of a loop, even if the operands are equal."""
Piece = tuple[int, int]
"""Bytes of a symbol from an offset on, as ``(symbol, offset)``."""
Guards: TypeAlias = tuple[tuple[int, int], ...]
"""A set of paths through a method, as pairs ``(merge, way)``.

On all of these paths, the block ``merge`` was last entered through its incoming edge ``way``.
"""
_Merged: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...], tuple[Valid, ...], bool]
"""Key of merged content, as ``(merge, symbols, offsets, extents, reached)``.

Symbols, offsets and extents have one item for each path. ``reached`` is True if the bytes are from the current
iteration of the loop.
"""
Covers: TypeAlias = Callable[[Valid, int, Number, Guards], bool]
"""Function that returns True if an extent covers a read. It takes ``(extent, start of read, length, guards)``."""


class Merges:
    """Symbols for contents at the merges of one method."""

    def __init__(self, symbols: Symbols, bits: Mapping[int, int], heads: Collection[int]) -> None:
        """Start without symbols.

        ``bits`` maps each merge in a loop to its bit in bit sets. ``heads`` contains the merges at the heads of loops.
        At a head, the class first resolves the content of each path. So merged content there depends on no earlier
        iteration.
        """
        self._symbols = symbols
        self._bits = bits
        self._heads = heads
        self._known: dict[tuple[int, int, int], Piece] = {}
        self.partly: set[int] = set()
        """Symbols of merged contents whose last write, on some path, may have covered only a part of the bytes."""

    def bit(self, merge: int) -> int:
        """Return the bit of a merge in a loop, or 0 for a merge outside of loops."""
        return self._bits.get(merge, 0)

    def _older(self, merge: int) -> int:
        """Return the bit of a merge if its content may depend on an earlier iteration; otherwise 0."""
        return 0 if merge in self._heads else self.bit(merge)

    def bytes(
        self, merge: int, pieces: Sequence[Piece], valids: Sequence[Valid] = (), *, reached: bool = False
    ) -> Piece:
        """Return the content at a point where paths meet, given the piece of content that each path brings.

        ``valids`` has the extent of the last write for each piece, or is empty if all extents are equal. Addresses in
        ``valids`` count from the start of the returned symbol, which begins where the symbol of the first piece begins.

        In a loop, a piece that depends on this merge normally comes from the previous iteration. If ``reached`` is
        True, such a piece comes from the current iteration.
        """
        if merge in self._heads:
            pieces = [self._on(*piece, merge, way, 0) for way, piece in enumerate(pieces)]
        first = pieces[0]
        bit = self.bit(merge)
        held = tuple(symbol for symbol, _ in pieces)
        of_itself = self._symbols.mentioned(held) & self._older(merge)
        if not valids and all(piece == first for piece in pieces) and (reached or not of_itself):
            return first
        shifts = tuple(offset - first[1] for _, offset in pieces)
        mentioned = self._symbols.mentioned(held) | bit | self._mentioned_by(*valids)
        symbol = self._symbols.number(
            (MERGE, merge, held, shifts, tuple(valids), bool(reached and of_itself)), mentioned
        )
        if valids or self.partly.intersection(held):
            self.partly.add(symbol)
        return symbol, first[1]

    def cell(self, merge: int, at: int, ways: Sequence[Cell], *, reached: bool = False) -> Cell:
        """Return the merged cell at an address, under the rules of :meth:`bytes`."""
        valid, valids = ways[0][2], []
        if any(way[2] != valid for way in ways):
            begin = ways[0][1]
            valids = [shifted(way[2], -begin) for way in ways]
            valid = None
        symbol, offset = self.bytes(merge, [(way[0], at - way[1]) for way in ways], valids, reached=reached)
        return symbol, at - offset, valid

    def cell_on(self, at: int, cell: Cell, merge: int, way: int) -> Cell:
        """Return the cell at an address if ``merge`` was last entered on its incoming edge number ``way``."""
        symbol, offset = self.piece_on((cell[0], at - cell[1]), merge, way)
        return symbol, at - offset, cell[2]

    def fresh(self, side: int, piece: Piece, start: int, length: Number, covers: Covers) -> Piece:
        """Return the content of a piece as seen by a read of ``length`` bytes from address ``start``.

        If the last write on a path does not cover the read, :meth:`behind` provides a symbol for the bytes. ``covers``
        returns whether a write covers a read. Addresses count from the start of the symbol.
        """
        return self._fresh(side, piece, start, length, covers, 0)

    def _fresh(self, side: int, piece: Piece, start: int, length: Number, covers: Covers, depth: int) -> Piece:
        symbol, offset = piece
        key = self._symbols.keys[symbol]
        if symbol not in self.partly or key[0] != MERGE:
            return piece
        if depth > _DEEPEST_PARTLY:
            return self.behind(side, symbol, 0, NOTHING, length), offset
        merge, held, shifts, valids, reached = cast("_Merged", key[1:6])
        found = []
        for way, (one, shift) in enumerate(zip(held, shifts, strict=True)):
            count = self._number_on(length, merge, way, 0)
            if valids and valids[way] is not None and not covers(valids[way], start, count, ((merge, way),)):
                found.append((self.behind(side, one, -shift, valids[way], count), offset + shift))
            else:
                found.append(self._fresh(side, (one, offset + shift), start + shift, count, covers, depth + 1))
        return self.bytes(merge, found, reached=reached)

    def behind(self, side: int, symbol: int, shift: int, valid: Valid, length: Number) -> int:
        """Return the symbol of the bytes after the end of a dynamic write, for a read of ``length`` bytes.

        ``symbol`` is the written content, which begins at address ``shift``. ``valid`` is the extent of the write.
        Normally, both programs share the returned symbol, because the program before the link reads only bytes that it
        has written. Each program gets its own symbol in two cases: if the extent is unknown, or if ``length`` is
        static. In the second case, the bytes after the end of the dynamic tensor may be state.
        """
        own = side if isinstance(length, int) or valid is None or valid == NOTHING else -1
        known = shifted(valid, -shift) if own == -1 else None
        mentioned = self._symbols.mentions[symbol] | self._mentioned_by(known)
        mentioned |= self._symbols.mentioned(numbers.unknowns(length))
        return self._symbols.number((OTHER, "behind the end", own, symbol, known, length), mentioned)

    def _mentioned_by(self, *valids: Valid) -> int:
        sizes = [size for valid in valids if valid is not None for size in valid[1]]
        return self._symbols.mentioned(item for size in sizes for item in numbers.unknowns(size))

    def content(self, merge: int, contents: Sequence[Content], *, reached: bool = False) -> Content:
        """Return the content at a merge, given one content of the same size for each path into the merge."""
        if all(content == contents[0] for content in contents) and (reached or not self._older(merge)):
            return contents[0]
        return joined((*self.bytes(merge, pieces, reached=reached), length) for length, pieces in aligned(contents))

    def number(self, merge: int, found: Sequence[Number]) -> Number:
        """Return the number at a merge, given one number for each path into the merge."""
        mentioned = self._symbols.mentioned(symbol for item in found for symbol in numbers.unknowns(item))
        bit = self.bit(merge)
        if all(item == found[0] for item in found) and not mentioned & self._older(merge):
            return found[0]
        common = gcd(*(factor for item in found for factor in numbers.factors(item))) or 1
        found = tuple(item if (part := numbers.divide(item, common)) is None else part for item in found)
        symbol = self._symbols.number((OTHER, "number", merge, found), mentioned | bit)
        return numbers.multiply(numbers.unknown(symbol), common)

    def dims(self, merge: int, found: Sequence[Dims]) -> Dims:
        """Return the sizes at a merge, given the sizes for each path into the merge."""
        if any(len(sizes) != len(found[0]) for sizes in found):
            known = (symbol for sizes in found for size in sizes for symbol in numbers.unknowns(size))
            mentioned = self._symbols.mentioned(known) | self.bit(merge)
            return (numbers.unknown(self._symbols.number((OTHER, "ranks", merge, tuple(found)), mentioned)),)
        return tuple(self.number(merge, sizes) for sizes in zip(*found, strict=True))

    def ways_of_number(self, symbol: int) -> list[tuple[int, int]]:
        """Return ``[(merge, number of paths into the merge)]`` for a merged number.

        For any other number, return an empty list.
        """
        key = self._symbols.keys[symbol]
        return [(cast(int, key[2]), len(cast("tuple[Number, ...]", key[3])))] if key[:2] == (OTHER, "number") else []

    def mentions(self, dims: Dims, merges: Iterable[int]) -> bool:
        """Return whether the meaning of sizes changes when one of ``merges`` is reached again."""
        known = self._symbols.mentioned(symbol for size in dims for symbol in numbers.unknowns(size))
        return any(known & self.bit(merge) for merge in merges)

    # Contents on one way

    def content_on(self, content: Content, guards: Guards) -> Content:
        """Return the content on the paths that ``guards`` describes."""
        for merge, way in guards:
            content = joined((*self._on(symbol, offset, merge, way, 0), length) for symbol, offset, length in content)
        return content

    def piece_on(self, piece: Piece, merge: int, way: int) -> Piece:
        """Return the value of ``piece`` on paths that last entered ``merge`` through its incoming edge ``way``.

        If ``piece`` has an extent on that edge, return ``piece`` unchanged; :meth:`fresh` resolves it.
        """
        return self._on(*piece, merge, way, 0)

    def dims_on(self, dims: Dims, guards: Guards) -> Dims:
        """Return the sizes on the paths that ``guards`` describes."""
        return tuple(self.number_on(size, guards) for size in dims) if guards else dims

    def _on(self, symbol: int, offset: int, merge: int, way: int, depth: int) -> Piece:
        key = self._symbols.keys[symbol]
        if key[0] != MERGE or depth > _DEEPEST:
            return symbol, offset
        known = self._known.get((symbol, merge, way))
        if known is None:
            known = self._known[symbol, merge, way] = self._find(symbol, key, merge, way, depth)
        return known[0], known[1] + offset

    def _find(self, symbol: int, key: tuple[object, ...], merge: int, way: int, depth: int) -> Piece:
        own, held, shifts, valids, reached = cast("_Merged", key[1:6])
        if own == merge:
            if self._symbols.mentions[held[way]] & self._older(merge) and not reached:
                return symbol, 0
            return (symbol, 0) if valids and valids[way] is not None else (held[way], shifts[way])
        pieces = [self._on(item, shift, merge, way, depth + 1) for item, shift in zip(held, shifts, strict=True)]
        if pieces == list(zip(held, shifts, strict=True)):
            return symbol, 0
        base = pieces[0][1]
        return self.bytes(own, pieces, [shifted(valid, base) for valid in valids], reached=reached)

    def number_on(self, number: Number, guards: Guards) -> Number:
        """Return the number on the paths that ``guards`` describes."""
        for merge, way in guards:
            number = self._number_on(number, merge, way, 0)
        return number

    def _number_on(self, number: Number, merge: int, way: int, depth: int) -> Number:
        if isinstance(number, int) or depth > _DEEPEST:
            return number
        result: Number = 0
        for monomial, factor in number:
            term: Number = factor
            for symbol in monomial:
                term = numbers.multiply(term, self._unknown_on(symbol, merge, way, depth))
            result = numbers.add(result, term)
        return result

    def _unknown_on(self, symbol: int, merge: int, way: int, depth: int) -> Number:
        key = self._symbols.keys[symbol]
        if key[:2] != (OTHER, "number"):
            return numbers.unknown(symbol)
        _, _, own, found = key
        assert isinstance(own, int)
        assert isinstance(found, tuple)
        if own == merge:
            mentioned = self._symbols.mentioned(item for number in found for item in numbers.unknowns(number))
            return numbers.unknown(symbol) if mentioned & self._older(merge) else found[way]
        return self.number(own, [self._number_on(item, merge, way, depth + 1) for item in found])
