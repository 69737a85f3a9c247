"""Tiling of ops at the peak of a method.

At the peak, most of the memory often belongs to outputs that only the next op needs. Examples are the hidden layer of
an MLP, the scores of attention and the widened channels of a mobile network. A few ops compute these outputs from small
tensors. Often, all of these ops work along one axis, so they can compute one tile after another. Then only the small
tensors exist as a whole.

A *region* is a set of such ops. The module tiles the region that lowers the peak most. It repeats this with the new
peak until it cannot lower the peak further.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from etdev.lowering import convolution, pooling
from etdev.lowering.axes import VIEWS, shape_of
from etdev.lowering.choice import choose
from etdev.lowering.estimates import PEAK, Choice, Estimates
from etdev.lowering.graph import INSTRUCTION_BYTES, Editor
from etdev.lowering.halos import POOLING
from etdev.lowering.occupancy import Occupancy, Workspace, kind_of
from etdev.lowering.regions import Region, grow_region, known_needs
from etdev.lowering.repeats import Repeats, facts_of
from etdev.lowering.tiles import rewrite_region

if TYPE_CHECKING:
    from torch.fx import Node

_ENOUGH = 1.05
"""First goal for the peak, as a multiple of the lowest reachable peak."""
_MOST_ADDED = 2_000
"""Maximum number of ops that tiling may add to a method. Each op adds a few hundred bytes to the file."""
_HOPELESS = 1.5
"""A search ends early if, to lower the peak, it would probably exceed its maximum of added ops by this factor."""
_MOST_TRIED = 20_000
"""Maximum number of added ops during the search for the lowest reachable peak."""
_STEP = 1.17
"""Factor by which the next goal exceeds the current one, or the peak reached for the current one if that is lower."""
_FINE_STEP = 1.08
"""Factor from one goal to the next in :meth:`_Trials.reach`, which ends at the first goal that is reached."""
_LEAST_STEP = 1.03
"""Smallest factor from one goal to the next."""
_NEAR = 0.9, 0.95, 1.055, 1.11
"""Goals that :meth:`_Trials.refine` tries, as multiples of the best goal. They are between it and its neighbors."""
_FREE = VIEWS | {"getitem"}
"""Ops that the linker usually removes."""
_JOINS = frozenset({"slice_copy", "cat"})
"""Ops that the linker usually removes if each slice, or each part, is one run of bytes."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A tiling of a region. Ops are represented by their indices in the graph."""

    ops: tuple[tuple[int, int, int], ...]
    """Index, axis and number of grains of each op."""
    pieces: int

    @classmethod
    def of(cls, choice: Choice, at: Mapping[Node, int]) -> _Step:
        """Return the step that tiles the region of a choice; ``at`` maps the graph's ops to indices."""
        region = choice.region
        return cls(tuple((at[node], axis, region.grains[node]) for node, axis in region.axes.items()), choice.pieces)

    def region(self, nodes: Sequence[Node]) -> Region:
        """Return the step's region in a graph. ``nodes`` are the graph's nodes, in order."""
        return Region.of((nodes[index], axis, grains) for index, axis, grains in self.ops)


def tile(editor: Editor) -> int:
    """Tile ops as the settings require. Return the number of tiled ops."""
    if editor.settings.tiling == "off":
        return 0
    searches = [_Tilings(editor)]
    convolutions = editor.calls("convolution.default") if "convolution" in editor.settings.names else []
    convolutions = [node for node in convolutions if convolution.workspace(node)]
    if convolutions and searches[0].are_too_large(convolutions, convolution.workspace):
        searches.append(_Tilings(editor, convolution.workspace))
    steps = _cheapest(editor, searches)
    _apply(editor, steps)
    editor.is_tiled |= bool(steps)
    return sum(len(step.ops) for step in steps)


def _apply(editor: Editor, steps: Sequence[_Step]) -> None:
    for step in steps:
        rewrite_region(editor, step.region(list(editor.graph.nodes)), step.pieces)


class _Tiling(NamedTuple):
    """Steps that tile a graph, and their result."""

    steps: tuple[_Step, ...]
    """Tilings of regions. The indices of a step refer to the graph after the steps before it."""
    peak: int
    """Estimated peak in bytes after the steps."""
    costs: dict[Hashable, _Cost]
    """Known costs of the tiled graph, by the settings on which they depend."""


class _Tilings:
    """Tilings of one graph. Results are stored in :attr:`Editor.known`, where editors of equal graphs find them.

    ``workspace`` returns the bytes that an op needs besides its inputs and its output; None means that no op needs any.
    """

    def __init__(self, editor: Editor, workspace: Workspace | None = None) -> None:
        self._editor, self._workspace = editor, workspace
        occupancy = editor.occupancy(workspace=workspace)
        self.peak = occupancy.peak()
        """Peak of the graph in bytes."""
        self._peaks: dict[int, int] = {}
        """Peak of the tiling for each goal that was asked for."""
        # The names of the inputs tell which of them are constants.
        inputs = tuple(node.name for node in occupancy.nodes if node.op == "placeholder")
        self._identity = inputs, _identity(occupancy)

    def lowest_peak(self) -> int | None:
        """Return an estimate of the lowest peak that tiling can reach, or None if tiling cannot lower the peak."""
        found: _Tiling = self._known("lowest peak", partial(self._lowered, 0, _MOST_TRIED))
        return found.peak if found.steps else None

    def lowest_goal(self) -> int:
        """Return the first goal for the peak, or the peak itself if tiling cannot lower it.

        The goal is a little above the lowest reachable peak. Tiling an op during which fewer bytes are in use would
        gain nothing. If the goal is not below the graph's peak, there is no goal to try.
        """
        lowest = self.lowest_peak()
        return self.peak if lowest is None else int(_ENOUGH * lowest)

    def are_too_large(self, ops: Sequence[Node], workspace: Workspace) -> bool:
        """Return whether ops with their workspaces exceed the lowest goal, before or after the tiling for that goal.

        If the tiling misses the goal, the limit after the tiling is the peak that it reached. If the result is False, a
        search usually makes the same choices with and without the workspaces.
        """
        goal = self.lowest_goal()
        occupancy = self._editor.occupancy(workspace=workspace)
        if any(occupancy.during(node) > goal for node in ops):
            return True
        if goal >= self.peak:
            return False
        found = self.for_goal(goal)
        trial = self._editor.copy()
        _apply(trial, found.steps)
        return trial.occupancy(workspace=workspace).peak() > max(goal, found.peak)

    def for_goal(self, goal: int) -> _Tiling:
        """Return a tiling that lowers the peak to the goal, or as close as possible. It may miss the goal slightly."""
        found: _Tiling = self._known(goal, partial(self._lowered, goal, _MOST_ADDED))
        self._peaks[goal] = found.peak
        return found

    def has_reached(self, goal: int) -> bool:
        """Return whether the tiling for a higher goal also reaches this goal. Both tilings are usually the same."""
        return any(peak <= goal < tried for tried, peak in self._peaks.items())

    def cost(self, found: _Tiling) -> _Cost:
        """Return the cost of a tiling with the editor's settings."""
        key = self._editor.settings, self._editor.limit
        if key not in found.costs:
            trial = self._editor.copy()
            _apply(trial, found.steps)
            found.costs[key] = _cost(trial)
        return found.costs[key]

    def _known(self, what: int | str, compute: Callable[[], Any]) -> Any:
        key = "tiling", self._identity, what
        if key not in self._editor.known:
            self._editor.known[key] = compute()
        return self._editor.known[key]

    def _lowered(self, goal: int, most_added: int) -> _Tiling:
        """Lower the peak of a copy of the graph to the goal, or as close as possible."""
        trial = self._editor.copy()
        steps, is_current = _search(trial, goal, most_added, self._workspace)
        if not is_current:
            trial = self._editor.copy()
            _apply(trial, steps)
        peak = trial.occupancy(workspace=self._workspace).peak()
        return _Tiling(steps, peak, {(trial.settings, trial.limit): _cost(trial)} if goal else {})


def _cheapest(editor: Editor, searches: Sequence[_Tilings]) -> tuple[_Step, ...]:
    """Return the steps of the tiling with the lowest cost, or no steps if the graph costs least without tiling."""
    trials = _Trials(editor)
    if editor.settings.tiling == "always":
        for search in searches:
            trials.reach(search)
        return trials.steps
    lowest = searches[0].lowest_goal()
    for search in searches:
        # The best goal of one search is often a good one for the other, but may be between the goals of the latter.
        if trials.goal is not None:
            trials.compare(search, trials.goal)
        trials.climb(search, lowest)
    trials.refine(lowest)
    return trials.steps


class _Trials:
    """Tilings of a graph that were tried for several goals, and the cheapest of these tilings."""

    def __init__(self, editor: Editor) -> None:
        self.steps: tuple[_Step, ...] = ()
        """Steps of the cheapest tiling. There are none while the graph costs least without tiling."""
        self.goal: int | None = None
        """Goal of the cheapest tiling."""
        self._search: _Tilings | None = None
        """Search that found the cheapest tiling."""
        self._least = _cost(editor)
        self._untiled = _instruction_bytes(editor, editor.occupancy())

    def reach(self, search: _Tilings) -> None:
        """Try the lowest goal that a search reaches."""
        goal = search.lowest_goal()
        while goal < search.peak:
            found = search.for_goal(goal)
            if found.steps and found.peak <= goal:
                self.compare(search, goal)
                return
            goal = max(goal + 1, int(_FINE_STEP * goal))

    def climb(self, search: _Tilings, goal: int) -> None:
        """Try higher and higher goals, first ``goal``.

        Each goal also depends on the peak of the tiling before it. So successive tilings usually differ.
        """
        is_first = True
        while self._is_promising(search, goal):
            reached = self.compare(search, goal)
            is_too_low = is_first and reached > goal
            goal = max(int(_LEAST_STEP * goal), int(_STEP * min(goal, reached))) + 1
            if is_too_low:
                goal = max(goal, search.lowest_goal())
            is_first = False

    def compare(self, search: _Tilings, goal: int) -> int:
        """Compare the tiling for a goal with the cheapest one. Return the tiling's peak."""
        found = search.for_goal(goal)
        if found.steps and (cost := search.cost(found)) < self._least:
            self.steps, self._least, self.goal, self._search = found.steps, cost, goal, search
        return found.peak

    def refine(self, lowest: int) -> None:
        """Try goals near the best one with the search that found it. ``lowest`` is the lowest goal to try."""
        search, best = self._search, self.goal
        if search is not None and best is not None:
            for goal in [int(factor * best) for factor in _NEAR]:
                if goal >= lowest and not search.has_reached(goal) and self._is_promising(search, goal):
                    self.compare(search, goal)

    def _is_promising(self, search: _Tilings, goal: int) -> bool:
        """Return False if tilings for the goal usually cost more than the best one, even without added instructions."""
        is_needed = bool(self._least.missing or self._least.left)
        return goal < search.peak and (is_needed or goal + self._untiled <= self._least.size)


class _Cost(NamedTuple):
    """Cost of a graph. Lower costs are better, and earlier fields matter more."""

    missing: int
    """Number of bytes above the method's room."""
    left: int
    """Number of convolutions that keep a slow kernel because no tiling fits the limit."""
    size: int
    """Number of bytes of memory and instructions. If ``settings.tiling`` is ``always``, the estimated peak alone."""


def _cost(editor: Editor) -> _Cost:
    left, size = convolution.price(editor)
    occupancy, room = editor.occupancy(), editor.settings.room
    if editor.settings.tiling == "always":
        return _Cost(0, left, occupancy.peak())
    missing = 0 if room is None else max(0, occupancy.peak() - room)
    return _Cost(missing, left, size + _instruction_bytes(editor, occupancy))


def _instruction_bytes(editor: Editor, occupancy: Occupancy) -> int:
    """Return the estimated bytes of instructions, after the link and after poolings get their forms.

    Return 0 if ``settings.tiling`` is ``always``, because the cost then ignores instructions.
    """
    if editor.settings.tiling == "always":
        return 0
    shifts = POOLING if "pooling" in editor.settings.names else frozenset()
    calls = 0
    for node, op in zip(occupancy.nodes, occupancy.ops, strict=True):
        kind = kind_of(node)
        if node.op != "call_function" or kind in _FREE or (kind in _JOINS and op.runs_along):
            continue
        calls += pooling.estimate_calls(node) if kind in shifts else 1
    return INSTRUCTION_BYTES * calls


def _search(editor: Editor, goal: int, most_added: int, workspace: Workspace | None) -> tuple[tuple[_Step, ...], bool]:
    """Tile regions until the peak is at the goal, or cannot be lowered further.

    Return the tilings that lowered the peak, and a flag. The flag is False if the editor's graph also contains one more
    tiling, which did not lower the peak.
    """
    steps: list[_Step] = []
    added, occupancy = 0, editor.occupancy(workspace=workspace)
    repeats = editor.known.setdefault(("repeats", workspace is None), Repeats())
    while (highest := _peak_of(occupancy)) > (goal, 0):
        choice = _best(occupancy, goal, repeats)
        if choice is None or added + choice.added > most_added:
            break
        if added + _least_added(occupancy, choice) > _HOPELESS * most_added:
            break
        step = _Step.of(choice, occupancy.at)
        rewrite_region(editor, choice.region, choice.pieces)
        added += choice.added
        occupancy = editor.occupancy(occupancy, workspace)
        if _peak_of(occupancy) >= highest:
            return tuple(steps), False
        steps.append(step)
    return tuple(steps), True


def _least_added(occupancy: Occupancy, choice: Choice) -> int:
    """Estimate the least number of ops that tilings add until the peak is lower.

    Equal ops at the peak belong to equal layers. Each layer needs a tiling like ``choice``.
    """
    sizes, peak = occupancy.lifetimes.bytes, occupancy.peak_index
    target = occupancy.nodes[peak].target
    alike = [at for at, node in enumerate(occupancy.nodes) if sizes[at] == sizes[peak] and node.target == target]
    places = [peak, *(occupancy.at[node] for node in choice.region.axes)]
    own = sum(min(places) <= at <= max(places) for at in alike)
    return choice.added * len(alike) // own


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
    values = tuple(facts_of(node.meta.get("val")) for node in occupancy.nodes)
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
    estimates = Estimates(occupancy, known.figures, known.overlaps)
    for node, axis in _seeds(occupancy):
        whole = grow_region(occupancy, node, axis)
        choice = None if whole is None else choose(estimates, whole, node, goal)
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
                # Ops that cannot be tiled must be recorded, too, because the choice depends on them.
                if known_needs(occupancy, seed, axis) is not None:
                    yield seed, axis
