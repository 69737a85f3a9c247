"""Comparison of the symbolic contents of the programs before and after the link.

Contents with different symbols may still be equal. The comparison recognizes four kinds of equal contents:

* Memory from before the call. The validator assumes that this content is equal. The check at the end of the method
  must prove this assumption.
* Constants with equal bytes.
* Contents at a point where paths merge, if they are equal on each path.
* Results of the same function of the same operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from etdev.validator.constants import Constants
from etdev.validator.domain.memory import Content, Memory, Run, aligned, joined, size
from etdev.validator.domain.symbols import CONSTANT, INITIAL, MERGE, OPERATION, OTHER, Symbols
from etdev.validator.reading import Part
from etdev.validator.semantics.movement import is_tensor

_NONE = -1
"""Placeholder for a symbol. It marks bytes without known equal bytes, or bytes without an initial value."""
_DEEPEST = 100
"""Maximum depth to which the comparison follows nested merges and operations. Deeper contents count as different."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """Bytes of the two programs that are assumed to be equal before each call of a method."""

    before_space: int
    before: int
    """Address of the first byte in the space ``before_space``."""
    after_space: int
    after: int
    length: int


@dataclass(frozen=True, slots=True)
class Difference:
    """First difference between an operand before the link and its counterpart after the link."""

    argument: int
    """Position of the operand among the operands."""
    what: str
    """Aspect that differs: ``content``, ``size``, ``kind`` or ``number``."""
    offset: int = 0
    """Offset in the tensor of the first byte that differs."""
    length: int = 0
    before: int | None = None
    """Symbol of the differing bytes, in the program before the link."""
    after: int | None = None
    item: int | None = None
    """Index of the element, if the operand is a list."""


class Agreement:
    """Contents that are known to be equal in both programs."""

    def __init__(self, symbols: Symbols, constants: Constants, loaded: tuple[Mapping[int, Memory], ...]) -> None:
        """Start with no known equalities.

        ``loaded`` has one map for each program. It maps a space (range of addresses) to the content after loading.
        """
        self._symbols = symbols
        self._constants = constants
        self._loaded = loaded
        self._aliases: dict[int, Memory] = {}
        self.assumed: list[Assumed] = []
        self.known = 0
        """Counter that grows with each equality found."""

    def differences(self, before: Sequence[Part], after: Sequence[Part]) -> list[Difference]:
        """Return the differences between two lists of operands. The list is empty if the operands agree."""
        found = []
        for argument, (one, other) in enumerate(zip(before, after, strict=True)):
            if one != other:
                difference = self._compare(argument, one, other)
                if difference is not None:
                    found.append(difference)
        return found

    def _compare(self, argument: int, one: Part, other: Part, item: int | None = None) -> Difference | None:
        if is_tensor(one) and is_tensor(other):
            if one[0] != other[0]:
                return Difference(argument, "kind", item=item)
            if one[1] != other[1]:
                return Difference(argument, "size", item=item)
            return self._contents(argument, one[2], other[2], item)  # type: ignore[arg-type]
        if one[0] == other[0] == "list" and len(one) == len(other):
            for number, (mine, theirs) in enumerate(zip(one[1:], other[1:], strict=True)):
                if mine != theirs:
                    found = self._compare(argument, mine, theirs, number)  # type: ignore[arg-type]
                    if found is not None:
                        return found
            return None
        return Difference(argument, "kind" if one[0] != other[0] else "number", item=item)

    def _contents(self, argument: int, one: Content, other: Content, item: int | None) -> Difference | None:
        if size(one) != size(other):  # Dynamic tensors with different upper bounds.
            return Difference(argument, "size", item=item)
        at = 0
        for length, (mine, theirs) in aligned((one, self.canonical(other))):
            if mine != theirs and not self._agree(*mine, *theirs, length, 0):
                return Difference(argument, "content", at, length, mine[0], theirs[0], item)
            at += length
        return None

    def same(self, one: Content, other: Content) -> bool:
        """Return True if content before the link (``one``) and content after the link (``other``) are equal."""
        return self._contents(0, one, other, None) is None

    # Contents of the linked program in terms of the program before the link

    def canonical(self, content: Content) -> Content:
        """Return content of the linked program, expressed in symbols of the program before the link.

        Bytes that are not known to equal bytes before the link keep their symbols.
        """
        if not self._aliases or not any(symbol in self._aliases for symbol, _, _ in content):
            return content
        found: list[Run] = []
        for symbol, offset, length in content:
            memory = self._aliases.get(symbol)
            if memory is None:
                found.append((symbol, offset, length))
                continue
            for start, end, (target, shift, _) in memory.pieces(offset, offset + length):
                found.append((symbol, start, end - start) if target == _NONE else (target, start - shift, end - start))
        return joined(found)

    def _take(self, before: int, at: int, after: int, offset: int, length: int) -> None:
        """Record that two ranges of ``length`` bytes are equal.

        One range starts at byte ``at`` of the symbol ``before``. The other starts at byte ``offset`` of ``after``.
        """
        memory = self._aliases.get(after)
        if memory is None:
            memory = self._aliases[after] = Memory.filled(_NONE)
        memory.write(offset, offset + length, (before, offset - at, None))
        self.known += 1

    def _agree(self, before: int, at: int, after: int, offset: int, length: int, depth: int) -> bool:
        one, other = self._symbols.keys[before], self._symbols.keys[after]
        if one[0] == other[0] == INITIAL:
            return self._assume(before, at, after, offset, length)
        if one[:2] == (OTHER, "behind the end") and not isinstance(one[5], int):
            return (one[3], at) == (after, offset)  # Before the link, no read passes the end of the write.
        if other[0] == CONSTANT:
            agree = self._constants.same(((before, at, length),), ((after, offset, length),))
        elif depth < _DEEPEST and (one[0] == MERGE or other[0] == MERGE):
            agree = self._on_each_way(before, at, after, offset, length, depth)
        elif depth < _DEEPEST and one[0] == other[0] == OPERATION and at == offset:
            agree = self._same_function(one, other, depth)
        else:
            return False
        if agree:
            self._take(before, at, after, offset, length)
        return agree

    def _on_each_way(self, before: int, at: int, after: int, offset: int, length: int, depth: int) -> bool:
        """Return whether two contents are equal on every path into a merge.

        At least one of the contents must come from a merge. The other content may be independent of the path.
        """
        one, other = self._symbols.keys[before], self._symbols.keys[after]
        mine = self._ways(one, at) if one[0] == MERGE else None
        theirs = self._ways(other, offset) if other[0] == MERGE else None
        if mine is not None and theirs is not None:
            if (one[1], *one[4:]) != (other[1], *other[4:]):
                return False
        elif mine is None:
            if self._symbols.mentions[before] or theirs is None or other[4]:
                return False
            mine = [(before, at)] * len(theirs)
        else:
            if self._symbols.mentions[after] or one[4]:
                return False
            theirs = [(after, offset)] * len(mine)
        return all(self._agree_piece(*pair, length, depth) for pair in zip(mine, theirs, strict=True))

    def _same_function(self, one: tuple[object, ...], other: tuple[object, ...], depth: int) -> bool:
        """Return whether two keys describe the same function of the same operands.

        A key has a tag if the function's result depends on more than its operands. Return False for a key with a tag.
        """
        _, name, tag, kinds, *parts, number = one
        _, other_name, other_tag, other_kinds, *other_parts, other_number = other
        if tag is not None or (name, tag, kinds, number) != (other_name, other_tag, other_kinds, other_number):
            return False
        return len(parts) == len(other_parts) and all(
            mine == theirs or self._same_part(cast(Part, mine), cast(Part, theirs), depth + 1)
            for mine, theirs in zip(parts, other_parts, strict=True)
        )

    def _same_part(self, one: Part, other: Part, depth: int) -> bool:
        if one[0] == other[0] == "list" and len(one) == len(other):
            return all(
                mine == theirs or self._same_part(cast(Part, mine), cast(Part, theirs), depth)
                for mine, theirs in zip(one[1:], other[1:], strict=True)
            )
        if not is_tensor(one) or one[:2] != other[:2]:
            return False
        contents = cast(Content, one[2]), self.canonical(cast(Content, other[2]))
        return size(contents[0]) == size(contents[1]) and all(
            mine == theirs or self._agree(*mine, *theirs, length, depth) for length, (mine, theirs) in aligned(contents)
        )

    def _ways(self, key: tuple[object, ...], offset: int) -> list[tuple[int, int]]:
        return [(symbol, offset + shift) for symbol, shift in zip(key[2], key[3], strict=True)]  # type: ignore[call-overload]

    def _agree_piece(self, mine: tuple[int, int], theirs: tuple[int, int], length: int, depth: int) -> bool:
        known = self.canonical(((*theirs, length),))
        return all(
            (symbol, start) == (target, begin) or self._agree(symbol, start, target, begin, count, depth + 1)
            for count, ((symbol, start), (target, begin)) in aligned((((*mine, length),), known))
        )

    def assume(self, assumed: Assumed) -> bool:
        """Assume that bytes of the two programs are equal before each call.

        Return whether the assumption holds for the first call, after the program is loaded.
        """
        before = self._symbols.number((INITIAL, 0, assumed.before_space))
        after = self._symbols.number((INITIAL, 1, assumed.after_space))
        known = self.canonical(((after, assumed.after, assumed.length),))
        for length, (mine, theirs) in aligned((((before, assumed.before, assumed.length),), known)):
            if mine != theirs and not self._assume(*mine, *theirs, length):
                return False
        return True

    def _assume(self, before: int, at: int, after: int, offset: int, length: int) -> bool:
        _, side, space = self._symbols.keys[before][:3]
        _, other_side, other_space = self._symbols.keys[after][:3]
        if (side, other_side) != (0, 1):
            return False
        assert isinstance(space, int)
        assert isinstance(other_space, int)
        if not self._loaded_same(space, at, other_space, offset, length):
            return False
        self._take(before, at, after, offset, length)
        self.assumed.append(Assumed(space, at, other_space, offset, length))
        return True

    def _loaded_same(self, space: int, at: int, other_space: int, offset: int, length: int) -> bool:
        contents = []
        for side, (which, start) in enumerate(((space, at), (other_space, offset))):
            memory = self._loaded[side].get(which)
            pieces = (
                [(start, start + length, (_NONE, start, None))]
                if memory is None
                else memory.pieces(start, start + length)
            )
            contents.append(
                joined(
                    (symbol, 0 if symbol == _NONE else first - shift, end - first)
                    for first, end, (symbol, shift, _) in pieces
                )
            )
        for count, (mine, theirs) in aligned(contents):
            if _NONE in (mine[0], theirs[0]):
                if mine[0] != theirs[0]:
                    return False
            elif mine != theirs and not self._constants.same(((*mine, count),), ((*theirs, count),)):
                return False
        return True
