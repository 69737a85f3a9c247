"""What a method copies, and what it writes in place, as its instructions stand in the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from etdev.decisions import ElisionKind
from etdev.pipeline.naming import instruction_name
from etdev.program import model as m
from etdev.program.effects import operator_name, outputs, tensors
from etdev.program.reaching import Kind, Place
from etdev.program.storage import MethodMemory

CopyKind: TypeAlias = ElisionKind | Literal["order", "repeat"]
"""What a copy is for: as the linker has it, or another order of the elements, or the same ones several times."""

_OPERATORS: Mapping[CopyKind, str] = {
    "views": "alias_copy clone detach_copy lift_fresh_copy squeeze_copy unsqueeze_copy view_copy _to_copy",
    "slices": "select_copy slice_copy split_copy split_with_sizes_copy unbind_copy narrow_copy",
    "cat": "cat stack",
    "write_back": "copy_",
    "order": "permute_copy transpose_copy t_copy",
    "repeat": "expand_copy repeat",
}
_KINDS: Mapping[str, CopyKind] = {
    **{f"aten::{name}": kind for kind, names in _OPERATORS.items() for name in names.split()},
    "dim_order_ops::_clone_dim_order": "views",
    "dim_order_ops::_to_dim_order_copy": "views",
}
"""Operators without their overloads."""


@dataclass(frozen=True, slots=True)
class CopyCalls:
    """Instructions of one operator that move bytes and compute nothing."""

    operator: str
    """``aten::view_copy.out``."""
    kind: CopyKind
    calls: int
    nbytes: int
    """What one pass over the instructions copies in them, of the largest sizes."""


@dataclass(frozen=True, slots=True)
class OutputInPlace:
    """An output that lies over an operand of the instruction that writes it."""

    instruction: int
    """Its position."""
    operator: str
    """``aten::add.out``, or the name of a delegate."""
    output: int
    """Index of the output among the method's values."""
    operand: int
    """Index of the operand."""
    nbytes: int
    """Of the output, of the largest size."""


def copy_calls(plan: m.ExecutionPlan, calls: Iterable[m.Instruction]) -> tuple[CopyCalls, ...]:
    """The copies that are among a method's instructions, those that copy most first.

    A copy that changes the element type computes something and is none.
    """
    found: dict[tuple[str, CopyKind], tuple[int, int]] = {}
    for call in calls:
        if isinstance(call, m.KernelCall) and (kind := _kind(plan, call)):
            key = operator_name(plan.operators[call.op_index]), kind
            number, nbytes = found.get(key, (0, 0))
            found[key] = number + 1, nbytes + sum(tensor.nbytes for tensor in _written(plan, call))
    copies = [CopyCalls(*key, *amounts) for key, amounts in found.items()]
    return tuple(sorted(copies, key=lambda item: (-item.nbytes, item.operator)))


def _kind(plan: m.ExecutionPlan, call: m.KernelCall) -> CopyKind | None:
    kind = _KINDS.get(plan.operators[call.op_index].name)
    source = None if kind is None else _source(plan, call, 1 if kind == "write_back" else 0)
    if source is None or any(out.scalar_type is not source.scalar_type for out in _written(plan, call)):
        return None
    return "order" if kind == "views" and any(_other_order(source, out) for out in _written(plan, call)) else kind


def _source(plan: m.ExecutionPlan, call: m.KernelCall, argument: int) -> m.Tensor | None:
    """What is copied, or the first of it."""
    value = plan.values[call.args[argument]] if argument < len(call.args) else None
    if isinstance(value, m.TensorList) and value.items:
        value = plan.values[value.items[0]]
    return value if isinstance(value, m.Tensor) else None


def _other_order(source: m.Tensor, out: m.Tensor) -> bool:
    return len(source.dim_order) == len(out.dim_order) and source.dim_order != out.dim_order


def _written(plan: m.ExecutionPlan, call: m.KernelCall) -> Iterator[m.Tensor]:
    for index in outputs(plan, call.args) or tensors(plan, call.args[-1:]):
        tensor = plan.values[index]
        if isinstance(tensor, m.Tensor):
            yield tensor


def outputs_in_place(plan: m.ExecutionPlan, memory: MethodMemory) -> tuple[OutputInPlace, ...]:
    """The outputs that lie over an operand of their instruction, by position.

    What an instruction changes by its name, such as ``index_put_``, is no output of another operand.
    """
    found = memory.reaching
    outs: dict[tuple[int, Place], int] = {
        (write.position, found.places[write.place]): write.place for write in found.writes if write.kind is Kind.ALL
    }
    operands: dict[tuple[int, int], int] = {}
    for use in found.uses:
        out = outs.get((use.position, found.places[use.place]))
        if out is not None and out not in (use.place, use.value):
            operands.setdefault((use.position, out), use.value)
    return tuple(_in_place(plan, memory, *key, operand) for key, operand in sorted(operands.items()))


def _in_place(plan: m.ExecutionPlan, memory: MethodMemory, position: int, output: int, operand: int) -> OutputInPlace:
    place = memory.reaching.places[output]
    name = instruction_name(plan, memory.reaching.flow.instructions[position])
    return OutputInPlace(position, name, output, operand, place.end - place.start)
