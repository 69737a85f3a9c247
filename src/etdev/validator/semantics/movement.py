"""Operators that only move bytes, so that their outputs consist of bytes of their operands.

If an output consists of a few contiguous runs of bytes, the validator follows these bytes. Otherwise, for example for a
transposition, the validator treats the operator like a computation. A copy between host and device keeps the content.
Source: ``kernels/portable/cpu/op_*_copy.cpp`` of executorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias, cast

from etdev.validator.domain import numbers
from etdev.validator.domain.memory import Content, joined, part, size
from etdev.validator.domain.numbers import Dims, Number
from etdev.validator.facts import TensorFacts
from etdev.validator.reading import Part

Rule: TypeAlias = Callable[[Sequence[Part], Sequence[TensorFacts]], list[Content] | None]
"""Function that returns the content of each output, or None if an output needs more than a few contiguous runs."""


def moved(name: str, parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    """Return the contents of the outputs if the operator only moves bytes. Otherwise, return None."""
    rule = RULES.get(name)
    if rule is None or not outs or any(out.kind[0] is not outs[0].kind[0] for out in outs):
        return None
    try:
        return rule(parts, outs)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):  # A file may have arguments that the schema forbids.
        return None


def is_tensor(found: Part) -> bool:
    """Return whether an operand is a tensor."""
    return isinstance(found[0], tuple)


def kind(found: Part) -> tuple[object, ...]:
    """Return the element type and dimension order of a tensor operand."""
    return cast("tuple[object, ...]", found[0])


def dims(found: Part) -> Dims:
    """Return the sizes of a tensor operand."""
    return cast(Dims, found[1])


def content(found: Part) -> Content:
    """Return the bytes of a tensor operand."""
    return cast(Content, found[2])


def integer(found: Part, absent: int | None = None) -> int:
    """Return an operand as an integer, or ``absent`` if the operand has no value.

    Raise :class:`ValueError` if the operand is not an integer whose value is known.
    """
    if found == ("none",) and absent is not None:
        return absent
    if found[0] != "i" or not isinstance(found[1], int):
        raise ValueError("the operand is not an integer whose value is known")
    return found[1]


def any_integer(found: Part) -> Number:
    """Return an operand as an integer that may be known only at run time.

    Raise :class:`ValueError` if the operand is not known to be an integer. For example, a caller or an instruction may
    set the operand to a value of another type.
    """
    if found[0] != "i":
        raise ValueError("the operand is not known to be an integer")
    return cast(Number, found[1])


def truth(found: Part) -> bool:
    """Return an operand as a bool, or False if the operand has no value.

    Raise :class:`ValueError` if the operand is not a bool, or if its value is known only at run time.
    """
    if found == ("none",):
        return False
    if found[0] != "b" or not isinstance(found[1], bool):
        raise ValueError("the operand is not a bool whose value is known before the program runs")
    return found[1]


def _static(found: Part) -> tuple[int, ...]:
    """Return the sizes of a static tensor. Raise :class:`ValueError` if a size is known only at run time."""
    if not is_tensor(found) or not all(isinstance(item, int) for item in dims(found)):
        raise ValueError("a size of the operand is not known")
    return cast("tuple[int, ...]", dims(found))


def _is_plain(found: Part) -> bool:
    return kind(found)[1] is None


def _same_type(found: Part, out: TensorFacts) -> bool:
    return is_tensor(found) and kind(found)[0] is out.kind[0]


def _view(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    """Return all bytes of the operand in memory order. The output has the same number of elements, in any shape."""
    source, (out,) = parts[0], outs
    same = is_tensor(source) and (dims(source), kind(source)) == (out.sizes, out.kind)
    if not _same_type(source, out) or not (same or (_is_plain(source) and out.plain)):
        return None
    if not out.dynamic and size(content(source)) != out.nbytes:
        return None
    return [content(source)]


def _clone(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    """Return all bytes of the operand if shape, element type and dimension order stay the same."""
    source, (out,) = parts[0], outs
    if not is_tensor(source) or kind(source) != out.kind or not _fits(source, out):
        return None
    return [content(source)]


def _fits(source: Part, out: TensorFacts) -> bool:
    """Return whether an output can have the shape of an operand, for an operator that keeps the shape.

    An unknown size matches every size, because the operator fails at run time if the sizes differ.
    """
    if out.dynamic or dims(source) == out.sizes:
        return True
    if len(dims(source)) != len(out.sizes) or size(content(source)) != out.nbytes:
        return False
    pairs = zip(dims(source), out.sizes, strict=True)
    return all(mine == theirs or not isinstance(mine, int) for mine, theirs in pairs)


def _copy(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    """Return all bytes of ``src`` in ``copy.out(self, src)``, if the operator does not broadcast ``src``."""
    if not is_tensor(parts[0]) or not is_tensor(parts[1]) or dims(parts[0]) != dims(parts[1]):
        return None
    return _clone(parts[1:], outs)


def _copy_into(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    """Return all bytes of ``src`` in ``copy_(self, src)``, if the operator does not broadcast ``src``."""
    return None if outs[0].dynamic else _clone(parts, outs)


def _expand(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    """Return all bytes of the operand if the operator repeats no element."""
    _static(parts[0])
    return None if outs[0].dynamic else _view(parts, outs)


def _permute(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    order = [integer(cast(Part, item)) for item in parts[1][1:]]
    return _reordered(parts[0], order, outs)


def _transpose(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    order = list(range(len(_static(parts[0]))))
    one, other = integer(parts[1]), integer(parts[2])
    order[one], order[other] = order[other], order[one]
    return _reordered(parts[0], order, outs)


def _t(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    return _reordered(parts[0], list(range(len(_static(parts[0]))))[::-1], outs)


def _reordered(source: Part, order: Sequence[int], outs: Sequence[TensorFacts]) -> list[Content] | None:
    """Return all bytes of the operand if the dimensions larger than 1 keep their order."""
    sizes, (out,) = _static(source), outs
    order = [item % len(sizes) for item in order] if sizes else []
    if sorted(order) != list(range(len(sizes))) or not _same_type(source, out) or out.dynamic:
        return None
    large = [dim for dim in order if sizes[dim] != 1]
    if large != sorted(large) or not (_is_plain(source) and out.plain) or out.nbytes != size(content(source)):
        return None
    return [content(source)]


def _slice(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    sizes = _static(parts[0])
    dim = integer(parts[1], 0) % len(sizes)
    start, end = (_clamped(integer(parts[at], absent), sizes[dim]) for at, absent in ((2, 0), (3, sizes[dim])))
    count = len(range(start, end, integer(parts[4], 1)))
    if count > 1 and integer(parts[4], 1) != 1:
        return None
    return _cut(parts[0], dim, [(start, count)], outs)


def _clamped(index: int, length: int) -> int:
    return min(max(index + length if index < 0 else index, 0), length)


def _narrow(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    sizes = _static(parts[0])
    dim, start = integer(parts[1]) % len(sizes), integer(parts[2])
    return _cut(parts[0], dim, [(start % sizes[dim] if start < 0 else start, integer(parts[3]))], outs)


def _select(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    sizes = _static(parts[0])
    dim = integer(parts[1]) % len(sizes)
    return _cut(parts[0], dim, [(integer(parts[2]) % sizes[dim], 1)], outs)


def _split(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    sizes = _static(parts[0])
    dim, step = integer(parts[2], 0) % len(sizes), integer(parts[1])
    pieces = [(start, min(step, sizes[dim] - start)) for start in range(0, sizes[dim], step)]
    return _cut(parts[0], dim, pieces, outs)


def _split_with_sizes(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    dim = integer(parts[2], 0) % len(_static(parts[0]))
    pieces, start = [], 0
    for item in parts[1][1:]:
        pieces.append((start, integer(cast(Part, item))))
        start += pieces[-1][1]
    return _cut(parts[0], dim, pieces, outs)


def _unbind(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    sizes = _static(parts[0])
    dim = integer(parts[1], 0) % len(sizes)
    return _cut(parts[0], dim, [(index, 1) for index in range(sizes[dim])], outs)


def _cut(
    source: Part, dim: int, pieces: Sequence[tuple[int, int]], outs: Sequence[TensorFacts]
) -> list[Content] | None:
    """Return, for each output, the bytes of a range of dimension ``dim``.

    ``pieces`` contains the range of each output, as ``(start, size)``. Return None unless all dimensions before ``dim``
    have size 1, because the bytes of a range are contiguous only then.
    """
    sizes = _static(source)
    if len(pieces) != len(outs) or not _is_plain(source) or prod(sizes[:dim]) != 1:
        return None
    found = []
    for (start, count), out in zip(pieces, outs, strict=True):
        row = prod(sizes[dim + 1 :]) * out.itemsize
        if not out.plain or out.dynamic or not _same_type(source, out) or out.nbytes != row * count:
            return None
        if start < 0 or start + count > sizes[dim]:
            return None
        found.append(part(content(source), start * row, count * row))
    return found


def _cat(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    tensors = cast("list[Part]", list(parts[0][1:]))
    (out,) = outs
    rank = len(out.sizes)
    dim = integer(parts[1], 0) % max(rank, 1)
    tensors = [item for item in tensors if dims(item) != (0,) or rank == 1]
    if not tensors or any(len(dims(item)) != rank for item in tensors):
        return None
    # The kernel requires equal sizes in the other dimensions, so one known size is enough.
    if any(
        {size for size in sizes if isinstance(size, int)} != {1}
        for sizes in zip(*(dims(item)[:dim] for item in tensors), strict=True)
    ):
        return None
    return _laid(tensors, out)


def _stack(parts: Sequence[Part], outs: Sequence[TensorFacts]) -> list[Content] | None:
    tensors = cast("list[Part]", list(parts[0][1:]))
    (out,) = outs
    dim = integer(parts[1], 0) % len(out.sizes)
    if any(item != 1 for tensor in tensors for item in dims(tensor)[:dim]):
        return None
    return _laid(tensors, out)


def _laid(tensors: Sequence[Part], out: TensorFacts) -> list[Content] | None:
    """Return the bytes of these tensors one after another. Only the last tensor may be dynamic."""
    if not out.plain or not all(_same_type(item, out) and _is_plain(item) for item in tensors):
        return None
    for item in tensors[:-1]:
        length = numbers.product(dims(item))
        if not isinstance(length, int) or length * out.itemsize != size(content(item)):
            return None
    found = joined(run for item in tensors for run in content(item))
    if not out.dynamic and size(found) != out.nbytes:
        return None
    return [found]


RULES: Mapping[str, Rule] = {
    "aten::_to_copy.out": _clone,
    "aten::alias_copy.out": _view,
    "aten::cat.out": _cat,
    "aten::clone.out": _clone,
    "aten::copy.out": _copy,
    "aten::copy_": _copy_into,
    "aten::detach_copy.out": _view,
    "aten::expand_copy.out": _expand,
    "aten::lift_fresh_copy.out": _view,
    "aten::narrow_copy.out": _narrow,
    "aten::permute_copy.out": _permute,
    "aten::select_copy.int_out": _select,
    "aten::slice_copy.Tensor_out": _slice,
    "aten::split_copy.Tensor_out": _split,
    "aten::split_with_sizes_copy.out": _split_with_sizes,
    "aten::squeeze_copy.dim_out": _view,
    "aten::squeeze_copy.dims_out": _view,
    "aten::stack.out": _stack,
    "aten::t_copy.out": _t,
    "aten::transpose_copy.int_out": _transpose,
    "aten::unbind_copy.int_out": _unbind,
    "aten::unsqueeze_copy.out": _view,
    "aten::view_copy.out": _view,
    "dim_order_ops::_clone_dim_order.out": _clone,
    "dim_order_ops::_to_dim_order_copy.out": _clone,
    "et_copy::_d2h_copy.out": _clone,
    "et_copy::_h2d_copy.out": _clone,
}
"""Maps each operator to the rule for the contents of its outputs."""
KEEPS_COUNT = frozenset(name for name, rule in RULES.items() if rule in (_clone, _view))
"""Operators whose output has the same number of elements as their operand."""


def joined_dims(parts: Sequence[Part], sizes: Dims) -> list[tuple[Dims, Dims]]:
    """Return ``(own sizes, expected sizes)`` for each tensor that ``cat`` joins.

    The expected sizes are equal to the output's sizes, except in the joined dimension.
    """
    try:
        dim = integer(parts[1], 0) % len(sizes)
    except (IndexError, ValueError, ZeroDivisionError):
        return []
    found = [dims(item) for item in cast("tuple[Part, ...]", parts[0][1:]) if len(dims(item)) == len(sizes)]
    return [(own, (*sizes[:dim], own[dim], *sizes[dim + 1 :])) for own in found]
