"""Division of buffers among banks: all buffers fit into their banks, and the traffic costs little.

The search starts from several divisions: by traffic per byte and instant, by traffic per byte, by prices of memory, by
size, and from ExecuTorch's planner. It moves and swaps buffers until no bank is too full. It then *packs* each bank:
assigns offsets to the buffers of the bank. Further moves lower the cost. A move is accepted only if the banks can still
be packed. All effort is counted in steps, so the result depends only on the problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from etdev.planner.banks.bound import Prices
from etdev.planner.banks.forced import find_forced
from etdev.planner.banks.greedy import banked_greedy
from etdev.planner.banks.loads import Loads
from etdev.planner.banks.pack import Packer, free_offset
from etdev.planner.banks.problem import BankedProblem

_PACKINGS = 1_000
"""Limit on the number of packings for each initial division."""
_PACKED_BUFFERS = 120_000
"""Limit on the number of packings times the number of buffers, for each initial division."""
_SEARCHES = 6
"""Limit on the number of exact searches for each initial division."""
_MOVES = 300
"""Limit on the number of moves and swaps out of banks that are too full."""
_TOUCHES = 50_000_000
"""Limit on the number of table entries that :meth:`_Start.relieve` reads or writes, for each initial division."""
_SHRINKS = 6
"""Maximum number of attempts to pack. Each failure lowers the load limit of the banks that were not packed."""
_TABU = 12
"""Number of moves for which a moved buffer must stay in its new bank."""


@dataclass(slots=True)
class Division:
    """Bank of each buffer, and the offsets in each bank."""

    loads: Loads
    offsets: list[dict[int, int]]
    """One map for each bank: from buffers to offsets. It omits buffers that are never in use."""

    @property
    def cost(self) -> Fraction:
        """Return the cost of all traffic."""
        return self.loads.problem.total_cost(self.loads.division())


def divide(problem: BankedProblem) -> tuple[Division | None, Loads, Fraction]:
    """Search for the cheapest division whose banks can be packed.

    Return ``(best, closest, bound)``. ``best`` is the cheapest such division found, or None. ``closest`` is the
    division with the least excess over the capacities. Packing its banks may fail. ``bound`` is a lower bound on the
    cost.
    """
    greedy = banked_greedy(problem)
    priced = _priced(problem)
    if priced is None:
        loads = _first_division(problem, _by_size(problem))
        _Start(problem, loads).relieve()
        return None, loads, Fraction(0)
    problem, prices = priced
    best: Division | None = None
    closest: Loads | None = None
    for order in _orders(problem, prices):
        loads = _first_division(problem, order)
        found = _Start(problem, loads).run()
        best = _better(best, found)
        if closest is None or _total_excess(loads) < _total_excess(closest):
            closest = loads
    if greedy is not None:
        best = _better(best, _from_greedy(problem, *greedy))
    assert closest is not None
    return best, closest, prices.bound


def lower_cost(problem: BankedProblem) -> Fraction:
    """Return a lower bound on the traffic cost of any division whose buffers fit into their banks."""
    priced = _priced(problem)
    return Fraction(0) if priced is None else priced[1].bound


def _priced(problem: BankedProblem) -> tuple[BankedProblem, Prices] | None:
    """Return ``(problem narrowed by find_forced, prices for this problem)``, or None if no division fits."""
    forced = find_forced(Loads(problem))
    if forced is None:
        return None
    return forced.problem, Prices(Loads(forced.problem), forced.limits, _slow_cost(forced.problem))


def _better(one: Division | None, other: Division | None) -> Division | None:
    if one is None or other is None:
        return one or other
    return other if other.cost < one.cost else one


def _from_greedy(problem: BankedProblem, banks: Sequence[int], offsets: Sequence[int]) -> Division:
    loads = Loads(problem)
    loads.fill(banks)
    placed = [{index: offsets[index] for index in loads.members(bank)} for bank in range(len(problem.banks))]
    return _Start(problem, loads).improve(placed)


def _slow_cost(problem: BankedProblem) -> Fraction:
    """Return the cost if each buffer were in the most expensive bank that it may be in."""
    buffers = range(len(problem.buffers))
    return problem.total_cost(
        [max(problem.allowed(index), key=lambda bank: problem.banks[bank].cost) for index in buffers]
    )


def _orders(problem: BankedProblem, prices: Prices) -> Iterator[list[int]]:
    """Yield orders in which to assign buffers to banks, pinned buffers first."""
    buffers = problem.buffers

    def by_density(index: int) -> tuple[object, ...]:
        buffer = buffers[index]
        return -Fraction(problem.traffic[index], max(1, buffer.size * (buffer.end - buffer.start))), -buffer.size, index

    def by_traffic(index: int) -> tuple[object, ...]:
        buffer = buffers[index]
        return -Fraction(problem.traffic[index], max(1, buffer.size)), buffer.end - buffer.start, -buffer.size, index

    def by_price(index: int) -> tuple[object, ...]:
        if not buffers[index].occupies or len(problem.allowed(index)) < 2:
            return Fraction(0), index
        costs = prices.reduced_costs(index)
        first, *others = (costs[bank] for bank in problem.allowed(index))
        return first - min(others), -buffers[index].size, index

    for key in (by_price, by_density, by_traffic):
        yield sorted(range(len(buffers)), key=lambda index: (not problem.is_pinned(index), key(index)))
    yield _by_size(problem)


def _by_size(problem: BankedProblem) -> list[int]:
    """Return the buffers by decreasing size, pinned buffers first."""
    buffers = problem.buffers

    def key(index: int) -> tuple[object, ...]:
        buffer = buffers[index]
        return not problem.is_pinned(index), -buffer.size, buffer.start - buffer.end, index

    return sorted(range(len(buffers)), key=key)


def _first_division(problem: BankedProblem, order: Iterable[int]) -> Loads:
    """Put each buffer into the cheapest bank with enough room. If none has room, take the one with the least excess."""
    loads = Loads(problem)
    for index in order:
        allowed = _cheapest_first(problem, index)
        found = next((bank for bank in allowed if loads.has_room(index, bank)), None)
        if found is None:
            found = min(
                allowed,
                key=lambda bank: loads.peak(bank, index) + loads.size(index, bank) - loads.capacities[bank],
            )
        loads.put(index, found)
    return loads


def _cheapest_first(problem: BankedProblem, index: int) -> list[int]:
    return sorted(problem.allowed(index), key=lambda bank: problem.banks[bank].cost)


def _total_excess(loads: Loads) -> int:
    return sum(map(loads.excess, range(len(loads.loads))))


class _Start:
    """A search from one initial division."""

    def __init__(self, problem: BankedProblem, loads: Loads) -> None:
        self._problem, self._loads = problem, loads
        packings = min(_PACKINGS, _PACKED_BUFFERS // max(1, len(problem.buffers)))
        self._packer = Packer(problem, packings=max(20, packings), searches=_SEARCHES)
        self._moves = _MOVES
        self._touches = _TOUCHES
        self._tabu: dict[int, int] = {}

    def run(self) -> Division | None:
        """Make all buffers fit, pack the banks, then lower the cost. Return the division, or None if a step fails."""
        for shrink in range(_SHRINKS):
            if not self.relieve():
                return None
            placed = [
                self._packer.pack(bank, self._loads.members(bank), search=True)
                for bank in range(len(self._problem.banks))
            ]
            good = [offsets for offsets in placed if offsets is not None]
            if len(good) == len(placed):
                self._reset_capacities()
                return self.improve(good)
            for bank, offsets in enumerate(placed):
                if offsets is None:
                    peak = max(self._loads.loads[bank])
                    step = max(1, self._problem.banks[bank].size * shrink // 100)
                    self._loads.capacities[bank] = max(0, min(self._loads.capacities[bank], peak) - step)
        return None

    def _reset_capacities(self) -> None:
        self._loads.capacities = Loads(self._problem).capacities

    # Banks that are too full

    def relieve(self) -> bool:
        """Move and swap buffers until no load exceeds its bank. Return True on success."""
        loads = self._loads
        banks = range(len(self._problem.banks))
        best, kept = _total_excess(loads), loads.division()
        while best and self._moves > 0 and self._touches > 0:
            self._moves -= 1
            bank = max(banks, key=loads.excess)
            change = self._best_change(bank)
            if change is None:
                break
            for index, to in change:
                loads.take(index)
                loads.put(index, to)
                self._tabu[index] = self._moves - _TABU
            found = _total_excess(loads)
            if found < best:
                best, kept = found, loads.division()
        for index, bank in enumerate(kept):
            if loads.bank[index] != bank:
                loads.take(index)
                loads.put(index, bank)
        return not best

    def _best_change(self, bank: int) -> Sequence[tuple[int, int]] | None:
        """Return the move or swap that leaves the least excess, as one ``(buffer, new bank)`` per moved buffer."""
        best: tuple[tuple[object, ...], Sequence[tuple[int, int]]] | None = None
        instants = sum(map(len, self._loads.loads))
        for change in self._changes(bank):
            if self._touches <= 0:
                break
            ranges = (self._loads.ranges[index] for index, _ in change)
            self._touches -= instants + 4 * sum(last - first for first, last in ranges)
            before = [(index, self._loads.take(index)) for index, _ in change]
            for index, to in change:
                self._loads.put(index, to)
            excess = _total_excess(self._loads)
            cost = sum((self._problem.cost(index, to) for index, to in change), Fraction(0))
            cost -= sum((self._problem.cost(index, origin) for index, origin in before), Fraction(0))
            for index, origin in before:
                self._loads.take(index)
                self._loads.put(index, origin)
            key = (excess, cost, len(change), change)
            if best is None or key < best[0]:
                best = key, change
        return best and best[1]

    def _changes(self, bank: int) -> Iterator[Sequence[tuple[int, int]]]:
        """Yield moves out of a bank, and swaps of two buffers, that lower the bank's load where it is largest."""
        loads, rank = self._loads, self._loads.worst_rank(bank)
        for index in filter(self._may_move, loads.live(bank, rank)):
            first, last = loads.ranges[index]
            for to in self._problem.allowed(index):
                if to == bank:
                    continue
                yield ((index, to),)
                if loads.has_room(index, to):
                    continue
                for other in loads.members(to):
                    begin, end = loads.ranges[other]
                    smaller = loads.size(other, bank) < loads.size(index, bank) or not begin <= rank < end
                    if begin < last and first < end and smaller and self._may_move(other):
                        yield ((index, to), (other, bank))

    def _may_move(self, index: int) -> bool:
        return not self._problem.is_pinned(index) and self._tabu.get(index, self._moves) >= self._moves

    # Less traffic in slow banks

    def improve(self, placed: list[dict[int, int]]) -> Division:
        """Move buffers to cheaper banks while all banks can be packed. Return the resulting division."""
        problem, loads = self._problem, self._loads
        better = True
        while better and self._packer.packings > 0:
            better = False
            for index, to in self._savings():
                if self._packer.packings <= 0:
                    break
                bank = loads.bank[index]
                assert bank is not None
                if problem.cost(index, to) < problem.cost(index, bank) and self._try(index, to, placed):
                    better = True
        return Division(loads, placed)

    def _savings(self) -> list[tuple[int, int]]:
        """Return ``(buffer, cheaper bank)`` for each possible move, the largest saving first."""
        problem, loads = self._problem, self._loads
        found = [
            (problem.cost(index, bank) - problem.cost(index, to), -to, -index)
            for index, bank in enumerate(loads.division())
            for to in problem.allowed(index)
            if problem.cost(index, to) < problem.cost(index, bank)
        ]
        return [(-index, -to) for _, to, index in sorted(found, reverse=True)]

    def _try(self, index: int, to: int, placed: list[dict[int, int]]) -> bool:
        """Move a buffer to a bank, and move other buffers out of this bank if needed. Return True if the cost fell."""
        problem, loads = self._problem, self._loads
        origin = loads.take(index)
        saved = problem.cost(index, origin) - problem.cost(index, to)
        moved = [(index, origin, to)]
        if index in loads.ranges:
            for other, elsewhere in self._in_the_way(index, to):
                saved -= problem.cost(other, elsewhere) - problem.cost(other, to)
                loads.take(other)
                loads.put(other, elsewhere)
                moved.append((other, to, elsewhere))
                if saved <= 0:
                    break
        fits = saved > 0 and loads.has_room(index, to)
        loads.put(index, to)
        new = self._replaced(moved, placed) if fits else None
        if new is None:
            for other, before, _ in moved:
                loads.take(other)
                loads.put(other, before)
            return False
        placed[:] = new
        return True

    def _in_the_way(self, index: int, to: int) -> Iterator[tuple[int, int]]:
        """Yield ``(buffer, new bank)`` for each buffer that must leave bank ``to`` so that ``index`` has room there.

        The caller must move each buffer before it asks for the next one. ``index`` must be in no bank.
        """
        problem, loads = self._problem, self._loads
        first, last = loads.ranges[index]
        while not loads.has_room(index, to):
            part = loads.loads[to][first:last]
            rank = first + part.index(max(part))
            choices = [
                (
                    Fraction(problem.cost(other, bank) - problem.cost(other, to), max(1, loads.size(other, to))),
                    other,
                    bank,
                )
                for other in loads.live(to, rank)
                if not problem.is_pinned(other)
                for bank in problem.allowed(other)
                if bank != to and loads.has_room(other, bank)
            ]
            if not choices:
                return
            _, other, bank = min(choices)
            yield other, bank

    def _replaced(
        self, moved: Sequence[tuple[int, int, int]], placed: Sequence[dict[int, int]]
    ) -> list[dict[int, int]] | None:
        """Return the offsets after some buffers have moved, or None if a bank cannot be packed any more.

        Each item of ``moved`` is ``(buffer, old bank, new bank)``.
        """
        problem, loads = self._problem, self._loads
        new = list(placed)
        for bank in {bank for _, before, after in moved for bank in (before, after)}:
            arrived = [index for index, _, after in moved if after == bank and index in loads.ranges]
            offsets = {index: offset for index, offset in placed[bank].items() if loads.bank[index] == bank}
            for index in sorted(arrived, key=lambda index: -problem.buffers[index].size):
                offset = free_offset(problem, bank, index, offsets)
                if offset is None:
                    found = self._packer.pack(bank, loads.members(bank))
                    if found is None:
                        return None
                    offsets = found
                    break
                offsets[index] = offset
            new[bank] = offsets
        return new
