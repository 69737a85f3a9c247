"""Methods of any control flow, without content."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from etdev.program import model as m
from etdev.program.analysis.flow import FlowGraph, flow_graph


@st.composite
def flows(draw: st.DrawFn) -> FlowGraph:
    """Draw some instructions with jumps anywhere."""
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
    return flow_graph(plan)


def edges(flow: FlowGraph) -> list[tuple[int, int]]:
    """Return pairs of successive positions, from -1 (the entry) to the number of instructions (the exit)."""
    end = len(flow.instructions)
    found, reached, rest = [], set(), [flow.blocks[0]]
    found.append((-1, flow.blocks[0].start))
    while rest:
        block = rest.pop()
        if block.start in reached:
            continue
        reached.add(block.start)
        found += pairwise(range(block.start, block.end))
        for number in block.successors:
            found.append((block.end - 1, end if number == flow.exit else flow.blocks[number].start))
            if number != flow.exit:
                rest.append(flow.blocks[number])
    return found
