"""The graph of a method's instructions: nodes, data flow and jumps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from etdev.inspection.copies import copy_kind
from etdev.inspection.naming import dtype_name
from etdev.inspection.report.dataflow import INPUT, STATE, DataFlow, End
from etdev.inspection.report.tensors import shape_text
from etdev.inspection.report.timeline import device_of
from etdev.linker.state import state_name
from etdev.page.model import NONE, Edges, Ends, Graph, Texts, Values
from etdev.program import model as m
from etdev.program.analysis.effects import ET_VIEW
from etdev.program.analysis.storage import MethodMemory
from etdev.program.devices import D2H_COPY, H2D_COPY

_LONGEST = 8
"""Maximum number of items to show of a list."""


def graph(
    plan: m.ExecutionPlan,
    found: DataFlow,
    memory: MethodMemory | str,
    modules: Mapping[int, str],
    input_names: Sequence[str],
    texts: Texts,
) -> Graph:
    """Return the graph of a method. ``modules`` maps positions of instructions to paths of the model's modules."""
    calls = plan.instructions
    kinds = [_kind(plan, call) for call in calls]
    jumps = tuple(_jumps(found))
    on_page = set() if isinstance(memory, str) else {*memory.reaching.places}
    used = {value for one in found.operands for value in (*one.reads, *one.writes)} | {end.value for end in found.ends}
    return Graph(
        kind=tuple(map(texts.number, kinds)),
        module=tuple(texts.number(modules.get(position)) for position in range(len(calls))),
        device=tuple(
            texts.number(None if kind == "transfer" else str(device_of(plan, call)))
            for kind, call in zip(kinds, calls, strict=True)
        ),
        arguments=tuple(chain.from_iterable((*one.reads, *one.writes) for one in found.operands)),
        reads=tuple(len(one.reads) for one in found.operands),
        writes=tuple(len(one.writes) for one in found.operands),
        jump_from=tuple(origin for origin, _ in jumps),
        jump_to=tuple(to for _, to in jumps),
        ends=Ends(
            kind=tuple(texts.number(end.kind) for end in found.ends),
            name=tuple(texts.number(_end_name(plan, end, input_names)) for end in found.ends),
            value=tuple(end.value for end in found.ends),
        ),
        edges=Edges(*(tuple(edge[column] for edge in found.edges) for column in range(3))),
        values=_values(plan, sorted(used - on_page), texts),
    )


def _kind(plan: m.ExecutionPlan, call: m.Instruction) -> str:
    match call:
        case m.DelegateCall():
            return "delegate"
        case m.JumpFalseCall():
            return "control"
        case m.MoveCall() | m.FreeCall():
            return "pointer"
        case m.KernelCall():
            name = plan.operators[call.op_index].name
            if name in (H2D_COPY, D2H_COPY):
                return "transfer"
            if name == ET_VIEW:
                return "pointer"
            return "kernel" if copy_kind(plan, call) is None else "copy"


def _jumps(found: DataFlow) -> Iterator[tuple[int, int]]:
    """Yield the position of each instruction that may jump, with the position of each possible next instruction."""
    for block in found.flow.blocks:
        after = [found.flow.blocks[way].start for way in block.successors if way != found.flow.exit]
        if after != [block.end] and isinstance(found.flow.instructions[block.end - 1], m.JumpFalseCall):
            yield from ((block.end - 1, position) for position in after)


def _end_name(plan: m.ExecutionPlan, end: End, inputs: Sequence[str]) -> str:
    if end.kind == INPUT and end.position < len(inputs):
        return inputs[end.position]
    if end.kind == STATE:
        return state_name(plan, (end.value,)) or f"value {end.value}"
    return str(end.position)


def _values(plan: m.ExecutionPlan, indices: Sequence[int], texts: Texts) -> Values:
    values = [plan.values[index] for index in indices]
    return Values(
        value=tuple(indices),
        name=tuple(texts.number(state_name(plan, (index,))) for index in indices),
        type=tuple(texts.number(_type(plan, value)) for value in values),
        place=tuple(texts.number(_place(value)) for value in values),
        size=tuple(_size(value) for value in values),
    )


def _type(plan: m.ExecutionPlan, value: m.Value) -> str:
    match value:
        case m.Tensor():
            return f"{dtype_name(value.scalar_type)} {shape_text(value)}"
        case m.IntList():
            return _listed("ints", [_number(plan, item) for item in value.items])
        case m.DoubleList():
            return _listed("floats", map(repr, value.items))
        case m.BoolList():
            return _listed("bools", [str(item).lower() for item in value.items])
        case m.TensorList() | m.OptionalTensorList():
            return _listed("tensors", map(str, value.items))
        case _:
            return _scalar_type(value)


def _scalar_type(value: m.Value) -> str:
    match value:
        case m.Int():
            return f"int {value.int_val}"
        case m.Bool():
            return f"bool {str(value.bool_val).lower()}"
        case m.Double():
            return f"float {value.double_val!r}"
        case m.String():
            return f"string {value.string_val!r}"
        case _:
            return "none"


def _number(plan: m.ExecutionPlan, index: int) -> str:
    """Return an item of a list of integers as text. ``index`` is the value index of the item."""
    value = plan.values[index]
    return str(value.int_val) if isinstance(value, m.Int) else f"value {index}"


def _listed(kind: str, items: Sequence[str] | Iterator[str]) -> str:
    found = list(items)
    more = f", … {len(found):,} in total" if len(found) > _LONGEST else ""
    return f"{kind} [{', '.join(found[:_LONGEST])}{more}]"


def _place(value: m.Value) -> str | None:
    if not isinstance(value, m.Tensor):
        return None
    if value.is_constant:
        return "constant in a data file" if value.is_external else "constant in the file"
    if value.allocation_info is None:
        return "memory given at run time"
    return f"buffer {value.allocation_info.memory_id} at {value.allocation_info.memory_offset:,}"


def _size(value: m.Value) -> int:
    if not isinstance(value, m.Tensor) or value.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND:
        return NONE
    return value.nbytes
