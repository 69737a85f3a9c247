"""Placement of copies between devices, so that every instruction finds up-to-date content where it reads.

A *fact* states that one item is up to date in one memory. Sets of facts are integers here, with one bit per fact. An
instruction may need facts. A write to an item makes the item's fact for the written memory true. The write ends the
item's facts for all other memories. :func:`find_spots` inserts copies so that every needed fact is true. It inserts no
copy for a fact that already holds on all paths.

Source: J. Knoop, O. Rüthing, B. Steffen, "Lazy Code Motion", 1992; with two additions:

1. If a loop needs a fact, and no write in the loop ends the fact, the copy is before the loop. A copy inside the loop
   would repeat in each iteration. This applies even if only some paths in the loop need the fact.
2. If the source of a copy would depend on the path, the copy must come before the paths meet.
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
    """For each instruction, the facts that it needs, the facts that it makes true, and the facts that it ends.

    A fact states that an item is up to date in one memory. The last entry of ``needed`` holds the facts that the caller
    needs when the method ends.
    """

    needed: Sequence[int]
    made: Sequence[int]
    ended: Sequence[int]
    at_entry: int
    """Facts that hold when the method begins."""


class NeedsBuilder:
    """Builder of :class:`Needs`."""

    def __init__(self, count: int) -> None:
        """Start without facts, for a method with ``count`` instructions."""
        self.needed = [0] * (count + 1)
        self.made, self.ended = [0] * count, [0] * count
        self.at_entry = 0
        self._count = 0

    def new(self) -> int:
        """Define a new fact; return its bit."""
        self._count += 1
        return 1 << (self._count - 1)

    def needs(self) -> Needs:
        """Return the :class:`Needs` recorded so far."""
        return Needs(self.needed, self.made, self.ended, self.at_entry)


@dataclass(frozen=True, slots=True)
class Spot:
    """A point before or after an instruction where copies can be inserted."""

    position: int
    after: bool
    """True if the spot is after the instruction at ``position``; False if it is before that instruction.

    A jump to the instruction executes copies at the spot before the instruction. A jump to the next instruction skips
    copies at the spot after the instruction.
    """


def find_spots(flow: FlowGraph, needs: Needs, ambiguous: Sequence[int] = ()) -> dict[Spot, int]:
    """Return a map from spots to facts. Copies at a spot must make these facts true.

    For each position, ``ambiguous`` has the facts that a copy immediately before this position cannot make true. The
    source of such a copy would depend on the path taken.
    """
    return _CodeMotion(flow, needs, ambiguous).run()


class _CodeMotion:
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
        """Spots just before a branch, with copies that only one side of the branch needs.

        On that side, there is no place for the copies, because other paths join it at once.
        """
        self._need_before_loops(flow)
        self._need_where_paths_meet()

    def _need_before_loops(self, flow: FlowGraph) -> None:
        """Require a fact at the entry of a loop if the loop needs the fact and never changes it."""
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

    def _need_where_paths_meet(self) -> None:
        """Where paths meet, require each fact that is needed later and is true on some of these paths, but not on all.

        Also require a needed fact if the source of a copy at this point would depend on the path taken.
        """
        none, somewhere = [0] * (self._exit + 1), dict.fromkeys(self._nodes, 0)
        everywhere = self._true_after({}, none)
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
                uncertain = self._ambiguous[node]
                for before in self._predecessors[node]:
                    uncertain |= self._entry if before == _ENTRY else somewhere[before]
                self._needed[node] |= (
                    uncertain & ~(self._before(node, everywhere) & ~self._ambiguous[node]) & wanted[node]
                )

    def run(self) -> dict[Spot, int]:
        """Return a map from spots to facts. Copies at a spot must make these facts true."""
        anticipated = self._anticipated()
        true_after = self._true_after({}, self._needed)
        earliest = {
            (node, after): anticipated[after]
            & ~(self._entry if node == _ENTRY else true_after[node])
            & (self._all if node == _ENTRY else ~out | self._ended[node] | self._made[node])
            for node, out in self._needed_by_all_successors(anticipated)
            for after in self._successors[node]
        }
        spots = self._latest(earliest)
        return self._without_redundant(spots) if self._early else spots

    def _needed_by_all_successors(self, anticipated: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return ``(instruction, facts)`` for each instruction. All successors of the instruction need these facts."""
        found = []
        for node in (_ENTRY, *self._nodes):
            if node != self._exit:
                out = self._all
                for after in self._successors[node]:
                    out &= anticipated[after]
                found.append((node, out))
        return found

    def _true_after(self, spots: Mapping[Spot, int], met: Sequence[int]) -> dict[int, int]:
        """Return, for each instruction, the facts that are true afterwards on all paths, with copies at ``spots``.

        Facts are bits of an integer. ``met`` has, for each position, the facts that are true before that instruction.
        """
        true_after = dict.fromkeys(self._nodes, self._all)
        changed = True
        while changed:
            changed = False
            for node in self._nodes:
                facts = self._before(node, true_after) | spots.get(Spot(node, after=False), 0) | met[node]
                facts = self._made[node] | (facts & ~self._ended[node]) | spots.get(Spot(node, after=True), 0)
                changed |= facts != true_after[node]
                true_after[node] = facts
        return true_after

    def _before(self, node: int, true_after: Mapping[int, int]) -> int:
        facts = self._all
        for before in self._predecessors[node]:
            facts &= self._entry if before == _ENTRY else true_after[before]
        return facts

    def _anticipated(self) -> dict[int, int]:
        """Return a map from each instruction to the facts that every path from there needs.

        A fact counts only if it is needed before an instruction makes it true or ends it.
        """
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
        """Return the latest possible spot for each copy.

        If all successors of a branch need a copy, the copy stays before the branch.
        """
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
            # All successors need these facts, so one copy before the branch is enough.
            here = later_in[node] & (self._needed[node] if len(self._successors[node]) < 2 else self._all)
            if here:
                spots[Spot(node, after=False)] |= here
        return dict(spots)

    def _spot(self, node: int, after: int) -> Spot:
        """Return the spot for a copy on the edge from instruction ``node`` to instruction ``after``."""
        if len(self._predecessors[after]) == 1:
            return Spot(after, after=False)
        if node not in self._jumps:
            return Spot(node, after=True)
        spot = Spot(node, after=False)
        if len(self._successors[node]) > 1:
            # The edge needs a block of its own, since both of its ends have other edges. So copy before the branch
            # instead.
            self._early.add(spot)
        return spot

    def _without_redundant(self, spots: Mapping[Spot, int]) -> dict[Spot, int]:
        """Remove facts that already hold at their spot, because a copy before a branch makes them true."""
        found = dict(spots)
        for spot in sorted(spots, key=lambda item: (item.position, item.after)):
            others = {other: facts for other, facts in found.items() if other != spot}
            true_after = self._true_after(others, [0] * (self._exit + 1))
            if spot.after:
                holding = self._entry if spot.position == _ENTRY else true_after[spot.position]
            else:
                holding = self._before(spot.position, true_after)
            found[spot] &= ~holding
        return {spot: facts for spot, facts in found.items() if facts}


def _nodes(flow: FlowGraph) -> tuple[list[int], dict[int, list[int]]]:
    """Return the reachable positions in reverse postorder, and the successors of each position."""
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
