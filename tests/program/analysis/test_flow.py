"""Control flow: successors of each instruction, and instructions that run repeatedly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.program import model as m
from etdev.program.analysis.flow import FlowGraph, flow_graph
from linker.programs import Method

FREE = m.FreeCall(0)
"""Instruction that only takes a position."""
ASKED, FALSE, TRUE = 1, 2, 3
"""Values: a flag that the caller sets, and two that no instruction writes."""


def graph(*chains: tuple[m.Instruction, ...]) -> FlowGraph:
    """Return the control flow of these instructions."""
    values = (m.Int(0), m.Bool(True), m.Bool(False), m.Bool(True))
    return flow_graph(
        m.ExecutionPlan("forward", values, (ASKED,), (), tuple(map(m.Chain, chains)), (m.Operator("my::op"),), (), (0,))
    )


def blocks(*chains: tuple[m.Instruction, ...]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return (start, end, successors) of each block."""
    return [(block.start, block.end, block.successors) for block in graph(*chains).blocks]


def jump(to: int, on: int = ASKED) -> m.JumpFalseCall:
    return m.JumpFalseCall(on, to)


CASES: dict[str, tuple[tuple[tuple[m.Instruction, ...], ...], list[tuple[int, int, tuple[int, ...]]]]] = {
    "nothing": (((),), []),
    "a straight line": (((FREE, FREE),), [(0, 2, (1,))]),
    "two chains run one after the other": (((FREE,), (FREE,)), [(0, 2, (1,))]),
    "a branch without another side": (
        ((FREE, jump(3), FREE, FREE),),
        [(0, 2, (1, 2)), (2, 3, (2,)), (3, 4, (3,))],
    ),
    "a branch with two sides": (
        ((jump(3), FREE, jump(4, FALSE), FREE, FREE),),
        [(0, 1, (1, 2)), (1, 3, (3,)), (3, 4, (3,)), (4, 5, (4,))],
    ),
    "a jump that is never taken": (((jump(2, TRUE), FREE, FREE),), [(0, 3, (1,))]),
    "a jump to the next instruction": (((jump(1), FREE),), [(0, 2, (1,))]),
    "a jump to the end": (((FREE, jump(3), FREE),), [(0, 2, (1, 2)), (2, 3, (2,))]),
    "a jump as the last instruction": (((FREE, jump(0)),), [(0, 2, (1, 0))]),
    "a jump counts inside its own chain": (((FREE, FREE), (FREE, jump(0))), [(0, 2, (1,)), (2, 4, (2, 1))]),
    "the end of a chain is the start of the next": (
        ((jump(2), FREE), (FREE,)),
        [(0, 1, (1, 2)), (1, 2, (2,)), (2, 3, (3,))],
    ),
    "what is jumped over always": (((jump(2, FALSE), FREE, FREE),), [(0, 1, (2,)), (1, 2, (2,)), (2, 3, (3,))]),
    "forever": (((FREE, jump(0, FALSE)),), [(0, 2, (0,))]),
}


@pytest.mark.parametrize("name", CASES)
def test_blocks_begin_where_a_jump_leads_and_end_where_one_leads_elsewhere(name: str) -> None:
    chains, expected = CASES[name]
    assert blocks(*chains) == expected


def test_the_exit_is_behind_the_last_block() -> None:
    assert graph(()).exit == 0
    assert graph((FREE, jump(0))).exit == 1


WRITERS: dict[str, Callable[[Method, int, int], None]] = {
    "a comparison": lambda method, flag, one: method.kernel("executorch_prim::eq.Scalar", one, one, flag),
    "a move": lambda method, flag, one: method.move(method.value(m.Bool(True)), flag),
    "an unknown operator, wherever it has it": lambda method, flag, one: method.kernel("my::op", flag, one),
    "a delegate": lambda method, flag, one: method.calls.append(m.DelegateCall(0, (flag,))),
    "a number out of a tensor": lambda method, flag, one: method.kernel(
        "aten::_local_scalar_dense", method.tensor(4), flag
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_flag_that_something_writes_leads_both_ways(writer: str) -> None:
    method = Method()
    flag, one = method.value(m.Bool(False)), method.value(m.Int(1))
    WRITERS[writer](method, flag, one)
    method.calls += [jump(3, flag), FREE, FREE]
    assert flow_graph(method.plan()).blocks[0].successors == (1, 2)


def test_a_flag_that_is_only_read_leads_one_way() -> None:
    method = Method()
    flag, one = method.value(m.Bool(False)), method.value(m.Int(1))
    method.kernel("executorch_prim::eq.Scalar", flag, one, method.value(m.Bool(False)))
    method.kernel("aten::relu.out", method.tensor(4), flag, one)
    method.calls += [jump(4, flag), FREE, FREE]
    assert flow_graph(method.plan()).blocks[0].successors == (2,)


def test_an_input_flag_leads_both_ways() -> None:
    assert graph((jump(2), FREE, FREE)).blocks[0].successors == (1, 2)


def test_a_counted_loop_may_go_round_and_may_end() -> None:
    method = Method()
    method.op(method.input(32))
    with method.loop(3):
        method.op(0)
    method.op(0)
    found = flow_graph(method.plan())
    assert [(block.start, block.end, block.successors) for block in found.blocks] == [
        (0, 1, (1,)),
        (1, 5, (2, 1)),
        (5, 7, (3,)),
    ]


def test_an_order_has_what_is_reached_after_what_leads_there() -> None:
    # 0 → 1 | 3, 1 → 2 | 5, 2 → 6, 3 → 4 | 5 …: two branches, one inside the other.
    found = graph((jump(5), jump(4), FREE, jump(6, FALSE), FREE, FREE, FREE))
    order = found.order()
    assert sorted(order) == list(range(len(found.blocks)))
    rank = {block: number for number, block in enumerate(order)}
    for number, block in enumerate(found.blocks):
        assert all(rank[number] < rank[after] for after in block.successors if after != found.exit)


def test_an_order_leaves_out_what_nothing_reaches() -> None:
    assert graph((jump(2, FALSE), FREE, FREE)).order() == [0, 2]
    assert graph(()).order() == []


CYCLES: dict[str, tuple[tuple[m.Instruction, ...], list[set[int]]]] = {
    "a straight line is one block": ((FREE, FREE), [{0, 1}]),
    "a branch has its blocks apart": ((jump(3), FREE, jump(4, FALSE), FREE, FREE), [{0}, {1, 2}, {3}, {4}]),
    "a loop": ((FREE, FREE, jump(1), FREE), [{0}, {1, 2}, {3}]),
    "a branch inside a loop": ((FREE, jump(3), FREE, jump(1), FREE), [{0}, {1, 2, 3}, {4}]),
    "a loop inside a loop": ((FREE, FREE, jump(1), jump(0), FREE), [{0, 1, 2, 3}, {4}]),
    "two loops": ((FREE, jump(0), FREE, jump(2)), [{0, 1}, {2, 3}]),
    "a loop with its entry in the middle": ((jump(2), FREE, FREE, jump(1), FREE), [{0}, {1, 2, 3}, {4}]),
    "a loop that nothing reaches": ((jump(4, FALSE), FREE, FREE, jump(1), FREE), [{0}, {1, 2, 3}, {4}]),
}


@pytest.mark.parametrize("name", CYCLES)
def test_a_cycle_has_what_may_run_after_each_other(name: str) -> None:
    instructions, expected = CYCLES[name]
    numbers = graph(instructions).cycles()
    assert len(numbers) == len(instructions)
    together = {number: {at for at, other in enumerate(numbers) if other == number} for number in numbers}
    assert sorted(together.values(), key=min) == expected


def test_what_may_run_again_is_in_a_loop() -> None:
    found = graph((FREE, FREE, jump(1), FREE, jump(6), FREE, FREE))
    again = [at for at, number in enumerate(found.cycles()) if number in found.loops()]
    assert again == [1, 2]
