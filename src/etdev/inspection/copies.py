"""Detection of copies and in-place outputs among a method's instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.program import model as m
from etdev.program.analysis.effects import instruction_name, operator_name, outputs, tensors
from etdev.program.analysis.reaching import Kind, Place
from etdev.program.analysis.storage import MethodMemory
from etdev.program.info import CopyCalls, CopyKind, OutputInPlace

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
"""Maps an operator's name, without its overload, to the kind of copy that the operator makes."""


def copy_calls(plan: m.ExecutionPlan) -> tuple[CopyCalls, ...]:
    """Return a method's copies, totalled for each operator, largest number of bytes first.

    A copy that changes the element type is a computation and is not included.
    """
    found: dict[tuple[str, CopyKind], tuple[int, int]] = {}
    for call in plan.instructions:
        if isinstance(call, m.KernelCall) and (kind := copy_kind(plan, call)):
            key = operator_name(plan.operators[call.op_index]), kind
            number, nbytes = found.get(key, (0, 0))
            found[key] = number + 1, nbytes + sum(tensor.nbytes for tensor in _written(plan, call))
    copies = [CopyCalls(*key, *amounts) for key, amounts in found.items()]
    return tuple(sorted(copies, key=lambda item: (-item.nbytes, item.operator)))


def copy_kind(plan: m.ExecutionPlan, call: m.KernelCall) -> CopyKind | None:
    """Return the kind of copy that a call makes; None if the call computes something."""
    kind = _KINDS.get(plan.operators[call.op_index].name)
    source = None if kind is None else _source(plan, call, 1 if kind == "write_back" else 0)
    if source is None or any(out.scalar_type is not source.scalar_type for out in _written(plan, call)):
        return None
    return "order" if kind == "views" and any(_other_order(source, out) for out in _written(plan, call)) else kind


def _source(plan: m.ExecutionPlan, call: m.KernelCall, argument: int) -> m.Tensor | None:
    """Return the tensor that a call copies. If the call copies a list of tensors, return its first tensor."""
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
    """Return the outputs that share bytes with an operand of the same instruction, in order of position.

    An operand that the operator updates by definition, such as the first operand of ``index_put_``, is not included.
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
