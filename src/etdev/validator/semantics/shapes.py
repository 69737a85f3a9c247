"""Sizes of dynamic outputs, computed from the sizes of the operands.

If a size cannot be computed, it becomes an unknown that depends on the operator and the operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from etdev.validator.domain import numbers
from etdev.validator.domain.numbers import Dims, Number
from etdev.validator.reading import Part
from etdev.validator.semantics.movement import any_integer, dims, integer, is_tensor, truth
from etdev.validator.semantics.operators import POINTWISE


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Size of a dimension to which tensors of several unknown sizes are broadcast."""

    sizes: frozenset[Number]


Partly: TypeAlias = Sequence[Number | Broadcast | None]
"""Sizes of a tensor, with None for a size that cannot be computed."""
Rule: TypeAlias = Callable[[Sequence[Part], int], Partly | None]
"""Function that computes the sizes of an output from the operands and the output's rank."""


def output_dims(name: str, parts: Sequence[Part], rank: int) -> Partly | None:
    """Return the sizes of an operator's first output, with None for a size that cannot be computed."""
    rule = _broadcast if name in POINTWISE else RULES.get(name)
    if rule is None:
        return None
    try:
        found = rule(parts, rank)
    except (IndexError, TypeError, ValueError, ZeroDivisionError):  # A file may have arguments that the schema forbids.
        return None
    return found if found is not None and len(found) == rank else None


def viewed_dims(source: Dims, wanted: Part) -> Dims | None:
    """Return the sizes of a view. If one of the wanted sizes is -1, compute that size from the other sizes."""
    sizes: list[Number] = []
    for item in wanted[1:]:
        if not isinstance(item, tuple) or item[0] != "i":
            return None
        sizes.append(cast(Number, item[1]))
    if -1 in sizes:
        at = sizes.index(-1)
        others = numbers.product(size for index, size in enumerate(sizes) if index != at)
        rest = numbers.divide(numbers.product(source), others)
        if rest is None:
            return None
        sizes[at] = rest
    return tuple(sizes)


def _first(parts: Sequence[Part], rank: int) -> Partly | None:
    return dims(parts[0])


def _view(parts: Sequence[Part], rank: int) -> Partly | None:
    return viewed_dims(dims(parts[0]), parts[1])


def _sizes(parts: Sequence[Part], rank: int) -> Partly | None:
    """Return the sizes listed by the first operand."""
    found = parts[0][1:]
    if not all(isinstance(item, tuple) and item[0] == "i" and item[1] != -1 for item in found):
        return None
    return tuple(cast(Number, item[1]) for item in cast("tuple[Part, ...]", found))


def _broadcast(parts: Sequence[Part], rank: int) -> Partly | None:
    tensors = [dims(part) for part in parts if is_tensor(part)]
    found: list[Number | Broadcast] = []
    for place in range(-max(map(len, tensors)), 0):
        sizes = {size[place] for size in tensors if len(size) >= -place} - {1}
        known = [size for size in sizes if isinstance(size, int)]
        if known:
            # The other sizes broadcast to this one, because it is known and not 1.
            found.append(known[0])
        elif len(sizes) > 1:
            found.append(Broadcast(frozenset(sizes)))
        else:
            found.append(sizes.pop() if sizes else 1)
    return tuple(found)


def _unsqueezed(parts: Sequence[Part], rank: int) -> Partly | None:
    sizes = list(dims(parts[0]))
    sizes.insert(integer(parts[1]) % (len(sizes) + 1), 1)
    return tuple(sizes)


def _permuted(parts: Sequence[Part], rank: int) -> Partly | None:
    sizes = dims(parts[0])
    return tuple(sizes[integer(cast(Part, item))] for item in parts[1][1:])


def _transposed(parts: Sequence[Part], rank: int) -> Partly | None:
    sizes = list(dims(parts[0]))
    one, other = integer(parts[1]), integer(parts[2])
    sizes[one], sizes[other] = sizes[other], sizes[one]
    return tuple(sizes)


def _t(parts: Sequence[Part], rank: int) -> Partly | None:
    return dims(parts[0])[::-1]


def _selected(parts: Sequence[Part], rank: int) -> Partly | None:
    sizes = list(dims(parts[0]))
    del sizes[integer(parts[1])]
    return tuple(sizes)


def _cat(parts: Sequence[Part], rank: int) -> Partly | None:
    tensors = [dims(part) for part in cast("tuple[Part, ...]", parts[0][1:]) if dims(part) != (0,) or rank == 1]
    dim = integer(parts[1], 0) % rank
    found = list(tensors[0])
    for sizes in tensors[1:]:
        found[dim] = numbers.add(found[dim], sizes[dim])
        # All other sizes are equal at run time. Prefer a known one.
        for place, size in enumerate(sizes):
            if place != dim and isinstance(size, int):
                found[place] = size
    return tuple(found)


def _integers(found: Part) -> list[int]:
    return [integer(cast(Part, item)) for item in found[1:]]


def _reduced(parts: Sequence[Part], rank: int) -> Partly | None:
    """Return the output sizes of a reduction with the arguments ``(self, dim, keepdim)``."""
    sizes = list(dims(parts[0]))
    chosen = _integers(parts[1]) if parts[1][0] == "list" else []
    gone = {dim % len(sizes) for dim in chosen} or set(range(len(sizes)))
    if truth(parts[2]):
        return [1 if dim in gone else size for dim, size in enumerate(sizes)]
    return [size for dim, size in enumerate(sizes) if dim not in gone]


def _reduced_at(parts: Sequence[Part], rank: int) -> Partly | None:
    """Return the output sizes of a reduction over one dimension, with the arguments ``(self, dim, keepdim)``."""
    return _reduced((parts[0], ("list", ("i", integer(parts[1]))), *parts[2:]), rank)


def _variance(parts: Sequence[Part], rank: int) -> Partly | None:
    """Return the output sizes of a variance, with the arguments ``(self, dim, correction, keepdim)``."""
    return _reduced((parts[0], parts[1], parts[3]), rank)


def _expanded(parts: Sequence[Part], rank: int) -> Partly | None:
    sizes, wanted = dims(parts[0]), cast("tuple[Part, ...]", parts[1][1:])
    own = [None] * (rank - len(sizes)) + list(sizes)
    return [mine if item == ("i", -1) else any_integer(item) for item, mine in zip(wanted, own, strict=True)]


def _padded(parts: Sequence[Part], rank: int) -> Partly | None:
    sizes, pads = list(dims(parts[0])), _integers(parts[1])
    for index in range(len(pads) // 2):
        sizes[-1 - index] = numbers.add(sizes[-1 - index], pads[2 * index] + pads[2 * index + 1])
    return sizes


def _convolved(parts: Sequence[Part], rank: int) -> Partly | None:
    """Return the output sizes of a convolution."""
    sizes, weight = dims(parts[0]), dims(parts[1])
    found: list[Number | None] = [sizes[0], None if truth(parts[6]) else weight[0]]
    steps = [_integers(parts[at]) for at in (3, 4, 5)]
    for dim in range(2, rank):
        stride, padding, dilation = (step[(dim - 2) % len(step)] for step in steps)
        size, kernel = sizes[dim], weight[dim]
        if truth(parts[6]) or not isinstance(size, int) or not isinstance(kernel, int):
            found.append(None)
        else:
            found.append((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)
    return found


def _pooled(parts: Sequence[Part], rank: int) -> Partly | None:
    """Return the output sizes of a pooling operator. Such an operator keeps batch and channels."""
    return (*dims(parts[0])[:-2], None, None)


def _sliced(parts: Sequence[Part], rank: int) -> Partly | None:
    found: list[Number | None] = list(dims(parts[0]))
    found[integer(parts[1], 0)] = None
    return found


def _indexed(parts: Sequence[Part], rank: int) -> Partly | None:
    """Return the output sizes for ``(self, indices)``, where a single tensor indexes the first dimension."""
    (index,) = cast("tuple[Part, ...]", parts[1][1:])
    return (*dims(index), *dims(parts[0])[1:])


def _second(parts: Sequence[Part], rank: int) -> Partly | None:
    return dims(parts[2])


def _linear(parts: Sequence[Part], rank: int) -> Partly | None:
    return (*dims(parts[0])[:-1], dims(parts[1])[0])


def _mm(parts: Sequence[Part], rank: int) -> Partly | None:
    return (*dims(parts[0])[:-1], dims(parts[1])[-1])


def _addmm(parts: Sequence[Part], rank: int) -> Partly | None:
    return _mm(parts[1:], rank)


def _embedding(parts: Sequence[Part], rank: int) -> Partly | None:
    return (*dims(parts[1]), dims(parts[0])[1])


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            "aten::_log_softmax.out",
            "aten::_native_batch_norm_legit.no_stats_out",
            "aten::_native_batch_norm_legit.out",
            "aten::_native_batch_norm_legit_no_training.out",
            "aten::_softmax.out",
            "aten::_to_copy.out",
            "aten::alias_copy.out",
            "aten::clone.out",
            "aten::copy.out",
            "aten::cumsum.out",
            "aten::detach_copy.out",
            "aten::flip.out",
            "aten::full_like.out",
            "aten::index_put.out",
            "aten::lift_fresh_copy.out",
            "aten::native_group_norm.out",
            "aten::native_layer_norm.out",
            "aten::scatter.src_out",
            "aten::scatter.value_out",
            "aten::scatter_add.out",
            "aten::select_scatter.out",
            "aten::slice_scatter.out",
            "dim_order_ops::_clone_dim_order.out",
            "et_copy::_d2h_copy.out",
            "et_copy::_h2d_copy.out",
            "dim_order_ops::_to_dim_order_copy.out",
            "quantized_decomposed::dequantize_per_channel.out",
            "quantized_decomposed::dequantize_per_tensor.out",
            "quantized_decomposed::quantize_per_channel.out",
            "quantized_decomposed::quantize_per_tensor.out",
        ),
        _first,
    ),
    "aten::addmm.out": _addmm,
    "aten::amax.out": _reduced,
    "aten::amin.out": _reduced,
    "aten::any.dims_out": _reduced,
    "aten::argmax.out": _reduced_at,
    "aten::avg_pool2d.out": _pooled,
    "aten::bmm.out": _mm,
    "aten::cat.out": _cat,
    "aten::constant_pad_nd.out": _padded,
    "aten::convolution.out": _convolved,
    "aten::embedding.out": _embedding,
    "aten::empty.out": _sizes,
    "aten::expand_copy.out": _expanded,
    "aten::full.out": _sizes,
    "aten::gather.out": _second,
    "aten::index.Tensor_out": _indexed,
    "aten::linear.out": _linear,
    "aten::max_pool2d_with_indices.out": _pooled,
    "aten::mean.out": _reduced,
    "aten::mm.out": _mm,
    "aten::ones.out": _sizes,
    "aten::permute_copy.out": _permuted,
    "aten::select_copy.int_out": _selected,
    "aten::slice_copy.Tensor_out": _sliced,
    "aten::sum.IntList_out": _reduced,
    "aten::t_copy.out": _t,
    "aten::transpose_copy.int_out": _transposed,
    "aten::unsqueeze_copy.out": _unsqueezed,
    "aten::var.correction_out": _variance,
    "aten::var.out": _variance,
    "aten::view_copy.out": _view,
    "aten::zeros.out": _sizes,
}
"""Maps each operator to the rule for the sizes of its output."""
