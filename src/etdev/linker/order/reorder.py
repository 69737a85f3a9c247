"""The pass ``order``: put independent instructions in an order with a lower peak of planned memory.

Instructions move only inside straight regions, which have no jumps, moves between values, or targets of jumps. Some
instructions add a row to the output of a loop. No instruction moves across them, because the proof of a link needs them
at their positions. Two instructions whose order matters (see :mod:`etdev.linker.order.hazards`) keep their order.

The pass needs the storages of the method after a link in the present order. From these storages, the search knows which
tensors share bytes, and so how much memory an order needs. If tensors share bytes, the search treats accesses to them
as accesses to the same bytes. Later passes decide again which tensors share bytes, and may find more such tensors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise

from etdev.linker.edit import in_order
from etdev.linker.options import LinkOptions
from etdev.linker.order.hazards import Hazards
from etdev.linker.order.improve import improve
from etdev.linker.order.problem import Item, Problem, least_in_use
from etdev.linker.order.search import Effort
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import COPY_INDEX
from etdev.program.analysis.storage import MethodMemory


def reorder(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Move instructions so that the method's peak memory is lower. Move none if ``method.linked`` is None."""
    if method.linked is None:
        return Changed(method)
    order: dict[int, int] = {}
    for start, steps in better_orders(method, method.linked, options.alignment).items():
        order.update({start + number: start + step for number, step in enumerate(steps)})
    method = replace(method, linked=None)
    if not order:
        return Changed(method)
    plan, moved = in_order(method.plan, order)
    return Changed(replace(method, plan=plan, reordered=True), moved)


def better_orders(method: Method, linked: MethodMemory, alignment: int) -> dict[int, tuple[int, ...]]:
    """Find better orders of instructions. Return a map from a region's first position to the region's new order.

    Only regions that change are in the map. Instructions of a region are numbered from 0. The map is empty if the peak
    would stay the same. ``linked`` has the storages of the method after a link in its present order. ``alignment`` is
    the alignment of each storage in bytes.
    """
    memory = RegionMemory(method, linked, alignment)
    regions = list(straight_regions(method))
    problems = [memory.problem(start, end) for start, end in regions]
    in_use = [problem.in_use(range(len(problem))) for problem in problems]
    peaks = list(map(max, in_use))
    orders: dict[int, tuple[int, ...]] = {}
    effort = Effort()
    reached = 0
    for index in sorted(range(len(regions)), key=lambda index: (-peaks[index], index)):
        if peaks[index] <= reached:
            break
        better = None
        if least_in_use(problems[index], in_use[index].index(peaks[index])) < peaks[index]:
            problem = memory.with_dependencies(problems[index], *regions[index])
            better = improve(problem, effort).order
        if better is None:
            if peaks[index] == max(peaks):
                return {}
            break
        orders[regions[index][0]] = better
        reached = max(reached, problem.peak(better))
    return orders


class RegionMemory:
    """Memory and dependencies of the straight regions of a method."""

    def __init__(self, method: Method, linked: MethodMemory, alignment: int) -> None:
        self._method, self._linked = method, linked
        self._sizes = [-(-storage.size // alignment) * alignment for storage in linked.storages]
        self._lifetimes = _lifetimes(method.memory, linked)
        self._ranks = {storage: rank for rank, storage in enumerate(self._lifetimes)}
        self._begun = _Sums((first, self._sizes[storage]) for storage, (first, _) in self._lifetimes.items())
        self._ended = _Sums((last, self._sizes[storage]) for storage, (_, last) in self._lifetimes.items())

    @cached_property
    def _hazards(self) -> Hazards:
        return Hazards(self._method, self._linked)

    @cached_property
    def _touched(self) -> list[set[int]]:
        """For each position, the storages in ``linked`` that the instruction accesses."""
        reaching = self._method.memory.reaching
        found: list[set[int]] = [set() for _ in reaching.flow.instructions]
        accesses = [(use.position, use.place) for use in reaching.uses]
        accesses += [(write.position, write.place) for write in reaching.writes]
        for position, place in accesses:
            if 0 <= position < len(found) and place in self._linked.of:
                found[position].add(self._linked.of[place])
        return found

    def problem(self, start: int, end: int) -> Problem:
        """Return the problem for the instructions in ``range(start, end)``, without their dependencies."""
        users: dict[int, list[int]] = {}
        for position in range(start, end):
            for storage in self._touched[position]:
                users.setdefault(storage, []).append(position - start)
        items, moving = [], 0
        for storage in sorted(users.keys() & self._ranks.keys(), key=self._ranks.__getitem__):
            first, last = self._lifetimes[storage]
            before, after = first <= start, last > end + 1
            if first <= end and last > start + 1 and not (before and after):
                items.append(Item(self._sizes[storage], tuple(users[storage]), before, after))
                moving += self._sizes[storage]
        base = self._begun.up_to(end) - self._ended.up_to(start + 1) - moving
        return Problem(((),) * (end - start), tuple(items), base)

    def with_dependencies(self, problem: Problem, start: int, end: int) -> Problem:
        """Return ``problem`` with the dependencies between the instructions in ``range(start, end)``."""
        return replace(problem, before=self._hazards.before(start, end))


class _Sums:
    """Sums of the bytes of all storages up to an instant."""

    def __init__(self, sizes: Iterable[tuple[int, int]]) -> None:
        found = sorted(sizes)
        self._instants = [instant for instant, _ in found]
        self._sums = list(accumulate((size for _, size in found), initial=0))

    def up_to(self, instant: int) -> int:
        """Return the bytes of the storages whose instant is at most ``instant``."""
        return self._sums[bisect_right(self._instants, instant)]


def _lifetimes(memory: MethodMemory, linked: MethodMemory) -> dict[int, tuple[int, int]]:
    """Return the lifetime of each storage of ``linked``, in instants of the method before the link."""
    found: dict[int, tuple[int, int]] = {}
    for storage in memory.storages:
        number = next((linked.of[value] for value in storage.values if value in linked.of), None)
        if number is not None and storage.start < storage.end:
            first, last = found.get(number, (storage.start, storage.end))
            found[number] = min(first, storage.start), max(last, storage.end)
    return found


def straight_regions(method: Method) -> Iterator[tuple[int, int]]:
    """Yield ``(first position, end position)`` of each straight region with two or more instructions, in order.

    A region is in one basic block and in one chain. It has no jumps, no moves, and no instructions that add a row to
    the output of a loop. The target of a jump starts a region even if the jump is never taken, because the proof of a
    link follows all jumps of the file.
    """
    flow = method.memory.reaching.flow
    marks = {block.start for block in flow.blocks} | {len(flow.instructions)}
    start = 0
    for chain in method.plan.chains:
        jumps = (call for call in chain.instructions if isinstance(call, m.JumpFalseCall))
        marks |= {start, *(start + call.destination_instruction for call in jumps)}
        start += len(chain.instructions)
    for position, call in enumerate(flow.instructions):
        adds_row = isinstance(call, m.KernelCall) and method.plan.operators[call.op_index].name == COPY_INDEX
        if adds_row or isinstance(call, m.JumpFalseCall | m.MoveCall):
            marks |= {position, position + 1}
    bounds = sorted(marks)
    yield from ((start, end) for start, end in pairwise(bounds) if end - start > 1)
