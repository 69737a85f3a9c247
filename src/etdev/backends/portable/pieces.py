"""The fullest moment of a method, done piece by piece.

Where most memory is in use, it is often by outputs that only live from one op to the next: the hidden layer of an MLP,
the scores of attention, the widened channels of a mobile network. If the ops between a few small tensors all work along
one axis, they can do a piece of it at a time, one op after the other, and only the small tensors are there as wholes.

A *region* is a set of such ops. The one that lowers the fullest moment most is done in pieces, then the fullest moment
that is left is looked at, until one cannot be lowered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from etdev.backends.portable.axes import VIEWS, Needs, is_whole, needs, piece_arguments, shape_of
from etdev.backends.portable.graph import Editor, arguments
from etdev.backends.portable.occupancy import Lifetimes, Occupancy, Op, is_run, kind_of, nbytes

if TYPE_CHECKING:
    from torch.fx import Node

_MOVEMENT = VIEWS | {
    "slice_copy",
    "cat",
    "permute_copy",
    "transpose_copy",
    "expand_copy",
    "_clone_dim_order",
    "select_copy",
    "getitem",
}
_REACH = 60
"""Ops before and after the fullest moment that a region may take in."""
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
_LEAST_BYTES = 1_024
"""Of the largest output of a piece."""


@dataclass(frozen=True, slots=True)
class Region:
    """Ops that can be done in pieces together."""

    axes: Mapping[Node, int]
    """The ops, in the order of the graph, and the axis along which each is cut."""
    needs: Mapping[Node, Needs]
    """What a piece of each is computed from."""
    grains: int
    """The number of pieces is at most that: they are made up of so many equal parts."""


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
        """Ops that it adds."""
        return (len(self.region.axes) + 1) * (self.pieces - 1)

    def rank(self, goal: int) -> tuple[int, int, int, int]:
        """The lower the better. Where others remain as full, the more are not any more the better."""
        level = round(math.log(max(self.peak, goal, 1), _ALIKE))
        return self.full, -self.fewer if self.full else 0, level, self.added


def work_in_pieces(editor: Editor) -> int:
    """Lower the fullest moment as far as it goes; the number of ops that are done in pieces now."""
    trial = editor.copy()
    if not _lower(trial, 0, _MOST_TRIED):
        return 0
    # What is lower than the moment that cannot be lowered needs no more pieces.
    goal = int(_ENOUGH * trial.occupancy().peak())
    while goal < editor.occupancy().peak():
        trial = editor.copy()
        done = _lower(trial, goal, _MOST_ADDED)
        if done and trial.occupancy().peak() <= goal:
            return _lower(editor, goal, _MOST_ADDED)
        goal = int(goal * _STEP)
    return 0


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
        whole = _grow(occupancy, node, axis)
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


# The region around an output ------------------------------------------------------------------------------------------


def _grow(occupancy: Occupancy, seed: Node, axis: int) -> Region | None:
    """All ops around an output that can be cut if that is cut along the axis."""
    axes: dict[Node, int] = {}
    found: dict[Node, Needs] = {}
    grains = (shape_of(seed) or [0])[axis]
    todo = [(seed, axis)]
    for node, own in todo:
        if node in axes or abs(occupancy.at[node] - occupancy.at[seed]) > _REACH:
            continue
        what = _fits(node, own, axes, found)
        if what is None or math.gcd(grains, what.grain) < 2:
            continue
        grains = math.gcd(grains, what.grain)
        axes[node], found[node] = own, what
        todo += [(source, along) for source, along in what.axes.items() if along is not None]
        todo += [(user, along) for user in node.users for along in _axes_for(user, node, own)]
    order = sorted(axes, key=lambda node: occupancy.at[node])
    return Region({node: axes[node] for node in order}, found, grains) if seed in axes else None


def _fits(node: Node, axis: int, axes: Mapping[Node, int], found: Mapping[Node, Needs]) -> Needs | None:
    """What a piece of the op needs, if that and what its neighbours need of it agree with how they are cut."""
    if node.op != "call_function" or shape_of(node) is None:
        return None
    what = needs(node, axis)
    if what is None or any(axes.get(source, along) != along for source, along in what.axes.items()):
        return None
    users = (found[user].axes.get(node, axis) for user in node.users if user in found)
    return what if all(along == axis for along in users) else None


def _axes_for(user: Node, source: Node, axis: int) -> Iterator[int]:
    """The axes of a user that are computed from that axis of what it uses."""
    for own in range(len(shape_of(user) or ())):
        what = needs(user, own)
        if what is not None and what.axes.get(source, -1) == axis:
            yield own


# Which part of it -----------------------------------------------------------------------------------------------------


def _choose(occupancy: Occupancy, whole: Region, seed: Node, goal: int) -> Choice | None:
    """The stretch of a region around an output that lowers the fullest moment most, in as few pieces as do so."""
    order = list(whole.axes)
    first = last = order.index(seed)
    most = _counts(whole)[-1]

    def cost(begin: int, end: int) -> tuple[float, ...]:
        part = _part(whole, order[begin : end + 1], seed)
        choice = None if part is None else _estimate(occupancy, part, most)
        return (math.inf,) if choice is None else choice.rank(goal)

    for _ in range(2):
        first = min(range(last + 1), key=lambda begin: cost(begin, last))
        last = min(range(first, len(order)), key=lambda end: cost(first, end))
    part = _part(whole, order[first : last + 1], seed)
    return None if part is None else _fewest(occupancy, part, goal)


def _counts(region: Region) -> list[int]:
    """Numbers of pieces, ascending."""
    largest = max(map(nbytes, region.axes))
    return [count for count in _COUNTS if count <= region.grains and largest >= count * _LEAST_BYTES] or [2]


def _part(whole: Region, chosen: Iterable[Node], seed: Node) -> Region | None:
    """The chosen ops of a region that hang together with the seed.

    None if it is not among them, if they compute nothing, or if they take one of several outputs of an op that is not.
    """
    inside = set(chosen)
    if seed not in inside:
        return None
    connected, todo = {seed}, [seed]
    while todo:
        node = todo.pop()
        near = {*whole.needs[node].axes, *node.users} & (inside - connected)
        connected |= near
        todo += near
    axes = {node: axis for node, axis in whole.axes.items() if node in connected}
    if all(kind_of(node) in _MOVEMENT for node in axes):
        return None
    if any(kind_of(node) == "getitem" and node.all_input_nodes[0] not in connected for node in axes):
        return None
    return Region(axes, whole.needs, whole.grains)


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


def _outputs(region: Region) -> list[Node]:
    """What others need of it."""
    return [node for node in region.axes if any(user not in region.axes for user in node.users)]


def _estimate(occupancy: Occupancy, region: Region, pieces: int) -> Choice | None:
    """What it would do to memory; None if it cannot be done so.

    All pieces are done where the last op is. Each op of the region stands for one of its pieces.
    """
    at, lifetimes = occupancy.at, occupancy.lifetimes
    nodes, outputs = list(region.axes), _outputs(region)
    last, fullest = at[nodes[-1]], occupancy.fullest
    used = max((lifetimes.last[lifetimes.home_of(at[node])] for node in outputs), default=last)
    begin, end = min(at[nodes[0]], fullest), max(fullest, min(used, last + _AFTER))
    others = [node for node in occupancy.nodes[begin : end + 1] if node not in region.axes]
    first = [node for node in others if at[node] < last]
    if not outputs or not all(is_whole(node) for node in outputs) or _are_dependent(first, region):
        return None
    window = _Window(occupancy, begin, end)
    for node in first:
        window.add_node(node)
    window.open_region(outputs)
    for node in nodes:
        window.add_piece(node, region, pieces)
    window.close_region(outputs, region)
    for node in others[len(first) :]:
        window.add_node(node)
    limit = _LOWER * lifetimes.bytes[fullest]
    after = window.bytes()
    full = sum(size > limit for size in after)
    fewer = sum(size > limit for size in lifetimes.bytes[begin : end + 1]) - full
    return Choice(region, pieces, full, fewer, max((size for size in after if size <= limit), default=0))


def _are_dependent(others: Iterable[Node], region: Region) -> bool:
    """Do any of these need what the region makes?"""
    return any(source in region.axes for node in others for source in node.all_input_nodes)


class _Window:
    """What the memory of a stretch of a graph would be with other ops in it."""

    def __init__(self, occupancy: Occupancy, begin: int, end: int) -> None:
        self._occupancy, self._begin, self._end = occupancy, begin, end
        self._ops: list[Op] = []
        self._at: dict[Node, int] = {}
        self._homes: dict[int, int] = {}
        """By home in the whole graph of what was made before, its place here."""
        self._used: set[int] = set()
        self._slices: dict[tuple[Node, int], int] = {}
        self._opened = 0

    def add_node(self, node: Node) -> None:
        """An op as it is."""
        op = self._occupancy.ops[self._occupancy.at[node]]
        self._at[node] = self._add(op._replace(sources=tuple(map(self._place, node.all_input_nodes))))

    def open_region(self, outputs: Iterable[Node]) -> None:
        """From here on the outputs have their memory."""
        self._opened = len(self._ops)
        self._add(Op("", (), 0))
        self._outputs = set(outputs)

    def add_piece(self, node: Node, region: Region, pieces: int) -> None:
        """One piece of an op of the region."""
        sources = []
        for source, axis in region.needs[node].axes.items():
            if source in region.axes or axis is None:
                sources.append(self._place(source))
                continue
            if (source, axis) not in self._slices:
                along = is_run(shape_of(source) or (), axis)
                planned = self._occupancy.ops[self._occupancy.at[source]].is_planned
                part = Op("slice_copy", (self._place(source),), nbytes(source) // pieces, planned, along)
                self._slices[source, axis] = self._add(part)
            sources.append(self._slices[source, axis])
        kept = node in self._outputs and not is_run(shape_of(node) or (), region.axes[node])
        size = nbytes(node) if kept else nbytes(node) // pieces
        since = self._opened if kept else None
        kind = "kept" if kept else kind_of(node)
        self._at[node] = self._add(Op(kind, tuple(sources), size, since=since))

    def close_region(self, outputs: Iterable[Node], region: Region) -> None:
        """What the pieces make is put together; what they are made from was needed up to here."""
        inputs = {source for node in region.axes for source in region.needs[node].axes if source not in region.axes}
        self._add(Op("", tuple(map(self._place, inputs)), 0))
        for node in outputs:
            along = is_run(shape_of(node) or (), region.axes[node])
            whole = Op("cat", (self._at[node],), nbytes(node), runs_along=along, since=self._opened if along else None)
            self._at[node] = self._add(whole)

    def bytes(self) -> list[int]:
        """In use while each of the ops runs, with what is in use the whole time."""
        after = [self._at[node] for node in self._at if self._lives_on(node)]
        after += [place for home, place in self._homes.items() if self._occupancy.lifetimes.last[home] > self._end]
        beside = self._beside()
        found = Lifetimes([*self._ops, Op("", tuple(after), 0)]).bytes[:-1]
        return [size + beside for size, op in zip(found, self._ops, strict=True) if op.kind]

    def _lives_on(self, node: Node) -> bool:
        return any(self._occupancy.at[user] > self._end for user in node.users)

    def _beside(self) -> int:
        """Bytes that are in use from before to after the stretch and that it has nothing to do with."""
        lifetimes, ops = self._occupancy.lifetimes, self._occupancy.ops
        return sum(
            ops[at].nbytes
            for at in self._occupancy.at_fullest
            if at not in self._homes and lifetimes.first[at] < self._begin and lifetimes.last[at] > self._end
        )

    def _place(self, node: Node) -> int:
        """Where a node's output is here; what was made before, is made before all else."""
        if node in self._at:
            return self._at[node]
        home = self._occupancy.lifetimes.home_of(self._occupancy.at[node])
        if home not in self._homes:
            op = self._occupancy.ops[home]
            self._homes[home] = self._add(Op("", (), op.nbytes, op.is_planned, since=0))
        return self._homes[home]

    def _add(self, op: Op) -> int:
        self._ops.append(op)
        return len(self._ops) - 1


# How it is written ----------------------------------------------------------------------------------------------------


def _rewrite(editor: Editor, choice: Choice) -> None:
    """Put the pieces in the place of the region's ops."""
    region = choice.region
    nodes, outputs = list(region.axes), _outputs(region)
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
        rows = (shape_of(node) or [0])[axis] // self._region.grains
        return self._begin * rows, self._end * rows
