"""Control flow of two programs that run side by side: shared instructions, and points where paths split.

An instruction that exists in only one program runs alone. All other instructions run in both programs at the same time.
Inside a straight region, the program after the link may have these instructions in another order. In that case, the
program before the link runs some instructions early. The program after the link runs their counterparts late.

Both programs take the same branch at a jump, so their executions correspond one to one. A point is a pair of positions,
one in each program. Paths join at a point that several paths reach.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from etdev.program import model as m
from etdev.validator.facts import Facts
from etdev.validator.order import region_starts
from etdev.validator.semantics.operators import Act


class Side(Enum):
    """Program or programs that run an instruction."""

    BOTH = "both"
    BEFORE = "before"
    AFTER = "after"
    EARLY = "early"
    """Only the program before the link. The counterpart of the instruction runs later, in a ``LATE`` step."""
    LATE = "late"
    """Only the program after the link. The counterpart of the instruction ran before, in an ``EARLY`` step."""


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of one program, or corresponding instructions of both programs."""

    who: Side
    before: int
    """Position in the program before the link."""
    after: int
    """Position in the program after the link."""


@dataclass(slots=True)
class Block:
    """Steps that always run together and in order."""

    steps: list[Step] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    """Numbers of the blocks that can follow."""
    predecessors: list[int] = field(default_factory=list)


class Divergence(Exception):  # noqa: N818 - turned into a violation by whoever called
    """Error for two programs that take different paths."""

    def __init__(self, message: str, before: int, after: int) -> None:
        super().__init__(message)
        self.before, self.after = before, after


@dataclass(slots=True)
class Walk:
    """Blocks of two methods. The first block is the entry. The last block marks the end of the method and is empty."""

    blocks: list[Block]
    groups: list[list[int]]
    """Groups of blocks. Each group is a loop or a single block.

    A group comes after all groups that lead to it. Inside a group, most blocks come after their predecessors.
    """
    rank: dict[int, int]
    """Maps each block to its position in the order of the groups."""

    @property
    def end(self) -> int:
        """Return the number of the block at the end of the method."""
        return len(self.blocks) - 1

    def is_loop(self, group: Sequence[int]) -> bool:
        """Return whether a group of blocks is a loop."""
        return len(group) > 1 or group[0] in self.blocks[group[0]].successors

    def body(self, head: int) -> frozenset[int]:
        """Return the blocks of the loop with this head: all blocks that can reach an edge back to the head."""
        body = {head}
        waiting = [item for item in self.blocks[head].predecessors if self.is_back(item, head)]
        while waiting:
            number = waiting.pop()
            if number not in body:
                body.add(number)
                waiting += self.blocks[number].predecessors
        return frozenset(body)

    def is_back(self, origin: int, to: int) -> bool:
        """Return whether the edge from ``origin`` to ``to`` leads back to the head of a loop."""
        return self.rank[origin] >= self.rank[to]


def walk(before: Facts, after: Facts, moved: Mapping[int, int]) -> Walk:
    """Match the control flow of two methods.

    ``moved`` maps the position of each kept instruction before the link to its position after the link. Raise
    :class:`Divergence` if the methods do not match.
    """
    points = _Points(before, after, moved).all()
    blocks = _blocks(points)
    order = _order(blocks)
    rank = {number: place for place, number in enumerate(order)}
    return Walk(blocks, _groups(blocks, order), rank)


_Point = tuple[int, int]
_Next = tuple[Step | None, tuple[_Point, ...]]


class _Points:
    def __init__(self, before: Facts, after: Facts, moved: Mapping[int, int]) -> None:
        self._facts = (before, after)
        self._lengths = (len(before.code), len(after.code))
        self._moved = moved
        self._back = {there: here for here, there in moved.items()}
        self._fixed = (fixed_jumps(before), fixed_jumps(after))
        self._regions = region_starts(before)
        if len(self._back) < len(moved) or not all(
            0 <= here < self._lengths[0] and 0 <= there < self._lengths[1] for here, there in moved.items()
        ):
            raise Divergence("the list of corresponding instructions is inconsistent", 0, 0)

        self._meet = self._targets()

    def _targets(self) -> dict[int, int]:
        """Map the target of each jump before the link to the target of the same jump after the link."""
        found = {}
        for here, there in self._moved.items():
            if self._facts[0].code[here].act is self._facts[1].code[there].act is Act.JUMP:
                found[self._ways(0, here)[-1]] = self._ways(1, there)[-1]
        return found

    def all(self) -> dict[_Point, _Next]:
        found: dict[_Point, _Next] = {}
        waiting = [(0, 0)]
        while waiting:
            point = waiting.pop()
            while point not in found:
                step = found[point] = self._next(point)
                if len(step[1]) != 1:
                    waiting.extend(step[1])
                    break
                (point,) = step[1]
        return found

    def _next(self, point: _Point) -> _Next:
        here, there = point
        # Where paths join, the programs wait for each other.
        waits = there < self._meet.get(here, 0) and there not in self._back
        if not waits and here < self._lengths[0] and here not in self._moved:
            return Step(Side.BEFORE, here, there), ((self._alone(0, here), there),)
        if there < self._lengths[1] and there not in self._back:
            return Step(Side.AFTER, here, there), ((here, self._alone(1, there)),)
        if point == self._lengths:
            return None, ()
        if self._moved.get(here) == there:
            return Step(Side.BOTH, here, there), self._together(here, there)
        if there < self._lengths[1]:
            partner = self._back[there]
            if partner > here and self._is_straight(here, partner):
                return Step(Side.EARLY, here, self._moved[here]), ((here + 1, there),)
            if partner < here and self._is_straight(partner, here - 1):
                return Step(Side.LATE, partner, there), ((here, there + 1),)
        raise Divergence("the instructions that the link kept are in a different order", here, there)

    def _is_straight(self, first: int, last: int) -> bool:
        """Return whether two positions before the link are in one straight region."""
        return bisect_right(self._regions, first) == bisect_right(self._regions, last)

    def _alone(self, side: int, position: int) -> int:
        """Return the position after an instruction that only one program has. Raise :class:`Divergence` at a branch."""
        code = self._facts[side].code[position]
        if code.act is not Act.JUMP:
            return position + 1
        ways = self._ways(side, position)
        if len(ways) > 1 or ways[0] <= position:
            places = (position, 0) if side == 0 else (0, position)
            raise Divergence("only one of the programs has this jump", *places)
        return ways[0]

    def _together(self, here: int, there: int) -> tuple[_Point, ...]:
        one, other = self._ways(0, here), self._ways(1, there)
        kinds = {self._facts[0].code[here].act is Act.JUMP, self._facts[1].code[there].act is Act.JUMP}
        if len(kinds) > 1 or len(one) != len(other) or self._taken(0, here) != self._taken(1, there):
            raise Divergence("a jump of one program has no equal counterpart in the other program", here, there)
        return tuple(dict.fromkeys(zip(one, other, strict=True)))

    def _taken(self, side: int, position: int) -> bool | None:
        return self._fixed[side].get(position)

    def _ways(self, side: int, position: int) -> tuple[int, ...]:
        """Return the positions that can follow an instruction."""
        facts = self._facts[side]
        call = facts.code[position].call
        if not isinstance(call, m.JumpFalseCall):
            return (position + 1,)
        base = facts.starts[bisect_right(facts.starts, position, hi=len(facts.starts) - 1) - 1]
        follow, jump = position + 1, base + call.destination_instruction
        taken = self._taken(side, position)
        return {None: (follow, jump), True: (follow,), False: (jump,)}[taken]


def fixed_jumps(facts: Facts) -> dict[int, bool]:
    """Map the position of each jump with a constant condition to that condition."""
    outside = {*facts.plan.inputs, *facts.variable}
    found = {}
    for code in facts.code:
        if isinstance(code.call, m.JumpFalseCall) and code.call.cond_value_index not in outside:
            value = facts.plan.values[code.call.cond_value_index]
            if isinstance(value, m.Bool):
                found[code.position] = value.bool_val
    return found


def _blocks(points: Mapping[_Point, _Next]) -> list[Block]:
    entered: dict[_Point, int] = {(0, 0): 2}  # The entry always begins a block.
    for _, following in points.values():
        for point in following:
            entered[point] = entered.get(point, 0) + (1 if len(following) == 1 else 2)
    heads = [point for point in points if entered[point] > 1 or points[point][0] is None]
    end = next((point for point in heads if points[point][0] is None), None)
    heads.sort(key=lambda point: (point == end, point != (0, 0)))
    if end is None:
        raise Divergence("the method never ends", 0, 0)
    number = {point: index for index, point in enumerate(heads)}
    blocks = [Block() for _ in heads]
    for head, block in zip(heads, blocks, strict=True):
        point = head
        while True:
            step, following = points[point]
            if step is not None:
                block.steps.append(step)
            if len(following) != 1 or following[0] in number:
                break
            (point,) = following
        block.successors = [number[item] for item in following]
    for index, block in enumerate(blocks):
        for successor in block.successors:
            blocks[successor].predecessors.append(index)
    return blocks


def _order(blocks: list[Block]) -> list[int]:
    """Return the blocks in depth-first order, so that most blocks come after their predecessors."""
    seen = {0}
    order: list[int] = []
    stack = [(0, iter(reversed(blocks[0].successors)))]
    while stack:
        block, successors = stack[-1]
        following = next((item for item in successors if item not in seen), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(reversed(blocks[following].successors))))
    return order[::-1]


def _groups(blocks: list[Block], order: list[int]) -> list[list[int]]:
    """Return groups of blocks that can reach each other, found with Kosaraju's algorithm."""
    of: dict[int, int] = {}
    groups: list[list[int]] = []
    for first in order:
        if first in of:
            continue
        waiting = [first]
        while waiting:
            number = waiting.pop()
            if number not in of:
                of[number] = len(groups)
                waiting += blocks[number].predecessors
        groups.append([])
    for number in order:
        groups[of[number]].append(number)
    return groups
