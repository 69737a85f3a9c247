"""Operands that lie over outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from etdev.validator import operators as ops
from etdev.validator.facts import Clash, Code, Facts, share
from etdev.validator.machine import NotFollowedError
from etdev.validator.run import Run
from etdev.validator.state import At, Choice, Dims, Gap, Lost, Tree, choice, each_leaf, on_way

Key = tuple[int, int, int]
"""``(argument, which tensor of it, output)``."""


class Overlaps:
    """Looks at the operands of instructions."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def _overlaps(self, side: int, code: Code, dims: Sequence[Dims] | None = None) -> dict[tuple[int, int, int], Tree]:
        """``(argument, which tensor of it, output)`` → how they lie to each other, where they share bytes."""
        found = {}
        for clash in code.clashes:
            tree = self._relation(side, clash, dims)
            if tree is not None:
                found[_key(self._run.facts[side], code, clash)] = tree
        return found

    def _relation(self, side: int, clash: Clash, dims: Sequence[Dims] | None) -> Tree:
        operand, out = (self._run.machine.located(side, value) for value in (clash.operand, clash.out))
        sizes = dims[clash.output] if dims else None
        return self._relate(side, clash, operand, out, sizes)

    def _relate(self, side: int, clash: Clash, one: Tree, other: Tree, sizes: Dims | None) -> Tree:
        if isinstance(one, Choice):
            ways = tuple(
                self._relate(side, clash, way, on_way(other, one.merge, number), sizes)
                for number, way in enumerate(one.ways)
            )
            return choice(one.merge, ways)
        if isinstance(other, Choice):
            return choice(other.merge, tuple(self._relate(side, clash, one, way, sizes) for way in other.ways))
        if isinstance(one, Lost) or isinstance(other, Lost):
            return one if isinstance(one, Lost) else other
        assert isinstance(one, tuple)
        assert isinstance(other, tuple)
        facts = self._run.facts[side]
        mine, theirs = facts.tensors[one[0]], facts.tensors[other[0]]
        if not share(mine, one[1], theirs, other[1]):  # type: ignore[arg-type]
            return None
        same = one[1] == other[1] and mine.nbytes == theirs.nbytes and mine.kind[1] == theirs.kind[1]
        same &= mine.itemsize == theirs.itemsize
        if same:
            shape = self._run.machine.dims(side, one[0])
            same = shape == (theirs.sizes if not theirs.dynamic else sizes if sizes is not None else shape)
        return (one[1][1] - other[1][1], int(same))  # type: ignore[index]

    def _is_allowed(self, code: Code, key: tuple[int, int, int], tree: Tree) -> bool:
        """May the operator write over the operand, however paths went?"""
        argument, item, output = key
        known = ops.IN_PLACE.get(code.name, frozenset())
        if output or item or argument not in known:
            return False
        return all(leaf is None or (isinstance(leaf, tuple) and leaf == (0, 1)) for leaf in _all(tree))

    def _check_overlaps(
        self, one: Code | None, other: Code, known: Mapping[tuple[int, int, int], Tree], dims: Sequence[Dims]
    ) -> None:
        for key, tree in self._overlaps(1, other, dims).items():
            if self._is_allowed(other, key, tree) or (key in known and _offsets(known[key]) == _offsets(tree)):
                continue
            lost = next((leaf for leaf in _all(tree) if isinstance(leaf, Lost)), None)
            if lost is not None:
                raise NotFollowedError(lost.reason)
            self._run.report(self._run.explain.overlap(self._run.machine, one, other, key))




def _offsets(tree: Tree) -> Tree:
    """How far apart an operand and an output lie, without whether they are of one shape."""
    return each_leaf(tree, lambda leaf: leaf[0] if isinstance(leaf, tuple) else leaf)


def _all(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree, Choice):
        for way in tree.ways:
            yield from _all(way)
    else:
        yield tree


def _key(facts: Facts, code: Code, clash: Clash) -> tuple[int, int, int]:
    """Which operand it is, by its place in the instruction: 0 if it is the argument itself, else in its list."""
    if clash.argument < 0:
        outs = (*code.writes, *code.updates)
        return -1 - outs.index(clash.operand), 0, clash.output
    if code.reads[clash.argument] == clash.operand:
        return clash.argument, 0, clash.output
    inside = list(facts.list_tensors((code.reads[clash.argument],)))
    return clash.argument, 1 + inside.index(clash.operand), clash.output


