"""Placement of copies, so that every reader finds the content that it reads.

A *fact* says that one item is up to date in one place. Facts are bits of integers here. An instruction may need facts,
end facts (it writes the item elsewhere) and make facts (it writes the item there). Copies are inserted so that every
need is met. No fact is copied where it holds on all paths that lead there.

Source: J. Knoop, O. Rüthing, B. Steffen, "Lazy Code Motion", 1992; with two additions. A fact that a loop needs and
does not end is copied before the loop. That is so even if the loop needs it only on some paths, since a copy inside is
repeated in each round. If paths that meet would have to copy from different places, they copy before they meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etdev.program import model as m
from etdev.program.analysis.flow import FlowGraph

_ENTRY = -1


@dataclass(frozen=True, slots=True)
class Needs:
    """Facts that the instructions of a method need, make and end, by position.

    The last entry of ``needed`` is the caller's.
    """

    needed: Sequence[int]
    made: Sequence[int]
    ended: Sequence[int]
    at_entry: int
    """Facts that hold when the method begins."""


class Facts:
    """A builder of the facts of a method."""

    def __init__(self, count: int) -> None:
        """Start without facts. ``count`` is the number of instructions."""
        self.needed = [0] * (count + 1)
        self.made, self.ended = [0] * count, [0] * count
        self.at_entry = 0
        self._count = 0

    def new(self) -> int:
        """Return the bit of one more fact."""
        self._count += 1
        return 1 << (self._count - 1)

    def needs(self) -> Needs:
        """Return all facts."""
        return Needs(self.needed, self.made, self.ended, self.at_entry)


@dataclass(frozen=True, slots=True)
class Spot:
    """A place between two instructions."""

    position: int
    after: bool
    """Whether the spot is after the instruction at ``position``, or before it.

    A jump to the next instruction bypasses a spot after. A jump to the instruction itself passes a spot before.
    """


def find_spots(flow: FlowGraph, needs: Needs, ambiguous: Sequence[int] = ()) -> dict[Spot, int]:
    """Return the facts that copies have to make, by the spot of the copy.

    ``ambiguous`` has, by position, the facts that cannot be made before it. The paths that lead to it have them in
    different places.
    """
    return _Motion(flow, needs, ambiguous).run()


class _Motion:
    def __init__(self, flow: FlowGraph, needs: Needs, ambiguous: Sequence[int]) -> None:
        self._exit = len(flow.instructions)
        self._nodes, self._successors = _nodes(flow)
        self._predecessors: dict[int, list[int]] = defaultdict(list)
        for node in (_ENTRY, *self._nodes):
            for successor in self._successors[node]:
                self._predecessors[successor].append(node)
        self._ambiguous = ambiguous or [0] * (self._exit + 1)
        self._made = [*needs.made, 0]
        self._ended = [*needs.ended, 0]
        self._needed = list(needs.needed)
        self._entry = needs.at_entry
        self._all = 0
        for bits in (*self._needed, *self._made, *self._ended, self._entry):
            self._all |= bits
        self._jumps = {position for position, call in enumerate(flow.instructions) if isinstance(call, m.JumpFalseCall)}
        self._early: set[Spot] = set()
        """Spots before branches of which only one needs the copy."""
        self._need_before_loops(flow)
        self._need_where_ways_meet()

    def _need_before_loops(self, flow: FlowGraph) -> None:
        """Need facts at a loop's entry if the loop needs them and does not end them."""
        cycles = flow.cycles()
        members: dict[int, list[int]] = defaultdict(list)
        for node in self._nodes:
            if node != self._exit:
                members[cycles[node]].append(node)
        for cycle, nodes in members.items():
            inside = set(nodes)
            if not any(after <= node and after in inside for node in nodes for after in self._successors[node]):
                continue
            needed = ended = 0
            for node in nodes:
                needed |= self._needed[node]
                ended |= self._ended[node] | self._made[node]
            for node in nodes:
                if any(before == _ENTRY or cycles[before] != cycle for before in self._predecessors[node]):
                    self._needed[node] |= needed & ~ended

    def _need_where_ways_meet(self) -> None:
        """Need a fact where paths meet, if it holds on only some of them or is ambiguous, and is needed later.

        After that point, the place to copy from would be unknown.
        """
        none, somewhere = [0] * (self._exit + 1), dict.fromkeys(self._nodes, 0)
        everywhere = self._settle_forward({}, none)
        wanted = dict.fromkeys(self._nodes, 0)
        changed = True
        while changed:
            changed = False
            for node in self._nodes:
                facts = 0
                for before in self._predecessors[node]:
                    facts |= self._entry if before == _ENTRY else somewhere[before]
                facts = self._made[node] | (facts & ~self._ended[node])
                changed |= facts != somewhere[node]
                somewhere[node] = facts
            for node in reversed(self._nodes):
                facts = 0
                for after in self._successors[node]:
                    facts |= wanted[after]
                facts = self._needed[node] | (facts & ~self._ended[node] & ~self._made[node])
                changed |= facts != wanted[node]
                wanted[node] = facts
        for node in self._nodes:
            if len(self._predecessors[node]) > 1:
                apart = self._ambiguous[node]
                for before in self._predecessors[node]:
                    apart |= self._entry if before == _ENTRY else somewhere[before]
                self._needed[node] |= apart & ~(self._before(node, everywhere) & ~self._ambiguous[node]) & wanted[node]

    def run(self) -> dict[Spot, int]:
        """Place the copies."""
        anticipated = self._anticipated()
        behind = self._settle_forward({}, self._needed)
        earliest = {
            (node, after): anticipated[after]
            & ~(self._entry if node == _ENTRY else behind[node])
            & (self._all if node == _ENTRY else ~out | self._ended[node] | self._made[node])
            for node, out in self._outgoing(anticipated)
            for after in self._successors[node]
        }
        spots = self._latest(earliest)
        return self._without_needless(spots) if self._early else spots

    def _outgoing(self, anticipated: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return the facts needed on all ways out of each instruction."""
        found = []
        for node in (_ENTRY, *self._nodes):
            if node != self._exit:
                out = self._all
                for after in self._successors[node]:
                    out &= anticipated[after]
                found.append((node, out))
        return found

    def _settle_forward(self, spots: Mapping[Spot, int], met: Sequence[int]) -> dict[int, int]:
        """Return the facts that hold after each instruction on all paths, with these copies.

        The needs in ``met`` count as met.
        """
        behind = dict.fromkeys(self._nodes, self._all)
        changed = True
        while changed:
            changed = False
            for node in self._nodes:
                facts = self._before(node, behind) | spots.get(Spot(node, after=False), 0) | met[node]
                facts = self._made[node] | (facts & ~self._ended[node]) | spots.get(Spot(node, after=True), 0)
                changed |= facts != behind[node]
                behind[node] = facts
        return behind

    def _before(self, node: int, behind: Mapping[int, int]) -> int:
        facts = self._all
        for before in self._predecessors[node]:
            facts &= self._entry if before == _ENTRY else behind[before]
        return facts

    def _anticipated(self) -> dict[int, int]:
        """Return the facts needed before each instruction, on every path from it, before they end."""
        found = dict.fromkeys(self._nodes, self._all)
        found[self._exit] = self._needed[self._exit]
        changed = True
        while changed:
            changed = False
            for node in reversed(self._nodes):
                if node == self._exit:
                    continue
                out = self._all
                for after in self._successors[node]:
                    out &= found[after]
                facts = self._needed[node] | (out & ~self._ended[node] & ~self._made[node])
                changed |= facts != found[node]
                found[node] = facts
        return found

    def _latest(self, earliest: Mapping[tuple[int, int], int]) -> dict[Spot, int]:
        """Return copies as late as possible, but not after a branch all of whose ways need them."""
        later_in = dict.fromkeys(self._nodes, self._all)
        later: dict[tuple[int, int], int] = {}
        changed = True
        while changed:
            changed = False
            for node in self._nodes:
                facts = self._all & ~self._ambiguous[node]
                for before in self._predecessors[node]:
                    later[before, node] = earliest[before, node]
                    if len(self._successors[before]) == 1 and before != _ENTRY:
                        later[before, node] |= later_in[before] & ~self._needed[before]
                    facts &= later[before, node]
                changed |= facts != later_in[node]
                later_in[node] = facts
        spots: dict[Spot, int] = defaultdict(int)
        for (node, after), facts in later.items():
            if facts & ~later_in[after]:
                spots[self._spot(node, after)] |= facts & ~later_in[after]
        for node in self._nodes:
            # Facts needed on all ways from here are copied once, before the branch.
            here = later_in[node] & (self._needed[node] if len(self._successors[node]) < 2 else self._all)
            if here:
                spots[Spot(node, after=False)] |= here
        return dict(spots)

    def _spot(self, node: int, after: int) -> Spot:
        """Return the spot of a copy on the way from one instruction to another."""
        if len(self._predecessors[after]) == 1:
            return Spot(after, after=False)
        if node not in self._jumps:
            return Spot(node, after=True)
        spot = Spot(node, after=False)
        if len(self._successors[node]) > 1:
            # Both ends have other ways, so the copy would need a block of its own: make it before the branch instead.
            self._early.add(spot)
        return spot

    def _without_needless(self, spots: Mapping[Spot, int]) -> dict[Spot, int]:
        """Return the copies without those of facts that already hold, because another copy is early."""
        found = dict(spots)
        for spot in sorted(spots, key=lambda item: (item.position, item.after)):
            others = {other: facts for other, facts in found.items() if other != spot}
            behind = self._settle_forward(others, [0] * (self._exit + 1))
            if spot.after:
                holding = self._entry if spot.position == _ENTRY else behind[spot.position]
            else:
                holding = self._before(spot.position, behind)
            found[spot] &= ~holding
        return {spot: facts for spot, facts in found.items() if facts}


def _nodes(flow: FlowGraph) -> tuple[list[int], dict[int, list[int]]]:
    """Return the reachable positions in an order suitable for data flow, and the successors of each."""
    end = len(flow.instructions)
    successors: dict[int, list[int]] = {end: []}
    nodes: list[int] = []
    for number in flow.order():
        block = flow.blocks[number]
        for position in range(block.start, block.end):
            nodes.append(position)
            successors[position] = [position + 1]
        successors[block.end - 1] = [
            end if after == flow.exit else flow.blocks[after].start for after in block.successors
        ]
    successors[_ENTRY] = nodes[:1] or [end]
    return [*nodes, end], successors
