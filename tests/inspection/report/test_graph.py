"""The graph on the page: which instructions read what others wrote, and what is said of each value."""

from __future__ import annotations

import tracemalloc
from typing import Any

from etdev.inspection.planned_memory import method_memories
from etdev.inspection.report.dataflow import data_flow
from etdev.inspection.report.graph import graph
from etdev.page.model import Graph, Texts
from etdev.program import Program
from etdev.program import model as m
from program.hand import tensor
from support.files import ADD, branches, copies, cos, counters, delegated, method, overwriting, program, sin
from support.on_devices import two_devices


def edges(found: Program, memory: str | None = None) -> set[tuple[int, int, int]]:
    """Writer, reader and value of each edge of the first method."""
    known = method_memories(found)[0] if memory is None else memory
    return set(data_flow(found, found.execution_plan[0], known).edges)


def drawn(found: Program, **more: Any) -> tuple[Graph, tuple[str, ...]]:
    """The graph of the first method, and the page's texts."""
    texts = Texts()
    plan, memory = found.execution_plan[0], method_memories(found)[0]
    made = graph(plan, data_flow(found, plan, memory), memory, more.get("modules", {}), more.get("names", ()), texts)
    return made, texts.all()


def test_values_are_followed_from_their_writers_to_their_readers() -> None:
    # Node 8 is the input, 9 the state, 10 the output.
    assert edges(copies()) == {
        (8, 0, 0),
        (0, 1, 2),
        (1, 2, 3),
        (8, 3, 0),
        (9, 3, 1),
        (3, 4, 5),
        (8, 5, 0),
        (2, 5, 4),
        (5, 6, 6),
        (6, 7, 7),
        (7, 10, 8),
    }


def test_after_a_branch_a_value_comes_from_either_side() -> None:
    found = edges(branches())
    assert {(3, 8, 6), (7, 8, 6)} <= found
    assert not [edge for edge in found if edge[0] in (1, 2, 3) and edge[1] in (5, 6)]


def test_jumps_lead_to_each_possible_next_instruction() -> None:
    made, _ = drawn(branches())
    assert list(zip(made.jump_from, made.jump_to, strict=True)) == [(0, 1), (0, 5), (4, 8)]


def test_in_a_loop_a_value_also_comes_from_the_round_before() -> None:
    flag = m.Tensor(m.ScalarType.BOOL, (), (), allocation_info=m.AllocationDetails(1, 64))
    values = [flag, tensor(4, at=0), tensor(4, at=16), tensor(4, at=32)]
    # Again from instruction 0 while the condition is false.
    calls = [sin(1, 2), cos(2, 1), m.JumpFalseCall(0, 0), sin(1, 3)]
    plan = method(values, calls, inputs=(0, 1), outputs=(3,))
    found = edges(program(plan))
    assert {(1, 0, 1), (5, 0, 1), (0, 1, 2), (1, 3, 1), (4, 2, 0)} <= found


def conditions(count: int) -> Program:
    """So many conditions one after another; each is the sine or the cosine of the one before."""
    flag = m.Tensor(m.ScalarType.BOOL, (), (), allocation_info=m.AllocationDetails(1, 0))
    values: list[m.Value] = [flag, tensor(4, at=16), m.Bool(False)]
    calls: list[m.Instruction] = []
    last = 1
    for number in range(count):
        sine, cosine, either = (len(values) + offset for offset in range(3))
        values += [tensor(4, at=16 * number + 32), tensor(4, at=16 * number + 32), tensor(4)]
        start = len(calls)
        calls += [m.JumpFalseCall(0, start + 4), sin(last, sine), m.MoveCall(sine, either)]
        calls += [m.JumpFalseCall(2, start + 6), cos(last, cosine), m.MoveCall(cosine, either)]
        last = either
    values.append(tensor(4, at=16 * count + 32))
    return program(method(values, [*calls, sin(last, len(values) - 1)], inputs=(0, 1)))


def test_many_branches_take_little_time_and_memory() -> None:
    """A set of all values for each branch would take 3 GB for 1,600 of them."""
    found = conditions(800)
    tracemalloc.start()
    seen = edges(found, "lifetimes are unknown")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 50_000_000
    assert {(2, 6 + 1, 5), (5, 6 + 1, 5), (2, 6 + 4, 5), (5, 6 + 4, 5)} <= seen  # Value 5 is either of the first.
    assert len(seen) == 7 * 800 + 1


def test_a_part_of_a_larger_tensor_is_followed_by_its_bytes() -> None:
    """No instruction writes value 3 as a whole: each half of it is written as another tensor."""
    values = [tensor(4, at=64), tensor(4, at=0), tensor(4, at=16), tensor(8, at=0), tensor(8, at=32)]
    plan = method(values, [sin(0, 1), cos(0, 2), sin(3, 4)], outputs=(4,))
    assert {(0, 2, 3), (1, 2, 3)} <= edges(program(plan))
    assert not {(0, 2, 3), (1, 2, 3)} & edges(program(plan), "lifetimes are unknown")


def test_methods_with_unknown_lifetimes_have_a_graph_too() -> None:
    found = overwriting()
    (reason,) = method_memories(found)
    assert isinstance(reason, str)
    # The planner's mistake: value 1 is overwritten before it is read. The graph shows what was meant.
    assert edges(found) == {(2, 0, 0), (2, 1, 0), (0, 3, 1)}
    made, texts = drawn(found)
    assert [texts[number] for number in made.values.place] == [f"buffer 1 at {at}" for at in (0, 16, 16)]


def test_state_is_an_end_even_without_a_name() -> None:
    made, texts = drawn(counters())
    assert [(texts[kind], texts[name]) for kind, name in zip(made.ends.kind, made.ends.name, strict=True)] == [
        ("input", "0"),
        ("state", "value 1"),
        ("output", "0"),
    ]


def test_inputs_have_the_names_of_the_config() -> None:
    made, texts = drawn(copies(), names=("images",))
    assert texts[made.ends.name[0]] == "images"


def test_what_an_instruction_reads_comes_before_what_it_writes() -> None:
    made, _ = drawn(copies())
    starts = [sum(made.reads[:at]) + sum(made.writes[:at]) for at in range(len(made.reads))]
    assert len(made.arguments) == sum(made.reads) + sum(made.writes)
    cat = starts[5]
    # The list of tensors is replaced by its tensors; value 9 is the dimension.
    assert made.arguments[cat : cat + made.reads[5] + made.writes[5]] == (0, 4, 9, 6)
    assert (made.reads[5], made.writes[5]) == (3, 1)
    # The copy into state changes value 1, and needs nothing of it.
    assert made.arguments[starts[4] : starts[5]] == (5, 12, 1)


def test_values_outside_of_planned_memory_are_described() -> None:
    info = m.ExtraTensorInfo(fully_qualified_name="layer.weight")
    values = [tensor(4, at=0), tensor(4, data=1, extra_tensor_info=info), tensor(4), tensor(4, at=16)]
    values += [m.Int(1), m.IntList((4,) * 12), m.Double(0.5), m.Null(), m.String("a\nb")]
    call = m.Operator("aten::call", "out")
    calls = [m.KernelCall(0, (0, 1, 4, 3, 3)), m.KernelCall(1, (2, 5, 6, 7, 8, 3, 3))]
    plan = method(values, calls, inputs=(0, 2), outputs=(3,), operators=(ADD, call))
    made, texts = drawn(program(plan))
    rows = {value: (texts[made.values.type[row]], made.values.size[row]) for row, value in enumerate(made.values.value)}
    assert rows == {
        1: ("float32 [4]", 16),
        2: ("float32 [4]", 16),
        4: ("int 1", -1),
        5: ("ints [1, 1, 1, 1, 1, 1, 1, 1, … 12 in total]", -1),
        6: ("float 0.5", -1),
        7: ("none", -1),
        8: ("string 'a\\nb'", -1),
    }
    assert texts[made.values.name[0]] == "layer.weight"
    assert [texts[number] for number in made.values.place[:2]] == ["constant in the file", "memory given at run time"]
    assert set(made.values.place[2:]) == {-1}


def test_kinds_tell_copies_delegates_and_jumps_apart() -> None:
    def kinds(found: Program) -> list[str]:
        made, texts = drawn(found)
        return [texts[number] for number in made.kind]

    assert kinds(copies()) == ["kernel", "copy", "copy", "kernel", "copy", "copy", "kernel", "copy"]
    assert kinds(delegated()) == ["delegate"]
    assert set(kinds(branches())) == {"control", "pointer", "kernel"}
    assert "transfer" in kinds(two_devices())


def test_devices_and_modules_are_those_of_the_instructions() -> None:
    made, texts = drawn(two_devices(), modules={0: "encoder.0"})
    assert texts[made.module[0]] == "encoder.0"
    assert set(made.module[1:]) <= {-1}
    transfers = [position for position, kind in enumerate(made.kind) if texts[kind] == "transfer"]
    assert {made.device[position] for position in transfers} == {-1}
    assert all(made.device[position] >= 0 for position in range(len(made.kind)) if position not in transfers)
