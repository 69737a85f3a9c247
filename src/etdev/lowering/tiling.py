"""Tiling of ops at the peak of a method.

At the peak, most of the memory often belongs to outputs that only the next op needs. Examples are the hidden layer of
an MLP, the scores of attention and the widened channels of a mobile network. A few ops compute these outputs from small
tensors. Often, all of these ops work along one axis, so they can compute one tile after another. Then only the small
tensors exist as a whole.

A *region* is a set of such ops. The module tiles the region that lowers the peak most. It repeats this with the new
peak until it cannot lower the peak further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from etdev.lowering import convolution
from etdev.lowering.axes import VIEWS, needs, piece_arguments, shape_of
from etdev.lowering.estimates import PEAK, Choice, Estimates
from etdev.lowering.graph import INSTRUCTION_BYTES, Editor, arguments
from etdev.lowering.occupancy import Occupancy, kind_of, nbytes
from etdev.lowering.regions import Region, grow_region, part_of
from etdev.lowering.repeats import Repeats

if TYPE_CHECKING:
    from torch.fx import Graph, Node

_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Possible numbers of tiles of a region."""
_WORTH = 0.97
"""A larger number of tiles is used if its peak is below this fraction of a smaller number's peak.

It is also used if only the larger number reaches the goal, or leaves fewer ops at the peak.
"""
_ENOUGH = 1.05
"""First goal for the peak, as a multiple of the lowest reachable peak."""
_MOST_ADDED = 2_000
"""Maximum number of ops that tiling may add to a method. Each op adds a few hundred bytes to the file."""
_MOST_TRIED = 20_000
"""Maximum number of added ops during the search for the lowest reachable peak."""
_STEP = 1.1
"""Factor from one goal for the peak to the next."""
_WIDE_STEP = 1.25
"""Factor from one goal to the next if the costs of all goals are compared. That comparison is slower."""
_FREE = VIEWS | {"slice_copy", "cat", "getitem"}
"""Ops that the linker usually removes."""
_LEAST_BYTES = 1_024
"""Minimum size in bytes of each tile of a region's largest output."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A tiling of a region. Ops are represented by their indices in the graph."""

    axes: tuple[tuple[int, int], ...]
    """Index and axis of each op."""
    grains: int
    pieces: int

    @classmethod
    def of(cls, choice: Choice, at: Mapping[Node, int]) -> _Step:
        """Return the step that tiles the region of a choice; ``at`` maps the graph's ops to indices."""
        axes = tuple((at[node], axis) for node, axis in choice.region.axes.items())
        return cls(axes, choice.region.grains, choice.pieces)

    def region(self, nodes: Sequence[Node]) -> Region:
        """Return the step's region in a graph. ``nodes`` are the graph's nodes, in order."""
        axes = {nodes[index]: axis for index, axis in self.axes}
        found = {node: needs(node, axis) for node, axis in axes.items()}
        return Region(axes, {node: what for node, what in found.items() if what is not None}, self.grains)


def tile(editor: Editor) -> int:
    """Tile ops as the settings require. Return the number of tiled ops."""
    if editor.settings.tiling == "off":
        return 0
    tilings = _Tilings(editor)
    goals = tilings.goals()
    found = next(goals, None) if editor.settings.tiling == "always" else _cheapest(editor, goals)
    for step in found.steps if found else ():
        _rewrite(editor, step.region(list(editor.graph.nodes)), step.pieces)
    editor.is_tiled |= found is not None
    return 0 if found is None else sum(len(step.axes) for step in found.steps)


class _Tiling(NamedTuple):
    """Steps that tile a graph, and their result."""

    steps: tuple[_Step, ...]
    """Tilings of regions. The indices of a step refer to the graph after the steps before it."""
    peak: int
    """Estimated peak in bytes after the steps."""
    graph: Graph
    """Tiled copy of the graph."""


class _Tilings:
    """Tilings of one graph. Results are stored in :attr:`Editor.known`, where editors of equal graphs find them."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        occupancy = editor.occupancy()
        self._peak = occupancy.peak()
        # The names of the inputs tell which of them are constants.
        inputs = tuple(node.name for node in occupancy.nodes if node.op == "placeholder")
        self._identity = inputs, _identity(occupancy)

    def goals(self) -> Iterator[_Tiling]:
        """Yield a tiling for each goal for the peak that tiling can reach, lowest goal first."""
        lowest = self._known("lowest peak", self._lowest_peak)
        if lowest is None:
            return
        is_wide = self._editor.settings.tiling != "always"
        # Begin a little above the lowest reachable peak. Tiling ops below that peak would gain nothing.
        goal = int(_ENOUGH * lowest)
        while goal < self._peak:
            found = self._known(goal, partial(_lowered, self._editor, goal, _MOST_ADDED))
            if found.steps and found.peak <= goal:
                yield found
            goal = int(goal * (_WIDE_STEP if is_wide else _STEP))

    def _known(self, what: int | str, compute: Callable[[], Any]) -> Any:
        key = "tiling", self._identity, what
        if key not in self._editor.known:
            self._editor.known[key] = compute()
        return self._editor.known[key]

    def _lowest_peak(self) -> int | None:
        """Return the lowest peak that tiling can reach, or None if tiling cannot lower the peak."""
        found = _lowered(self._editor, 0, _MOST_TRIED)
        return found.peak if found.steps else None


def _cheapest(editor: Editor, goals: Iterable[_Tiling]) -> _Tiling | None:
    """Return the best of the tilings, or None if the graph without tiling is better than all of them.

    The criteria, in order: the fewest bytes above the method's room, the fewest slow convolutions, and the fewest bytes
    of memory and instructions.
    """
    return min((None, *goals), key=lambda goal: _price(editor.on(goal.graph) if goal else editor))


def _price(editor: Editor) -> tuple[int, int, int]:
    left, size = convolution.price(editor)
    room = editor.settings.room
    missing = 0 if room is None else max(0, editor.occupancy().peak() - room)
    ops = sum(node.op == "call_function" and kind_of(node) not in _FREE for node in editor.graph.nodes)
    return missing, left, size + INSTRUCTION_BYTES * ops


def _lowered(editor: Editor, goal: int, most_added: int) -> _Tiling:
    """Lower the peak of a copy of the graph to the goal, or as close as possible."""
    trial = editor.copy()
    steps = tuple(_Step.of(choice, at) for choice, at in _search(trial, goal, most_added))
    return _Tiling(steps, trial.occupancy().peak(), trial.graph)


def _search(editor: Editor, goal: int, most_added: int) -> Iterator[tuple[Choice, Mapping[Node, int]]]:
    """Tile regions until the peak is at the goal, or cannot be lowered further.

    Yield each tiled region, with the indices that the graph's ops had just before that tiling.
    """
    added, occupancy = 0, editor.occupancy()
    repeats = editor.known.setdefault("repeats", Repeats())
    while (highest := _peak_of(occupancy)) > (goal, 0):
        choice = _best(occupancy, goal, repeats)
        if choice is None or added + choice.added > most_added:
            break
        _rewrite(editor, choice.region, choice.pieces)
        yield choice, occupancy.at
        added += choice.added
        occupancy = editor.occupancy(occupancy)
        if _peak_of(occupancy) >= highest:
            break


def _identity(occupancy: Occupancy) -> Hashable:
    """Return a key for a graph. If two graphs have equal keys, tiling makes the same choices in both graphs."""
    from torch.fx import Node

    def shown(item: Any) -> Hashable:
        if isinstance(item, (tuple, list)):
            return tuple(map(shown, item))
        return occupancy.at[item] if isinstance(item, Node) else repr(item)

    ops = tuple(
        (node.target if node.op == "call_function" else node.op, shown(node.args), shown(tuple(node.kwargs.items())))
        for node in occupancy.nodes
    )
    values = tuple(repr(node.meta.get("val")) for node in occupancy.nodes)
    return ops, tuple(occupancy.ops), values


def _peak_of(occupancy: Occupancy) -> tuple[int, int]:
    """Return the peak in bytes, and the number of ops whose bytes in use are close to the peak."""
    found = occupancy.lifetimes.bytes
    peak = max(found, default=0)
    return peak, sum(size > PEAK * peak for size in found)


def _best(occupancy: Occupancy, goal: int, repeats: Repeats) -> Choice | None:
    """Return the tiling that lowers the peak most. Among tilings that reach the goal, prefer the fewest added ops."""
    known = repeats.find(occupancy)
    if goal in known.choices:
        return known.choice(goal, occupancy)
    best: Choice | None = None
    estimates = Estimates(occupancy, known.figures)
    for node, axis in _seeds(occupancy):
        whole = grow_region(occupancy, node, axis)
        choice = None if whole is None else _choose(estimates, whole, node, goal)
        if choice is not None and choice.fewer > 0 and (best is None or choice.rank(goal) < best.rank(goal)):
            best = choice
    repeats.add(known, estimates, goal, best)
    return best


def _seeds(occupancy: Occupancy) -> Iterator[tuple[Node, int]]:
    """Yield pairs (op, axis): the op at the peak and its inputs, each with every axis along which it can be tiled."""
    node = occupancy.nodes[occupancy.peak_index]
    for seed in [node, *node.all_input_nodes]:
        if seed.op == "call_function":
            for axis in range(len(shape_of(seed) or ())):
                if needs(seed, axis) is not None:
                    yield seed, axis


# Choice of neighbouring ops of a region -------------------------------------------------------------------------------


def _choose(estimates: Estimates, whole: Region, seed: Node, goal: int) -> Choice | None:
    """Return the best tiling of a part of the region ``whole``, or None if there is none.

    The part includes ``seed``. Its ops are neighbours in the order of the graph.
    """
    order = list(whole.axes)
    first = last = order.index(seed)
    most = _counts(whole)[-1]

    @cache
    def cost(begin: int, end: int) -> tuple[float, ...]:
        part = part_of(whole, order[begin : end + 1], seed)
        choice = None if part is None else estimates.of(part, most)
        return (math.inf,) if choice is None else choice.rank(goal)

    for _ in range(2):
        first = min(range(last + 1), key=lambda begin: cost(begin, last))
        last = min(range(first, len(order)), key=lambda end: cost(first, end))
    part = part_of(whole, order[first : last + 1], seed)
    return None if part is None else _fewest(estimates, part, goal)


def _counts(region: Region) -> list[int]:
    """Return the numbers of tiles to try for a region, in ascending order."""
    largest, grains = max(map(nbytes, region.axes)), region.grains
    found = [count for count in _COUNTS if count <= grains and largest >= count * _LEAST_BYTES] or [2]
    # More tiles than these do not make the largest tile smaller.
    return sorted({-(-grains // -(-grains // count)) for count in found})


def _fewest(estimates: Estimates, region: Region, goal: int) -> Choice | None:
    """Return the choice with the fewest tiles that reaches the goal, or comes close to the best choice.

    Return None if the region cannot be tiled.
    """
    best: Choice | None = None
    for count in _counts(region):
        found = estimates.of(region, count)
        if found is None:
            continue
        if best is None or found.full < best.full or found.peak < _WORTH * best.peak or found.peak <= goal < best.peak:
            best = found
        if best.full == 0 and best.peak <= goal:
            break
    return best


# Rewriting ------------------------------------------------------------------------------------------------------------


def _rewrite(editor: Editor, region: Region, pieces: int) -> None:
    """Replace each op of a region by its tiles. ``pieces`` is the number of tiles of each op."""
    nodes, outputs = list(region.axes), region.outputs
    made: dict[Node, list[Node]] = {node: [] for node in outputs}
    bounds = [region.grains * number // pieces for number in range(pieces + 1)]
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
    """One tile of each op of a region, for the grains from ``begin`` to ``end`` (exclusive)."""

    def __init__(self, editor: Editor, region: Region, begin: int, end: int) -> None:
        self._editor, self._region, self._begin, self._end = editor, region, begin, end
        self._made: dict[Node, Node] = {}
        self._slices: dict[tuple[Node, int], Node] = {}

    def make(self, node: Node) -> Node:
        """Insert the tile of an op and return it. The tiles of the op's inputs must exist."""
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
