"""Overlaps between operands and outputs of an instruction, and the rules of operators about such overlaps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from etdev.program import model as m
from etdev.validator.domain.numbers import Dims
from etdev.validator.domain.state import At, Choice, Gap, Tree, Unknown, choice, each_leaf, leaves, on_way
from etdev.validator.facts import Clash, Code, Facts, share
from etdev.validator.reading import NotFollowedError
from etdev.validator.run import Run
from etdev.validator.semantics import operators as ops

Key: TypeAlias = tuple[int, int, int]
"""Key of an overlap: ``(argument, tensor in the argument, output)``.

The second number is 0 if the argument is a tensor. In a list of tensors, the tensors are numbered from 1. If the first
number is negative, the overlap is with another output.
"""


class Overlaps:
    """Finder of overlaps between operands and outputs of an instruction."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def find(self, side: int, code: Code, dims: Sequence[Dims] = ()) -> dict[Key, Tree]:
        """Return, for each overlap, the distance between the output and the operand.

        ``dims`` are the sizes that the outputs will have.
        """
        found: dict[Key, Tree] = {}
        for clash in code.clashes:
            operand, out = (self._run.machine.located(side, value) for value in (clash.operand, clash.out))
            tree = self._relate(side, operand, out, dims[clash.output] if dims else None)
            if tree is not None:
                found[_key(self._run.facts[side], code, clash)] = tree
        return found

    def forbidden(self, code: Code, found: Mapping[Key, Tree]) -> dict[Key, Tree]:
        """Return the overlaps that the instruction's operator forbids."""
        tried = self._run.in_place.get(code.name, ())
        return {key: tree for key, tree in found.items() if not _is_allowed(code, key, tree, tried)}

    def check(self, one: Code | None, other: Code, known: Mapping[Key, Tree], dims: Sequence[Dims]) -> None:
        """Report the forbidden overlaps of an instruction in the linked program.

        ``known`` contains the overlaps before the link. An overlap that also existed before the link is not reported.
        """
        for key, tree in self.forbidden(other, self.find(1, other, dims)).items():
            if key in known and _gaps(known[key]) == _gaps(tree):
                continue
            for leaf in leaves(tree):
                if isinstance(leaf, Unknown):
                    raise NotFollowedError(leaf.reason)
            self._run.report(self._run.explain.overlap(self._run.machine, one, other, key))

    def _relate(self, side: int, one: Tree, other: Tree, dims: Dims | None) -> Tree:
        if isinstance(one, Choice):
            ways = (
                self._relate(side, way, on_way(other, one.merge, number), dims) for number, way in enumerate(one.ways)
            )
            return choice(one.merge, tuple(ways))
        if isinstance(other, Choice):
            return choice(other.merge, tuple(self._relate(side, one, way, dims) for way in other.ways))
        if not isinstance(one, At) or not isinstance(other, At):
            return one if isinstance(one, Unknown) else other
        facts = self._run.facts[side]
        mine, theirs = facts.tensors[one.tensor], facts.tensors[other.tensor]
        if one.place is None or other.place is None or not share(mine, one.place, theirs, other.place):
            return None
        same = one.place == other.place and (mine.nbytes, mine.itemsize) == (theirs.nbytes, theirs.itemsize)
        if same:
            shape = self._run.machine.dims(side, one.tensor)
            same = mine.kind[1] == theirs.kind[1] and shape == (dims or (shape if theirs.dynamic else theirs.sizes))
        return Gap(one.place[1] - other.place[1], same)


def _is_allowed(code: Code, key: Key, tree: Tree, tried: Collection[tuple[int, int]]) -> bool:
    """Return whether the operator may overwrite the operand with its output, on all paths.

    ``tried`` contains additional ``(argument, output)`` pairs. Trials of the kernel showed that each pair may overlap.
    """
    argument, item, output = key
    if isinstance(code.call, m.DelegateCall) and code.name in ops.READS_FIRST and argument >= 0:
        return not any(isinstance(leaf, Unknown) for leaf in leaves(tree))
    known = not output and argument in ops.IN_PLACE.get(code.name, ())
    if item or not (known or (argument, output) in tried):
        return False
    return all(leaf is None or (isinstance(leaf, Gap) and leaf.same) for leaf in leaves(tree))


def _gaps(tree: Tree) -> Tree:
    """Return the tree with each :class:`Gap` replaced by its distance in bytes."""
    return each_leaf(tree, lambda leaf: leaf.bytes if isinstance(leaf, Gap) else leaf)


def _key(facts: Facts, code: Code, clash: Clash) -> Key:
    if clash.argument < 0:
        return -1 - (*code.writes, *code.updates).index(clash.operand), 0, clash.output
    if code.reads[clash.argument] == clash.operand:
        return clash.argument, 0, clash.output
    inside = list(facts.list_tensors((code.reads[clash.argument],)))
    return clash.argument, 1 + inside.index(clash.operand), clash.output
