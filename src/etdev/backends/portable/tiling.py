"""The fullest moment of a method, done piece by piece.

Where most memory is in use, it is often by outputs that only live from one op to the next: the hidden layer of an MLP,
the scores of attention, the widened channels of a mobile network. If the ops between a few small tensors all work along
one axis, they can do a piece of it at a time, one op after the other, and only the small tensors are there as wholes.

A *region* is a set of such ops. The one that lowers the fullest moment most is done in pieces, then the fullest moment
that is left is looked at, until one cannot be lowered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from etdev.backends.portable import convolution
from etdev.backends.portable.axes import VIEWS, is_whole, needs, piece_arguments, shape_of
from etdev.backends.portable.graph import INSTRUCTION_BYTES, Editor, arguments
from etdev.backends.portable.occupancy import Occupancy, kind_of, nbytes
from etdev.backends.portable.regions import Region, grow_region, part_of
from etdev.backends.portable.window import Window

if TYPE_CHECKING:
    from torch.fx import Node

_AFTER = 25
"""Ops after it in which memory may be in use for what it makes."""
_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""In how many pieces a region may be done."""
_WORTH = 0.97
"""Times the memory of fewer pieces that more of them have to come down to, unless that reaches the goal."""
_LOWER = 0.97
"""Times the fullest moment that a region has to come down to; what is above counts as just as full."""
_ALIKE = 1.03
"""Of two sizes that are less than so many times apart, neither counts as lower."""
_ENOUGH = 1.05
"""Times the smallest memory that can be reached."""
_MOST_ADDED = 2_000
"""Ops that all pieces of a method may add to it. Each takes a few hundred bytes of the file."""
_MOST_TRIED = 20_000
"""The same while it is found out how low the fullest moment can be."""
_STEP = 1.1
"""Times a goal that needs more, the next one."""
_WIDE_STEP = 1.25
"""The same where each goal is weighed, which takes longer."""
_FREE = VIEWS | {"slice_copy", "cat", "getitem"}
"""Ops that the linker mostly removes."""
_LEAST_BYTES = 1_024
"""Of the largest output of a piece."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A region and how it is to be done."""

    region: Region
    pieces: int
    full: int
    """Ops near the region that run with about as many bytes in use as the fullest one now, by the estimate."""
    fewer: int
    """So many fewer than now."""
    peak: int
    """Bytes in use at the fullest moment of the others near the region."""

    @property
    def added(self) -> int:
        """Ops that it adds, but for slices of what goes in, most of which lie in it when they are linked."""
        return (len(self.region.axes) + 1) * (self.pieces - 1)

    def rank(self, goal: int) -> tuple[int, int, int, int]:
        """The lower the better. Where others remain as full, the more are not any more the better."""
        level = round(math.log(max(self.peak, goal, 1), _ALIKE))
        return self.full, -self.fewer if self.full else 0, level, self.added


def tile(editor: Editor) -> int:
    """Do ops in pieces as the settings say; return how many ops are done so now."""
    if editor.settings.tiling == "off":
        return 0
    goals = _goals(editor)
    goal = next(goals, None) if editor.settings.tiling == "always" else _cheapest(editor, goals)
    done = _lower(editor, goal[0], _MOST_ADDED) if goal else 0
    editor.is_tiled |= done > 0
    return done


def _goals(editor: Editor) -> Iterator[tuple[int, Editor]]:
    """Yield the peaks that can be reached, ascending, each with a copy of the graph that reaches it."""
    trial = editor.copy()
    if not _lower(trial, 0, _MOST_TRIED):
        return
    # What is lower than the moment that cannot be lowered needs no more pieces.
    goal = int(_ENOUGH * trial.occupancy().peak())
    while goal < editor.occupancy().peak():
        trial = editor.copy()
        done = _lower(trial, goal, _MOST_ADDED)
        if done and trial.occupancy().peak() <= goal:
            yield goal, trial
        goal = int(goal * (_STEP if editor.settings.tiling == "always" else _WIDE_STEP))


def _cheapest(editor: Editor, goals: Iterable[tuple[int, Editor]]) -> tuple[int, Editor] | None:
    """Return the goal with the fewest slow convolutions, then the fewest bytes of memory and of instructions."""
    whole = editor.copy()
    return min((None, *goals), key=lambda goal: _price(goal[1] if goal else whole))


def _price(editor: Editor) -> tuple[int, int]:
    left, size = convolution.price(editor)
    ops = sum(node.op == "call_function" and kind_of(node) not in _FREE for node in editor.graph.nodes)
    return left, size + INSTRUCTION_BYTES * ops


def _lower(editor: Editor, goal: int, most_added: int) -> int:
    """Lower the fullest moment to the goal, or as far as it goes; the number of ops that are done in pieces now."""
    done, added = 0, 0
    occupancy = editor.occupancy()
    while (fullest := _fullest(occupancy)) > (goal, 0):
        choice = _best(occupancy, goal)
        if choice is None or added + choice.added > most_added:
            break
        _rewrite(editor, choice)
        done += len(choice.region.axes)
        added += choice.added
        occupancy = editor.occupancy()
        if _fullest(occupancy) >= fullest:
            break
    return done


def _fullest(occupancy: Occupancy) -> tuple[int, int]:
    """The most bytes in use at a time, and in how many ops it is about so many."""
    found = occupancy.lifetimes.bytes
    peak = max(found, default=0)
    return peak, sum(size > _LOWER * peak for size in found)


def _best(occupancy: Occupancy, goal: int) -> Choice | None:
    """What lowers the fullest moment most, or to the goal with the fewest ops."""
    best: Choice | None = None
    for node, axis in _seeds(occupancy):
        whole = grow_region(occupancy, node, axis)
        found = None if whole is None else _choose(occupancy, whole, node, goal)
        if found is not None and found.fewer > 0 and (best is None or found.rank(goal) < best.rank(goal)):
            best = found
    return best


def _seeds(occupancy: Occupancy) -> Iterator[tuple[Node, int]]:
    """Outputs that are in use at the fullest moment, with each axis that they can be cut along."""
    node = occupancy.nodes[occupancy.fullest]
    for seed in [node, *node.all_input_nodes]:
        if seed.op == "call_function":
            for axis in range(len(shape_of(seed) or ())):
                if needs(seed, axis) is not None:
                    yield seed, axis


# Which part of it -----------------------------------------------------------------------------------------------------


def _choose(occupancy: Occupancy, whole: Region, seed: Node, goal: int) -> Choice | None:
    """The stretch of a region around an output that lowers the fullest moment most, in as few pieces as do so."""
    order = list(whole.axes)
    first = last = order.index(seed)
    most = _counts(whole)[-1]

    def cost(begin: int, end: int) -> tuple[float, ...]:
        part = part_of(whole, order[begin : end + 1], seed)
        choice = None if part is None else _estimate(occupancy, part, most)
        return (math.inf,) if choice is None else choice.rank(goal)

    for _ in range(2):
        first = min(range(last + 1), key=lambda begin: cost(begin, last))
        last = min(range(first, len(order)), key=lambda end: cost(first, end))
    part = part_of(whole, order[first : last + 1], seed)
    return None if part is None else _fewest(occupancy, part, goal)


def _counts(region: Region) -> list[int]:
    """Numbers of pieces, ascending."""
    largest = max(map(nbytes, region.axes))
    return [count for count in _COUNTS if count <= region.grains and largest >= count * _LEAST_BYTES] or [2]


def _fewest(occupancy: Occupancy, region: Region, goal: int) -> Choice | None:
    """In as few pieces as reach the goal, or as do not give much away."""
    best: Choice | None = None
    for count in _counts(region):
        found = _estimate(occupancy, region, count)
        if found is None:
            continue
        if best is None or found.full < best.full or found.peak < _WORTH * best.peak or found.peak <= goal < best.peak:
            best = found
        if best.full == 0 and best.peak <= goal:
            break
    return best


def _estimate(occupancy: Occupancy, region: Region, pieces: int) -> Choice | None:
    """What it would do to memory; None if it cannot be done so.

    All pieces are done where the last op is. Each op of the region stands for one of its pieces.
    """
    at, lifetimes = occupancy.at, occupancy.lifetimes
    nodes, outputs = list(region.axes), region.outputs
    last, fullest = at[nodes[-1]], occupancy.fullest
    used = max((lifetimes.last[lifetimes.home_of(at[node])] for node in outputs), default=last)
    begin, end = min(at[nodes[0]], fullest), max(fullest, min(used, last + _AFTER))
    others = [node for node in occupancy.nodes[begin : end + 1] if node not in region.axes]
    first = [node for node in others if at[node] < last]
    if not outputs or not all(is_whole(node) for node in outputs) or _are_dependent(first, region):
        return None
    window = Window(occupancy, begin, end)
    for node in first:
        window.add_node(node)
    window.add_region(region, pieces)
    for node in others[len(first) :]:
        window.add_node(node)
    limit = _LOWER * lifetimes.bytes[fullest]
    after = window.bytes()
    full = sum(size > limit for size in after)
    fewer = sum(size > limit for size in lifetimes.bytes[begin : end + 1]) - full
    return Choice(region, pieces, full, fewer, max((size for size in after if size <= limit), default=0))


def _are_dependent(others: Iterable[Node], region: Region) -> bool:
    """Do any of these need what the region makes, or may change what it reads?"""
    return any("auto_functionalized" in str(node.target) for node in others) or any(
        source in region.axes for node in others for source in node.all_input_nodes
    )


# How it is written ----------------------------------------------------------------------------------------------------


def _rewrite(editor: Editor, choice: Choice) -> None:
    """Put the pieces in the place of the region's ops."""
    region = choice.region
    nodes, outputs = list(region.axes), region.outputs
    made: dict[Node, list[Node]] = {node: [] for node in outputs}
    bounds = [region.grains * number // choice.pieces for number in range(choice.pieces + 1)]
    for begin, end in pairwise(bounds):
        piece = _Piece(editor, region, begin, end)
        for node in nodes:
            with editor.before(nodes[-1], line=node):
                new = piece.make(node)
            if node in made:
                made[node].append(new)
    for node in outputs:
        with editor.before(nodes[-1], line=node):
            whole = editor.call("cat.default", made[node], region.axes[node])
        editor.redirect(node, whole, region.axes)
    for node in reversed(nodes):
        editor.graph.erase_node(node)


class _Piece:
    """One piece of all ops of a region, from one grain to before another."""

    def __init__(self, editor: Editor, region: Region, begin: int, end: int) -> None:
        self._editor, self._region, self._begin, self._end = editor, region, begin, end
        self._made: dict[Node, Node] = {}
        self._slices: dict[tuple[Node, int], Node] = {}

    def make(self, node: Node) -> Node:
        """The piece of an op; pieces of its inputs were made before."""
        from torch.fx.node import map_arg

        axes, axis = self._region.needs[node].axes, self._region.axes[node]
        given: tuple[Any, ...] = map_arg(arguments(node), lambda source: self._input(source, axes[source]))
        kwargs = map_arg(dict(node.kwargs), lambda source: self._input(source, axes[source]))
        begin, end = self._range(node, axis)
        changed = piece_arguments(node, axis, end - begin, given)
        target = "view_copy.default" if kind_of(node) in VIEWS else node.target
        self._made[node] = made = self._editor.call(target, *changed, **kwargs)
        return made

    def _input(self, source: Node, axis: int | None) -> Node:
        if source in self._made:
            return self._made[source]
        if axis is None:
            return source
        if (source, axis) not in self._slices:
            part = self._editor.call("slice_copy.Tensor", source, axis, *self._range(source, axis))
            self._slices[source, axis] = part
        return self._slices[source, axis]

    def _range(self, node: Node, axis: int) -> tuple[int, int]:
        shape = shape_of(node)
        assert shape is not None
        rows = shape[axis] // self._region.grains
        return self._begin * rows, self._end * rows
