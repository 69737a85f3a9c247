"""Effects of each instruction on tensors: reads, writes and aliases.

Kernels follow the rules of PyTorch's ``out`` variants. The few operators without such a variant have rules of their
own. The rules were checked by running the kernels. The last arguments of an ``out`` variant are the outputs. At its
end, a call lists the outputs again, as return values. An unknown operator is assumed to read and write every tensor
that it receives, with one exception. If the call repeats outputs at its end, the operator writes these outputs and does
not read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from etdev.program import model as m
from etdev.program import signatures

operator_name = signatures.operator_name

OUT_NAMESPACES = frozenset({"aten", "dim_order_ops", "quantized_decomposed", "et_copy", "cortex_m"})
"""Namespaces whose ``out`` variants are pure: they write only the outputs repeated at the end of a call."""

ET_VIEW = "executorch_prim::et_view"
COPY_INDEX = "executorch_prim::et_copy_index"
_SIZES_ONLY = frozenset({"aten::sym_size", "aten::sym_numel", "aten::sym_stride", "aten::sym_storage_offset"})
_SCALAR = "aten::_local_scalar_dense"
"""Operator that returns a number. Its output is not a tensor."""
_NO_CONTENT = frozenset({"aten::empty", "dim_order_ops::_empty_dim_order"})
_ALSO_UPDATED = {"aten::_native_batch_norm_legit.out": (3, 4), "aten::native_batch_norm.out": (3, 4)}
"""Maps an ``out`` variant to the positions of arguments that it changes in addition to its outputs.

These arguments are running statistics.
"""

SCRATCH: Mapping[str, tuple[int, ...]] = {
    f"cortex_m::quantized_{name}.out": positions
    for names, positions in (
        (("conv2d", "conv2d_nhwc"), (12,)),
        (("depthwise_conv2d", "depthwise_conv2d_nhwc"), (13,)),
        (("transpose_conv2d", "transpose_conv2d_nhwc"), (13, 14)),
        (("avg_pool2d", "avg_pool2d_nhwc"), (8,)),
        (("batch_matmul",), (7,)),
    )
    for name in names
}
"""Maps a kernel to the positions of its scratch memory: arguments that it overwrites without using their content.

Source: ``backends/cortex_m/ops/operators.yaml`` of executorch, which does not mark these arguments as written.
"""

DelegateInputs: TypeAlias = Mapping[int, int]
"""Maps the position of a delegate call to the call's number of inputs. Calls with an unknown number are missing."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of one instruction on tensors. Tensors are given by value index."""

    reads: tuple[int, ...] = ()
    """Tensors whose bytes the instruction reads."""
    writes: tuple[int, ...] = ()
    """Tensors that the instruction overwrites completely, regardless of their previous bytes."""
    updates: tuple[int, ...] = ()
    """Tensors that the instruction may write in part. ``reads`` contains these tensors, too."""
    fills: tuple[int, ...] = ()
    """Tensors whose content is valid after the instruction, although the instruction does not write all of their bytes.

    The remaining bytes are don't-care, or an earlier run of the same instruction wrote them.
    """
    view: tuple[int, int] | None = None
    """Pair ``(base, out)``. After the instruction, the data of ``out`` is at the address of ``base``."""
    move: tuple[int, int] | None = None
    """Pair ``(from, to)``. After the instruction, the value ``to`` is the same tensor as ``from``."""


def instruction_name(plan: m.ExecutionPlan, call: m.Instruction) -> str:
    """Return the name of the operator or delegate that an instruction calls.

    For other instructions, return the kind, such as ``MoveCall``.
    """
    match call:
        case m.KernelCall():
            return operator_name(plan.operators[call.op_index])
        case m.DelegateCall():
            return plan.delegates[call.delegate_index].id
        case _:
            return type(call).__name__


def effects(plan: m.ExecutionPlan, call: m.Instruction, delegate_inputs: int | None = None) -> Effects:
    """Return the effects of an instruction.

    ``delegate_inputs`` is the number of inputs among a delegate call's arguments, if known.
    """
    match call:
        case m.KernelCall():
            return _kernel(plan, plan.operators[call.op_index], call.args)
        case m.DelegateCall():
            if delegate_inputs is None:
                every = tensors(plan, call.args)
                return Effects(reads=every, updates=every)
            return Effects(
                reads=tensors(plan, call.args[:delegate_inputs]), writes=tensors(plan, call.args[delegate_inputs:])
            )
        case m.MoveCall():
            return Effects(move=(call.move_from, call.move_to)) if _is_tensor(plan, call.move_from) else Effects()
        case m.JumpFalseCall():
            return Effects(reads=tensors(plan, (call.cond_value_index,)))
        case m.FreeCall():
            return Effects()


def outputs(plan: m.ExecutionPlan, args: tuple[int, ...]) -> tuple[int, ...]:
    """Return the value indices of the outputs that a kernel call repeats at its end, or ``()`` if there are none."""
    return tensors(plan, args[-1:]) if _repeated(plan, args) else ()


def arguments(plan: m.ExecutionPlan, args: tuple[int, ...]) -> tuple[int, ...]:
    """Return a kernel call's arguments without its outputs, or all arguments if the call repeats no outputs."""
    return args[: len(args) - 1 - count] if (count := _repeated(plan, args)) else args


def _repeated(plan: m.ExecutionPlan, args: tuple[int, ...]) -> int:
    """Return the number of arguments that the last argument repeats, or 0 if it repeats no arguments.

    The repeated arguments are the outputs. They come directly before the last argument. If the last argument is a
    tensor, they are one argument: the same tensor. If the last argument is a list, they are either one argument, an
    equal list, or one argument for each item of the list.
    """
    if len(args) < 2:
        return 0
    last, before = plan.values[args[-1]], plan.values[args[-2]]
    if isinstance(last, m.Tensor):
        return int(args[-2] == args[-1])
    if not isinstance(last, m.TensorList):
        return 0
    if isinstance(before, m.TensorList):
        return int(before.items == last.items)
    count = len(last.items)
    return count if count and args[-1 - count : -1] == last.items else 0


_TENSOR_LISTS = m.TensorList, m.OptionalTensorList


def tensors(plan: m.ExecutionPlan, args: Iterable[int]) -> tuple[int, ...]:
    """Return all tensors among some values, tensors in lists included. Each tensor appears once."""
    found: dict[int, None] = {}
    for index in args:
        value = plan.values[index]
        if isinstance(value, m.Tensor):
            found[index] = None
        elif isinstance(value, _TENSOR_LISTS):
            found.update((item, None) for item in value.items if item >= 0 and _is_tensor(plan, item))
    return tuple(found)


def _kernel(plan: m.ExecutionPlan, operator: m.Operator, args: tuple[int, ...]) -> Effects:
    namespace, _, name = operator.name.partition("::")
    if namespace == "executorch_prim":
        return _prim(plan, operator, args)
    if operator.name in _SIZES_ONLY:
        return Effects()
    known = namespace in OUT_NAMESPACES
    if name.endswith("_") and not name.endswith("__"):
        if known and len(args) > 1 and args[0] == args[-1]:
            return _in_place(plan, operator, args)
        return _unknown(plan, args, ())
    outs = outputs(plan, args)
    if not known or not (outs or operator.name == _SCALAR):
        return _unknown(plan, arguments(plan, args), outs)
    if operator.name in _NO_CONTENT:
        return Effects(fills=outs)
    before = arguments(plan, args)
    updated = tensors(plan, (before[i] for i in _ALSO_UPDATED.get(operator_name(operator), ()) if i < len(before)))
    scratch = SCRATCH.get(operator_name(operator), ())
    read = [value for position, value in enumerate(before) if position not in scratch]
    overwritten = tensors(plan, (before[position] for position in scratch if position < len(before)))
    return Effects(reads=tensors(plan, read), writes=tuple(dict.fromkeys((*outs, *overwritten))), updates=updated)


def _unknown(plan: m.ExecutionPlan, args: tuple[int, ...], outs: tuple[int, ...]) -> Effects:
    """Return the effects of an unknown operator.

    The operator may read and write its arguments. It writes the outputs that the call repeats, and does not read them.
    """
    others = tensors(plan, args)
    return Effects(reads=others, updates=others, writes=tuple(out for out in outs if out not in others))


def _in_place(plan: m.ExecutionPlan, operator: m.Operator, args: tuple[int, ...]) -> Effects:
    """Return the effects of an in-place operator, which changes and returns its first argument."""
    changed = tensors(plan, args[:1])
    if operator.name == "aten::copy_":
        return Effects(reads=tensors(plan, args[1:-1]), writes=changed)
    return Effects(reads=tensors(plan, args[:-1]), updates=changed)


def _prim(plan: m.ExecutionPlan, operator: m.Operator, args: tuple[int, ...]) -> Effects:
    if operator.name == ET_VIEW and len(args) == 3:
        return Effects(view=(args[0], args[2]))
    if operator.name == COPY_INDEX and len(args) >= 3 and not _begins_later(plan.values[args[2]]):
        # The first call of a loop makes the output one row long. Each later call adds a row.
        return Effects(reads=tensors(plan, args[1:2]), fills=tensors(plan, args[:1]))
    found = tensors(plan, args)
    return Effects(reads=found, updates=found)


def _begins_later(index: m.Value) -> bool:
    """Return whether a loop that counts its rows with this number keeps the first rows."""
    return isinstance(index, m.Int) and index.int_val != 0


def _is_tensor(plan: m.ExecutionPlan, index: int) -> bool:
    return isinstance(plan.values[index], m.Tensor)
