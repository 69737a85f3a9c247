"""Where copies stand: every need is met, on no path twice for nothing, whatever the control flow is (B5)."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from etdev.linker.devices.transfers import Needs, Spot, find_spots
from etdev.program import model as m
from etdev.program.flow import FlowGraph, flow_graph

FACTS = 2


@st.composite
def flows(draw: st.DrawFn) -> tuple[FlowGraph, Needs]:
    """Some instructions with jumps anywhere, and what they do to facts."""
    count = draw(st.integers(1, 9))
    ways = st.one_of(st.none(), st.none(), st.integers(0, count))
    calls: list[m.Instruction] = []
    for _ in range(count):
        to = draw(ways)
        calls.append(m.FreeCall(0) if to is None else m.JumpFalseCall(draw(st.sampled_from((0, 1))), to))
    plan = m.ExecutionPlan(
        name="forward",
        values=(m.Tensor(m.ScalarType.BOOL, (1,), (0,)), m.Bool(False)),
        inputs=(0,),
        outputs=(),
        chains=(m.Chain(tuple(calls)),),
        operators=(),
        delegates=(),
        non_const_buffer_sizes=(0,),
    )
    bits = st.integers(0, 2**FACTS - 1)
    works = [not isinstance(call, m.JumpFalseCall) for call in calls]
    needed = [draw(bits) for _ in range(count + 1)]
    ended = [draw(bits) if works[position] else 0 for position in range(count)]
    made = [ended[position] & draw(bits) for position in range(count)]
    return flow_graph(plan), Needs(needed, made, ended, draw(bits))


def paths(flow: FlowGraph, seed: int) -> list[int]:
    """Positions of one way through, of at most so many steps."""
    choose = random.Random(seed)
    block, found = 0, []
    while block != flow.exit and len(found) < 60:
        found += range(flow.blocks[block].start, flow.blocks[block].end)
        block = choose.choice(flow.blocks[block].successors)
    return [*found, len(flow.instructions)] if block == flow.exit else found


def copies(path: list[int], spots: dict[Spot, int]) -> list[int]:
    """What is copied in front of each step; a jump that does not lead to the next instruction comes by nothing else."""
    found = [spots.get(Spot(-1, after=True), 0)]
    for before, position in pairwise(path):
        found.append(spots.get(Spot(before, after=True), 0) if position == before + 1 else 0)
    return [facts | spots.get(Spot(position, after=False), 0) for facts, position in zip(found, path, strict=True)]


@given(flows(), st.integers(0, 2**32))
def test_every_need_is_met_and_nothing_is_copied_twice(case: tuple[FlowGraph, Needs], seed: int) -> None:
    flow, needs = case
    spots = find_spots(flow, needs)
    path = paths(flow, seed)
    holding, copied = needs.at_entry, 0
    for position, here in zip(path, copies(path, spots), strict=True):
        assert not here & copied, f"what was copied before is copied again at {position}"
        holding, copied = holding | here, copied | here
        assert not needs.needed[position] & ~holding, f"{position} lacks what it needs"
        if position < len(flow.instructions):
            holding = holding & ~needs.ended[position] | needs.made[position]
            copied &= ~needs.ended[position]


def test_what_is_needed_on_one_side_of_a_branch_is_copied_there() -> None:
    """And what both need, before it."""
    calls = (m.JumpFalseCall(0, 2), m.JumpFalseCall(1, 3), m.FreeCall(0))
    plan = m.ExecutionPlan(
        name="forward",
        values=(m.Tensor(m.ScalarType.BOOL, (1,), (0,)), m.Bool(False)),
        inputs=(0,),
        outputs=(),
        chains=(m.Chain(calls),),
        operators=(),
        delegates=(),
        non_const_buffer_sizes=(0,),
    )
    none = [0, 0, 0]
    one_side = find_spots(flow_graph(plan), Needs([0, 0, 1, 0], none, none, 0))
    assert one_side == {Spot(2, after=False): 1}
    both = find_spots(flow_graph(plan), Needs([0, 1, 1, 0], none, none, 0))
    assert both == {Spot(0, after=False): 1}
