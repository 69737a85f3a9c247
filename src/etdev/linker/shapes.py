"""Equality of tensor sizes at run time, whatever the dynamic dimensions are.

The sizes that a file states for a dynamic tensor are upper bounds. So two tensors with equal bounds may differ at run
time. Here each size is an integer, or a symbolic term that represents the same number in the whole method. This
requires that each tensor has only one size per call. In a method with loops, a tensor may have several sizes, so all
dynamic sizes are unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from etdev.program import model as m
from etdev.program.analysis.effects import ET_VIEW, arguments, effects, operator_name, outputs
from etdev.program.analysis.flow import FlowGraph

Size: TypeAlias = object
"""Integer, or symbolic term as a tuple.

Equal sizes always represent the same number. Different sizes may also represent the same number.
"""
Sizes: TypeAlias = tuple[Size, ...]


class Shapes:
    """The sizes of a method's tensors, as integers or symbolic terms."""

    def __init__(self, plan: m.ExecutionPlan, flow: FlowGraph) -> None:
        self._plan = plan
        self._sizes: dict[int, Sizes] = {}
        self._numbers: dict[int, Size] = {}
        dynamic = any(not tensor.is_static for _, tensor in plan.tensors())
        loops = any(way <= number for number, block in enumerate(flow.blocks) for way in block.successors)
        if not dynamic or loops:
            return
        times = Counter(value for call in flow.instructions for value in _set_by(plan, call))
        self._set_once = {value for value, count in times.items() if count == 1}.difference(plan.inputs)
        self._never_set = set(range(len(plan.values))).difference(times)
        for call in flow.instructions:
            if isinstance(call, m.KernelCall):
                self._follow(operator_name(plan.operators[call.op_index]), call)

    def equal(self, one: int, other: int) -> bool:
        """Return whether two tensors have the same shape in every call."""
        return self.of(one) == self.of(other)

    def of(self, value: int) -> Sizes:
        """Return the sizes of a tensor."""
        tensor = self._plan.tensor(value)
        if tensor.is_static:
            return tensor.sizes
        return self._sizes.get(value) or tuple(("size", value, dim) for dim in range(len(tensor.sizes)))

    def number(self, value: int) -> Size:
        """Return the number that an integer value holds, as an integer or a symbolic term."""
        found = self._plan.values[value]
        if isinstance(found, m.Int) and value in self._never_set:
            return found.int_val
        return self._numbers.get(value, ("number", value))

    def _follow(self, name: str, call: m.KernelCall) -> None:
        if name == "aten::sym_size.int":
            if call.args[2] in self._set_once and self._is_settled(call.args[0]):
                self._numbers[call.args[2]] = self._size_at(call.args[0], self.number(call.args[1]))
            return
        out, given = self._split(name, call)
        if out not in self._set_once or not self._is_dynamic(out):
            return
        tensors = [value for value in given if isinstance(self._plan.values[value], m.Tensor)]
        rule = RULES.get(name)
        if rule is None or not tensors or not all(map(self._is_settled, tensors)):
            return
        found = rule(self, [self.of(value) for value in tensors], given)
        if found is not None and len(found) == len(self._plan.tensor(out).sizes):
            self._sizes[out] = found

    def _split(self, name: str, call: m.KernelCall) -> tuple[int, tuple[int, ...]]:
        """Return the value index of the first output (-1 if there is none), and the arguments before the outputs."""
        if name == f"{ET_VIEW}.default":
            return call.args[-1], call.args[:-1]
        return next(iter(outputs(self._plan, call.args)), -1), arguments(self._plan, call.args)

    def _size_at(self, tensor: int, dim: Size) -> Size:
        sizes = self.of(tensor)
        return sizes[dim] if isinstance(dim, int) and -len(sizes) <= dim < len(sizes) else ("size", tensor, dim)

    def _is_settled(self, tensor: int) -> bool:
        """Return whether a tensor has only one size per call."""
        once = tensor in self._set_once or tensor in self._never_set
        return not self._is_dynamic(tensor) or once

    def _is_dynamic(self, value: int) -> bool:
        return not self._plan.tensor(value).is_static

    def numbers(self, value: int) -> Sizes | None:
        """Return the integers of a list as sizes; None if the value is not a list of integers."""
        found = self._plan.values[value]
        return tuple(map(self.number, found.items)) if isinstance(found, m.IntList) else None


def _set_by(plan: m.ExecutionPlan, call: m.Instruction) -> Iterator[int]:
    """Yield the values that an instruction sets, numbers included."""
    match call:
        case m.KernelCall():
            found = effects(plan, call)
            yield from {*found.writes, *found.updates, *found.fills, *call.args[-1:]}
        case m.DelegateCall():
            yield from set(call.args)
        case m.MoveCall():
            yield call.move_to


# Rules for the sizes of outputs

_Rule: TypeAlias = Callable[[Shapes, Sequence[Sizes], Sequence[int]], Sizes | None]
"""Function that returns the sizes of an output.

Its second argument has the sizes of each tensor argument. Its third argument has the value indices of all arguments.
"""


def _first(shapes: Shapes, sizes: Sequence[Sizes], given: Sequence[int]) -> Sizes | None:
    return sizes[0]


def _broadcast(shapes: Shapes, sizes: Sequence[Sizes], given: Sequence[int]) -> Sizes | None:
    rank = max(map(len, sizes))
    found = []
    for dim in range(-rank, 0):
        those: set[Size] = {size[dim] for size in sizes if len(size) >= -dim} - {1}
        # A number other than 1 is the output's size. Other tensors are broadcast to it.
        those = {size for size in those if isinstance(size, int)} or those
        found.append(next(iter(those), 1) if len(those) < 2 else ("broadcast", *sorted(those, key=repr)))
    return tuple(found)


def _view(shapes: Shapes, sizes: Sequence[Sizes], given: Sequence[int]) -> Sizes | None:
    asked = shapes.numbers(given[1]) if len(given) > 1 else None
    if asked is None or -1 not in asked:
        return asked
    rest = [size for size in sizes[0] if size != 1]
    for size in asked:
        if size in rest:
            rest.remove(size)
        elif size not in (1, -1):
            return None
    # The requested size -1 is the one size of the input that no other requested size accounts for.
    found = rest[0] if rest else 1
    return tuple(found if size == -1 else size for size in asked) if len(rest) < 2 and asked.count(-1) == 1 else None


def _permuted(shapes: Shapes, sizes: Sequence[Sizes], given: Sequence[int]) -> Sizes | None:
    dims = shapes.numbers(given[1]) if len(given) > 1 else None
    rank = len(sizes[0])
    if dims is None or not all(isinstance(dim, int) and -rank <= dim < rank for dim in dims):
        return None
    return tuple(sizes[0][dim] for dim in dims if isinstance(dim, int))


def _rows_and(last: Callable[[Sizes], Size], of: int, by: int) -> _Rule:
    """Return a rule for an output that has the sizes of tensor argument ``of``, except for the last size.

    ``last`` selects the output's last size from the sizes of tensor argument ``by``.
    """

    def rule(shapes: Shapes, sizes: Sequence[Sizes], given: Sequence[int]) -> Sizes | None:
        return (*sizes[of][:-1], last(sizes[by])) if max(of, by) < len(sizes) and sizes[of] and sizes[by] else None

    return rule


def _embedded(shapes: Shapes, sizes: Sequence[Sizes], given: Sequence[int]) -> Sizes | None:
    return (*sizes[1], sizes[0][-1]) if len(sizes) > 1 and sizes[0] else None


_POINT_WISE = """
    abs.out acos.out acosh.out add.Scalar_out add.out asin.out asinh.out atan.out atan2.out atanh.out
    bitwise_and.Scalar_out bitwise_and.Tensor_out bitwise_not.out bitwise_or.Scalar_out bitwise_or.Tensor_out
    bitwise_xor.Scalar_out bitwise_xor.Tensor_out ceil.out clamp.Tensor_out clamp.out cos.out cosh.out
    div.Scalar_mode_out div.Scalar_out div.out div.out_mode elu.out eq.Scalar_out eq.Tensor_out erf.out exp.out
    expm1.out floor.out floor_divide.out fmod.Scalar_out fmod.Tensor_out ge.Scalar_out ge.Tensor_out gelu.out
    gt.Scalar_out gt.Tensor_out hardsigmoid.out hardswish.out hardtanh.out isinf.out isnan.out le.Scalar_out
    le.Tensor_out leaky_relu.out log.out log10.out log1p.out log2.out logical_and.out logical_not.out logical_or.out
    logical_xor.out logit.out lt.Scalar_out lt.Tensor_out masked_fill.Scalar_out maximum.out minimum.out
    mul.Scalar_out mul.out ne.Scalar_out ne.Tensor_out neg.out pow.Scalar_out pow.Tensor_Scalar_out
    pow.Tensor_Tensor_out reciprocal.out relu.out remainder.Scalar_out remainder.Tensor_out round.out rsqrt.out
    rsub.Scalar_out sigmoid.out sign.out silu.out sin.out sinh.out sqrt.out sub.Scalar_out sub.out tan.out tanh.out
    trunc.out where.self_out
"""
_LIKE_FIRST = """
    _log_softmax.out _softmax.out _to_copy.out alias_copy.out clone.out cumsum.out detach_copy.out index_put.out
    native_batch_norm.out _native_batch_norm_legit_no_training.out native_group_norm.out native_layer_norm.out
    lift_fresh_copy.out scatter.src_out scatter.value_out scatter_add.out select_scatter.out slice_scatter.out
"""
RULES: Mapping[str, _Rule] = {
    **{f"aten::{name}": _broadcast for name in _POINT_WISE.split()},
    **{f"aten::{name}": _first for name in _LIKE_FIRST.split()},
    "dim_order_ops::_clone_dim_order.out": _first,
    "et_copy::_d2h_copy.out": _first,
    "et_copy::_h2d_copy.out": _first,
    "dim_order_ops::_to_dim_order_copy.out": _first,
    "aten::view_copy.out": _view,
    f"{ET_VIEW}.default": _view,
    "aten::permute_copy.out": _permuted,
    "aten::mm.out": _rows_and(lambda sizes: sizes[-1], 0, 1),
    "aten::bmm.out": _rows_and(lambda sizes: sizes[-1], 0, 1),
    "aten::addmm.out": _rows_and(lambda sizes: sizes[-1], 1, 2),
    "aten::linear.out": _rows_and(lambda sizes: sizes[0], 0, 1),
    "aten::embedding.out": _embedded,
}
