"""Copies meet every need and are left out where their fact holds, with any control flow (B5)."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from etdev.linker.devices.transfers import Needs, Spot, find_spots
from etdev.program import model as m
from etdev.program.analysis.flow import FlowGraph, flow_graph
from linker.flows import edges, flows

FACTS = 2


@st.composite
def flows_with_needs(draw: st.DrawFn) -> tuple[FlowGraph, Needs]:
    """Draw some instructions with jumps, and their effects on facts."""
    flow = draw(flows())
    count = len(flow.instructions)
    bits = st.integers(0, 2**FACTS - 1)
    works = [not isinstance(call, m.JumpFalseCall) for call in flow.instructions]
    needed = [draw(bits) for _ in range(count + 1)]
    ended = [draw(bits) if works[position] else 0 for position in range(count)]
    made = [ended[position] & draw(bits) for position in range(count)]
    return flow, Needs(needed, made, ended, draw(bits))


def paths(flow: FlowGraph, seed: int) -> list[int]:
    """Return positions of one path, up to a limit of steps."""
    choose = random.Random(seed)
    block, found = 0, []
    while block != flow.exit and len(found) < 60:
        found += range(flow.blocks[block].start, flow.blocks[block].end)
        block = choose.choice(flow.blocks[block].successors)
    return [*found, len(flow.instructions)] if block == flow.exit else found


def copies(path: list[int], spots: dict[Spot, int]) -> list[int]:
    """Return the copies before each step; a jump, unless to the next instruction, skips those after its source."""
    found = [spots.get(Spot(-1, after=True), 0)]
    for before, position in pairwise(path):
        found.append(spots.get(Spot(before, after=True), 0) if position == before + 1 else 0)
    return [facts | spots.get(Spot(position, after=False), 0) for facts, position in zip(found, path, strict=True)]


def holding_on_all_paths(flow: FlowGraph, needs: Needs, spots: dict[Spot, int]) -> dict[Spot, int]:
    """Return the facts that hold at each spot on all paths, without the copies there."""
    everything = 2**FACTS - 1
    ways = edges(flow)
    front = dict.fromkeys((after for _, after in ways), everything)

    def behind(position: int) -> int:
        if position < 0:
            return needs.at_entry
        facts = front[position] | spots.get(Spot(position, after=False), 0)
        return facts & ~needs.ended[position] | needs.made[position]

    for _ in range(len(front) * FACTS + 1):
        for here in front:
            facts = everything
            for before in (before for before, after in ways if after == here):
                facts &= behind(before) | (spots.get(Spot(before, after=True), 0) if here == before + 1 else 0)
            front[here] = facts
    reached = [spot for spot in spots if spot.position in {-1, *front}]
    return {spot: behind(spot.position) if spot.after else front[spot.position] for spot in reached}


@given(flows_with_needs(), st.integers(0, 2**32))
def test_every_need_is_met(case: tuple[FlowGraph, Needs], seed: int) -> None:
    flow, needs = case
    spots = find_spots(flow, needs)
    path = paths(flow, seed)
    holding = needs.at_entry
    for position, here in zip(path, copies(path, spots), strict=True):
        holding |= here
        assert not needs.needed[position] & ~holding, f"{position} lacks what it needs"
        if position < len(flow.instructions):
            holding = holding & ~needs.ended[position] | needs.made[position]


@given(flows_with_needs())
def test_nothing_is_copied_where_it_holds_on_all_paths(case: tuple[FlowGraph, Needs]) -> None:
    flow, needs = case
    spots = find_spots(flow, needs)
    for spot, facts in holding_on_all_paths(flow, needs, spots).items():
        assert not facts & spots[spot], spot


def flow_of(*calls: m.Instruction) -> FlowGraph:
    """Return the control flow of these instructions."""
    return flow_graph(
        m.ExecutionPlan(
            name="forward",
            values=(m.Tensor(m.ScalarType.BOOL, (1,), (0,)), m.Bool(False)),
            inputs=(0,),
            outputs=(),
            chains=(m.Chain(calls),),
            operators=(),
            delegates=(),
            non_const_buffer_sizes=(0,),
        )
    )


def test_what_is_needed_on_one_side_of_a_branch_is_copied_there() -> None:
    """A need on both sides is met before the branch."""
    flow = flow_of(m.JumpFalseCall(0, 2), m.JumpFalseCall(1, 3), m.FreeCall(0))
    none = [0, 0, 0]
    one_side = find_spots(flow, Needs([0, 0, 1, 0], none, none, 0))
    assert one_side == {Spot(2, after=False): 1}
    both = find_spots(flow, Needs([0, 1, 1, 0], none, none, 0))
    assert both == {Spot(0, after=False): 1}


def test_copies_at_the_entry_of_a_method_that_begins_with_a_loop() -> None:
    """The caller needs the second fact, which no instruction changes. Each iteration needs the first one, and ends it.

    The jump back has no place for a copy, so the copy is before the jump, also in the last iteration.
    """
    flow = flow_of(m.FreeCall(0), m.JumpFalseCall(0, 0))
    spots = find_spots(flow, Needs(needed=[1, 0, 2], made=[0, 0], ended=[1, 0], at_entry=1))
    assert spots == {Spot(-1, after=True): 2, Spot(1, after=False): 1}
