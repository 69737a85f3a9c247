"""Effects of instructions on the state of a program.

A *shadow* is the recorded content of a value that may refer to one of several tensors.
"""

from __future__ import annotations

from collections.abc import Collection

from etdev.validator.domain import numbers
from etdev.validator.domain.memory import Cell, Content, Run, Valid, joined, overlaid, size
from etdev.validator.domain.merge import Guards
from etdev.validator.domain.numbers import Dims
from etdev.validator.domain.state import (
    DIMS,
    MEMORY,
    NUMBER,
    At,
    Choice,
    Number_,
    Tree,
    Unknown,
    leaves,
)
from etdev.validator.facts import CONSTANT, Place
from etdev.validator.reading import StateReader, only_leaf


class Machine(StateReader):
    """Reader and writer of the current state of both programs."""

    def set_number(self, side: int, value: int, content: Number_) -> None:
        """Set the number that a value holds."""
        self.state.numbers[side][value] = content
        self.state.log.entries.append((NUMBER, side, value))

    def set_dims(self, side: int, value: int, dims: Dims) -> None:
        """Set the sizes of a dynamic tensor."""
        self.state.dims[side][value] = dims
        self.state.log.entries.append((DIMS, side, value))

    def write(self, side: int, value: int, dims: Dims, content: Content | None) -> None:
        """Set the sizes and the content of a tensor, at all of its possible places.

        If ``content`` is None, set only the sizes.
        """
        facts = self.facts[side]
        if value not in facts.roving:
            self._write_at(side, At(value, facts.tensors[value].place), dims, content, ())
            return
        self._write_tree(side, self.located(side, value), dims, content, ())

    def _write_tree(self, side: int, tree: Tree, dims: Dims, content: Content | None, guards: Guards) -> None:
        if isinstance(tree, Choice):
            for number, way in enumerate(tree.ways):
                self._write_tree(side, way, dims, content, (*guards, (tree.merge, number)))
        else:
            self._write_at(side, only_leaf(tree), dims, content, guards)

    def _write_at(self, side: int, at: At, dims: Dims, content: Content | None, guards: Guards) -> None:
        tensor, place = self.facts[side].tensors[at.tensor], at.place
        if tensor.dynamic:
            old = self.dims(side, at.tensor) if guards else dims
            self.forget_shadows(side, {at.tensor}, dims, guards)
            self.set_dims(side, at.tensor, self._dims_after(dims, old, guards))
        if content is None or place is None or place[0] == CONSTANT or not tensor.nbytes:
            return
        valid: Valid = None
        if tensor.dynamic:
            most = numbers.multiply(numbers.product(dims), tensor.itemsize)
            content = _cut(content, most if isinstance(most, int) else tensor.nbytes)
            valid = None if isinstance(most, int) else (place[1], dims, tensor.itemsize)
        if content and guards:
            self._put_on(side, place, content, valid, guards)
        elif content:
            self.put(side, place, content, valid)

    def _put_on(self, side: int, place: Place, content: Content, valid: Valid, guards: Guards) -> None:
        """Write bytes to a place that a tensor has only on the paths described by ``guards``."""
        space, start = place
        memory = self.memory(side, space)
        found: list[tuple[int, int, Cell]] = []
        for symbol, offset, length in content:
            new = symbol, start - offset, valid
            for first, end, (held, shift, known) in memory.pieces(start, start + length):
                at = first
                for old, old_offset, count in self._known(side, ((held, first - shift, end - first),)):
                    found.append((at, at + count, self._cell_after(at, new, (old, at - old_offset, known), guards)))
                    at += count
            start += length
        for first, end, cell in found:
            memory.write(first, end, cell)
        mixed = joined((symbol, first - shift, end - first) for first, end, (symbol, shift, _) in found)
        self._wrote(side, place, content, guards, mixed)

    def _cell_after(self, at: int, new: Cell, old: Cell, guards: Guards) -> Cell:
        """Return the cell at an address after a write that happens only on the paths described by ``guards``."""
        if not guards:
            return new
        (merge, taken), *rest = guards
        ways = [
            self._cell_after(at, new, old, tuple(rest)) if way == taken else old for way in range(self._ways[merge])
        ]
        known = [self.merges.cell_on(at, cell, merge, way) for way, cell in enumerate(ways)]
        return self.merges.cell(merge, at, known, reached=True)

    def put(self, side: int, place: Place, content: Content, valid: Valid = None) -> None:
        """Write bytes at a place."""
        space, start = place
        self.memory(side, space).write_content(start, content, valid)
        self._wrote(side, place, content)

    def _wrote(self, side: int, place: Place, new: Content, on: Guards = (), mixed: Content = ()) -> None:
        """Log a write, and update the shadows of values whose bytes the write changes.

        On the paths that ``on`` describes, the place has the content ``new``. Over all paths, the place has the content
        ``mixed``.
        """
        space, start = place
        self.state.log.entries.append((MEMORY, side, space, start, start + size(new)))
        for value, (kind, dims, held) in list(self.state.shadows[side].items()):
            tree = self.located(side, value)
            if any(isinstance(leaf, Unknown) for leaf in leaves(tree)):
                del self.state.shadows[side][value]
            else:
                after = self._shadow_after(tree, (), place, (new, on, mixed), held)
                self.state.shadows[side][value] = kind, dims, after

    def _shadow_after(
        self, tree: Tree, guards: Guards, to: Place, written: tuple[Content, Guards, Content], held: Content
    ) -> Content:
        """Return the content of a value after a write.

        ``held`` is the content before the write, and ``tree`` contains the tensors to which the value may refer. ``to``
        is the place of the write. ``written`` contains the arguments ``new``, ``on`` and ``mixed`` of :meth:`_wrote`.
        """
        if isinstance(tree, Choice):
            ways = [
                self._shadow_after(way, (*guards, (tree.merge, number)), to, written, held)
                for number, way in enumerate(tree.ways)
            ]
            if all(way == held for way in ways):
                return held
            ways = [self.merges.content_on(way, ((tree.merge, number),)) for number, way in enumerate(ways)]
            return self.merges.content(tree.merge, ways, reached=True)
        place = only_leaf(tree).place
        new, on, mixed = written
        taken = dict(guards)
        if place is None or place[0] != to[0] or any(taken.get(merge, way) != way for merge, way in on):
            return held
        new = new if all(merge in taken for merge, _ in on) else mixed
        return overlaid(held, to[1] - place[1], self.merges.content_on(new, guards))

    def forget_shadows(
        self, side: int, tensors: Collection[int], dims: Dims | None = None, guards: Guards = ()
    ) -> None:
        """Remove the shadows of values that may refer to these tensors. The tensors are about to change place or sizes.

        Later reads use the content of memory. Values that already have the sizes ``dims`` keep their shadows.
        """
        for value, (_, known, _) in list(self.state.shadows[side].items()):
            if any(isinstance(leaf, At) and leaf.tensor in tensors for leaf in leaves(self.located(side, value))) and (
                dims is None or self.merges.dims_on(known, guards) != self.merges.dims_on(dims, guards)
            ):
                del self.state.shadows[side][value]

    def _dims_after(self, new: Dims, old: Dims, guards: Guards) -> Dims:
        if not guards:
            return new
        (merge, taken), *rest = guards
        found = [self._dims_after(new, old, tuple(rest)) if way == taken else old for way in range(self._ways[merge])]
        return self.merges.dims(merge, [self.merges.dims_on(item, ((merge, way),)) for way, item in enumerate(found)])


def _cut(content: Content, most: int) -> Content:
    found: list[Run] = []
    for symbol, offset, length in content:
        if most <= 0:
            break
        found.append((symbol, offset, min(length, most)))
        most -= length
    return tuple(found)


def whole(symbol: int, nbytes: int) -> Content:
    """Return the first bytes of a symbol as the content of a whole tensor."""
    return ((symbol, 0, nbytes),) if nbytes else ()
