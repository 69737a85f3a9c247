"""Copies whose outputs are each a contiguous range of the input's bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TypeAlias

from etdev.linker.merged import Refused
from etdev.program import model as m
from etdev.program.analysis.effects import arguments, outputs


@dataclass(frozen=True, slots=True)
class Run:
    """Output of a copy, equal to a contiguous range of the input's bytes."""

    out: int
    """Value index of the output."""
    offset: int
    """Offset of the range in bytes, from the start of the input."""


class Numbers:
    """Constant integer arguments of a method's instructions. A value that an instruction sets is not constant."""

    def __init__(self, plan: m.ExecutionPlan) -> None:
        self._plan = plan
        self._set = {*plan.inputs, *_written(plan)}

    def at(self, value: int, absent: int | None = None) -> int:
        """Return the constant integer that a value contains, or ``absent`` for a null value.

        Raise ``Refused`` for any other value.
        """
        found = self._plan.values[value]
        if isinstance(found, m.Int) and value not in self._set:
            return found.int_val
        if isinstance(found, m.Null) and absent is not None:
            return absent
        raise Refused("its arguments are known only at run time")

    def list(self, value: int) -> tuple[int, ...]:
        """Return the constant integers of a list. Raise ``Refused`` if the value is not a list of constant integers."""
        found = self._plan.values[value]
        if not isinstance(found, m.IntList):
            raise Refused("it has unexpected arguments")
        return tuple(map(self.at, found.items))

    def sliced(self, start: int, end: int, step: int, size: int) -> range:
        """Return the indices that a slice selects from a dimension of ``size``.

        ``start``, ``end`` and ``step`` are the value indices of the slice's arguments.
        """
        first, last, by = self.at(start, 0), self.at(end, size), self.at(step, 1)
        if by < 1:
            raise Refused("it has unexpected arguments")
        return range(*slice(first, last, by).indices(size))

    def pieces(self, sizes: int, size: int) -> tuple[int, ...]:
        """Return the sizes of the parts into which a split divides a dimension of ``size``.

        ``sizes`` is the value index of the split's argument: one size for all parts, or a list of sizes. Raise
        ``Refused`` if the parts do not add up to the dimension.
        """
        if isinstance(self._plan.values[sizes], m.IntList):
            found = self.list(sizes)
        else:
            step = max(self.at(sizes), 1)
            found = tuple(min(step, size - start) for start in range(0, size, step))
        if sum(found) != size or any(piece < 0 for piece in found):
            raise Refused("it has unexpected arguments")
        return found


def _written(plan: m.ExecutionPlan) -> Iterator[int]:
    for chain in plan.chains:
        for call in chain.instructions:
            match call:
                case m.KernelCall():
                    # An unknown operator may set any of its arguments. A known one sets only the last.
                    yield from call.args[-1:] if _is_known(plan, call) else call.args
                case m.MoveCall():
                    yield call.move_to
                case m.DelegateCall():
                    yield from call.args


def _is_known(plan: m.ExecutionPlan, call: m.KernelCall) -> bool:
    return plan.operators[call.op_index].name.partition("::")[0] in _KNOWN


_KNOWN = frozenset({"aten", "dim_order_ops", "quantized_decomposed", "et_copy", "executorch_prim"})


def runs(plan: m.ExecutionPlan, call: m.KernelCall, name: str, numbers: Numbers) -> tuple[Run, ...]:
    """Return the outputs of a copy as ranges of the copy's input.

    Raise ``Refused`` if an output is not a contiguous range of the input. Sizes must be static. If the copy
    changes sizes or dimension order, the dimensions must be in order in memory.
    """
    given, outs = arguments(plan, call.args), outputs(plan, call.args)
    source = plan.values[given[0]] if given else None
    if not isinstance(source, m.Tensor) or not outs:
        raise Refused("it has unexpected arguments")
    tensors = [source, *(plan.tensor(out) for out in outs)]
    if any(not tensor.is_static for tensor in tensors):
        raise Refused("its sizes are known only at run time")
    if any(tensor.scalar_type is not source.scalar_type for tensor in tensors):
        raise Refused("its output has another element type")
    plain = all(tensor.is_in_order for tensor in tensors)
    same = all((tensor.sizes, tensor.dim_order) == (source.sizes, source.dim_order) for tensor in tensors)
    if not plain and not (same and name in CLONES):
        raise Refused("its dimensions are in another order in memory")
    offsets = COPIES[name](_Copy(source, tensors[1:], given, numbers))
    return tuple(Run(out, offset * source.scalar_type.itemsize) for out, offset in zip(outs, offsets, strict=True))


@dataclass(frozen=True, slots=True)
class _Copy:
    source: m.Tensor
    outs: Collection[m.Tensor]
    given: tuple[int, ...]
    numbers: Numbers

    def number(self, argument: int, absent: int | None = None) -> int:
        if argument >= len(self.given):
            raise Refused("it has unexpected arguments")
        return self.numbers.at(self.given[argument], absent)

    def dim(self, argument: int, absent: int = 0) -> int:
        """Return the dimension that an argument states, as a nonnegative index. ``absent`` is the default dimension."""
        rank = len(self.source.sizes)
        found = self.number(argument, absent)
        found += rank if found < 0 else 0
        if not 0 <= found < rank:
            raise Refused("it has unexpected arguments")
        return found

    def sizes_with(self, dim: int, size: int | None) -> tuple[int, ...]:
        """Return the sizes of the source, with ``size`` as the size of ``dim``. If ``size`` is None, omit ``dim``."""
        sizes = self.source.sizes
        return (*sizes[:dim], *(() if size is None else (size,)), *sizes[dim + 1 :])

    def require_sizes(self, sizes: Sequence[tuple[int, ...]]) -> None:
        """Raise ``Refused`` unless the outputs have these sizes, which follow from the arguments."""
        if [out.sizes for out in self.outs] != list(sizes):
            raise Refused("its output has another size")

    def row(self, dim: int) -> int:
        """Return the distance in elements between neighboring indices of a dimension.

        Raise ``Refused`` if parts along that dimension are not contiguous. Parts are contiguous if all earlier
        dimensions have size 1.
        """
        if prod(self.source.sizes[:dim]) > 1:
            raise Refused("its output is not contiguous in its input")
        return prod(self.source.sizes[dim + 1 :])


def _same(copy: _Copy) -> list[int]:
    """Return offset 0. Raise ``Refused`` unless input and output have the same number of elements."""
    (out,) = copy.outs
    if prod(out.sizes) != prod(copy.source.sizes):
        raise Refused("its output has another size")
    return [0]


def _permuted(copy: _Copy) -> list[int]:
    if len(copy.given) < 2:
        raise Refused("it has unexpected arguments")
    rank = len(copy.source.sizes)
    return _moved(copy, [dim + rank if dim < 0 else dim for dim in copy.numbers.list(copy.given[1])])


def _transposed(copy: _Copy) -> list[int]:
    order = list(range(len(copy.source.sizes)))
    one, other = (copy.dim(1), copy.dim(2)) if len(copy.given) > 2 else (0, len(order) - 1)
    if order:
        order[one], order[other] = order[other], order[one]
    return _moved(copy, order)


def _moved(copy: _Copy, order: list[int]) -> list[int]:
    """Return offset 0 for a permutation. Raise ``Refused`` if the permutation reorders dimensions larger than 1."""
    sizes = copy.source.sizes
    if sorted(order) != list(range(len(sizes))):
        raise Refused("it has unexpected arguments")
    large = [dim for dim in order if sizes[dim] != 1]
    if large != sorted(large):
        raise Refused("it changes the order of the elements")
    return _same(copy)


def _sliced(copy: _Copy) -> list[int]:
    dim = copy.dim(1)
    if len(copy.given) < 5:
        raise Refused("it has unexpected arguments")
    start, end, step = copy.given[2:5]
    indices = copy.numbers.sliced(start, end, step, copy.source.sizes[dim])
    if len(indices) > 1 and indices.step != 1:
        raise Refused("its output is not contiguous in its input")
    copy.require_sizes([copy.sizes_with(dim, len(indices))])
    if len(indices) == copy.source.sizes[dim]:
        return [0]
    return [indices.start * copy.row(dim)]


def _selected(copy: _Copy) -> list[int]:
    dim, index = copy.dim(1), copy.number(2)
    index += copy.source.sizes[dim] if index < 0 else 0
    if not 0 <= index < copy.source.sizes[dim]:
        raise Refused("it has unexpected arguments")
    copy.require_sizes([copy.sizes_with(dim, None)])
    return [index * copy.row(dim)]


def _split(copy: _Copy) -> list[int]:
    dim = copy.dim(2)
    sizes = copy.numbers.pieces(copy.given[1], copy.source.sizes[dim])
    copy.require_sizes([copy.sizes_with(dim, size) for size in sizes])
    row = copy.row(dim)
    return [offset * row for offset in accumulate(sizes[:-1], initial=0)]


def _unbound(copy: _Copy) -> list[int]:
    dim = copy.dim(1)
    copy.require_sizes([copy.sizes_with(dim, None)] * copy.source.sizes[dim])
    row = copy.row(dim)
    return [index * row for index in range(copy.source.sizes[dim])]


_Rule: TypeAlias = Callable[[_Copy], list[int]]
"""Function that returns the offset of each output of a copy, in elements from the start of the input."""

CLONES: Mapping[str, _Rule] = {
    "aten::_to_copy.out": _same,
    "aten::clone.out": _same,
    "dim_order_ops::_clone_dim_order.out": _same,
    "dim_order_ops::_to_dim_order_copy.out": _same,
}
"""Copies that keep the shape. If they also keep element type and dimension order, all bytes stay the same."""
IDENTITIES: Mapping[str, _Rule] = {
    **CLONES,
    "aten::expand_copy.out": _same,
    "aten::permute_copy.out": _permuted,
    "aten::t_copy.out": _transposed,
    "aten::transpose_copy.int_out": _transposed,
}
"""Copies whose output may consist of all bytes of the input, in the same order."""
PARTS: Mapping[str, _Rule] = {
    "aten::select_copy.int_out": _selected,
    "aten::slice_copy.Tensor_out": _sliced,
    "aten::split_copy.Tensor_out": _split,
    "aten::split_with_sizes_copy.out": _split,
    "aten::unbind_copy.int_out": _unbound,
}
"""Copies whose outputs are each a part of the input."""
COPIES: Mapping[str, _Rule] = {**IDENTITIES, **PARTS}
