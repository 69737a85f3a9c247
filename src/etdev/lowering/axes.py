"""Rules for tiling: the inputs that a tile of an op's output needs.

An op may compute its output in tiles along one axis of the output. Then some inputs are also tiled, along axes of their
own. Each tile needs all other inputs as a whole. Tiling does not change results, with one exception: kernels for matrix
products may add numbers in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from etdev.lowering.graph import arguments, is_laid_out, value
from etdev.lowering.halos import POOLING, Halo, halo_of, without_padding
from etdev.lowering.occupancy import kind_of

if TYPE_CHECKING:
    from torch.fx import Node

ELEMENTWISE = frozenset(
    {"abs", "add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "rsqrt", "pow", "reciprocal", "sin", "cos", "erf"}
    | {"relu", "hardtanh", "clamp", "leaky_relu", "elu", "gelu", "sigmoid", "tanh", "minimum", "maximum", "where"}
    | {"eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "bitwise_not", "bitwise_and"}
    | {"bitwise_or", "alias_copy", "_clone_dim_order", "_to_dim_order_copy", "floor", "ceil", "round", "full_like"}
)
"""Ops that compute each element of the output from one element of each input."""

VIEWS = frozenset({"view_copy", "squeeze_copy", "unsqueeze_copy"})


class Needs(NamedTuple):
    """Inputs that a tile of an op's output needs, if the output is tiled along an axis."""

    axes: dict[Node, int | None]
    """Maps each input to the axis along which the input is tiled, or to None if each tile needs the whole input."""
    grain: int
    """Number of equal slices, or *grains*, into which the axis can be cut. A tile consists of one or more grains."""
    halo: Halo | None = None
    """Windows over the first input along the axis, or None if each grain needs one grain of each tiled input."""
    size: int = 0
    """Number of elements of the output along the axis."""
    sizes: Mapping[Node, int] = {}
    """Number of elements of each tiled input along the input's axis."""
    work: int = 0
    """Estimate of the op's work: a convolution's number of products, or any other op's number of output elements."""

    def source_range(self, source: Node, tile: range) -> range:
        """Return the elements of a tiled input that a tile needs."""
        known = self.sizes[source]
        if self.halo is not None:
            return self.halo.needed(tile, known)
        return range(tile.start * known // self.size, tile.stop * known // self.size)


def needs(node: Node, axis: int) -> Needs | None:
    """Return the inputs that a tile along the axis needs.

    Return None if tiling along the axis is impossible, or if this function does not know the op.
    """
    shape = shape_of(node)
    if shape is None or not 0 <= axis < len(shape) or shape[axis] < 2 or not _is_known(node):
        return None
    kind = kind_of(node)
    if kind in ELEMENTWISE:
        found = _elementwise(node, axis, shape)
    elif kind in VIEWS:
        found = _viewed(node, axis, shape)
    else:
        rule = _RULES.get(kind)
        found = None if rule is None else rule(node, axis, shape)
    return None if found is None else _with_sizes(node, found, shape, axis)


def _is_known(node: Node) -> bool:
    """Return whether the rules apply to a node: a standard op, or the selection of one of an op's outputs.

    An op in another namespace may compute anything, even if it has the name of an ATen op.
    """
    name = str(getattr(node.target, "__name__", node.target))
    return name.startswith(("aten.", "dim_order_ops.", "getitem")) and name != "aten.view_copy.dtype"


def _with_sizes(node: Node, found: Needs, shape: Sequence[int], axis: int) -> Needs | None:
    """Add the sizes to the needs of an op.

    Return None if ``found`` does not cover all inputs, or if the axis of a tiled input cannot be divided into the
    grains.
    """
    if any(source not in found.axes for source in node.all_input_nodes):
        return None
    sizes = {}
    for source, along in found.axes.items():
        if along is None:
            continue
        known = shape_of(source)
        if known is None or along >= len(known) or (found.halo is None and known[along] % found.grain):
            return None
        sizes[source] = known[along]
    each = math.prod(value(arguments(node)[1]).shape[1:]) if kind_of(node) == "convolution" else 1
    return found._replace(size=shape[axis], sizes=sizes, work=math.prod(shape) * each)


def shape_of(node: Node) -> list[int] | None:
    """Return the shape of a node's first output, or None if that output is not contiguous or has dynamic sizes."""
    import torch

    found = node.meta.get("val")
    first = found[0] if isinstance(found, (tuple, list)) and found else found
    if not isinstance(first, torch.Tensor) or not is_laid_out(first):
        return None
    return [int(size) for size in first.shape]


def _along(shape: Sequence[int], axis: int, *inputs: tuple[Any, int | None], grain: int | None = None) -> Needs | None:
    """Return the inputs that a tile needs.

    ``inputs`` pairs each input with the axis along which it is tiled. The axis is None if each tile needs the whole
    input. Return None if an input appears twice with different axes.
    """
    from torch.fx import Node

    axes: dict[Node, int | None] = {}
    for node, along in inputs:
        if isinstance(node, Node) and axes.setdefault(node, along) != along:
            return None
    return Needs(axes, shape[axis] if grain is None else grain)


def _elementwise(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    found = []
    for source in node.all_input_nodes:
        known = shape_of(source)
        if known is None:
            return None
        own = axis - (len(shape) - len(known))
        found.append((source, own if own >= 0 and known[own] == shape[axis] else None))
    return _along(shape, axis, *found)


def _viewed(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    """Return the inputs that a tile of a view needs.

    The input is tiled along one of its axes. The input's sizes before that axis have the same product as the output's
    sizes before ``axis``.
    """
    source = arguments(node)[0]
    known = shape_of(source)
    if known is None:
        return None
    before = math.prod(shape[:axis])
    for own, size in enumerate(known):
        if size > 1 and math.prod(known[:own]) == before:
            return _along(shape, axis, (source, own), grain=math.gcd(size, shape[axis]))
    return None


def _product(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    left, right = arguments(node)[:2]
    last = len(shape) - 1
    batch = (axis,) if axis < last - 1 else ()
    if batch:
        return _along(shape, axis, (left, axis), (right, axis))
    return _along(shape, axis, (left, axis if axis < last else None), (right, axis if axis == last else None))


def _linear(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    rows, weight, *bias = arguments(node)
    columns = 0 if axis == len(shape) - 1 else None
    along = None if columns == 0 else axis
    return _along(shape, axis, (rows, along), (weight, columns), *((item, columns) for item in bias))


def _softmax(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, dim = arguments(node)[:2]
    return None if axis == dim % len(shape) else _along(shape, axis, (source, axis))


def _layer_norm(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, normalized, weight, bias = arguments(node)[:4]
    inside = axis >= len(shape) - len(normalized)
    return None if inside else _along(shape, axis, (source, axis), (weight, None), (bias, None))


def _group_norm(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, weight, bias, *_, groups, _ = arguments(node)
    return _along(shape, axis, (source, 1), (weight, 0), (bias, 0), grain=groups) if axis == 1 else None


def _batch_norm(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, *channels = arguments(node)[:5]
    own = 0 if axis == 1 else None
    return _along(shape, axis, (source, axis), *((item, own) for item in channels))


def _convolution(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, weight, bias, stride, padding, _, transposed, _, groups = arguments(node)
    is_pointwise = {*value(weight).shape[2:], *stride} == {1} and not any(padding)
    if axis == 0 or (axis > 1 and is_pointwise):
        return _along(shape, axis, (source, axis), (weight, None), (bias, None))
    if axis > 1:
        return _slid(node, axis, shape, (weight, None), (bias, None))
    if axis != 1 or transposed:
        return None
    if groups == 1:
        return _along(shape, axis, (source, None), (weight, 0), (bias, 0))
    return _along(shape, axis, (source, 1), (weight, 0), (bias, 0), grain=groups)


def _slid(node: Node, axis: int, shape: Sequence[int], *others: tuple[Any, None]) -> Needs | None:
    """Return the inputs that a tile needs if windows slide along the axis."""
    halo = halo_of(node, axis)
    found = None if halo is None else _along(shape, axis, (arguments(node)[0], axis), *others)
    return None if found is None else found._replace(halo=halo)


def _image(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    """Return the inputs that a tile needs if the op processes each image separately."""
    if axis < len(shape) - 2:
        return _along(shape, axis, (arguments(node)[0], axis))
    return _slid(node, axis, shape) if kind_of(node) in POOLING else None


def _reduced(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source = arguments(node)[0]
    known = shape_of(source)
    dims = arguments(node)[1] if len(arguments(node)) > 1 else None
    if known is None or not dims:
        return None
    gone = {dim % len(known) for dim in ([dims] if isinstance(dims, int) else dims)}
    kept = [dim for dim in range(len(known)) if dim not in gone]
    own = axis if len(known) == len(shape) else kept[axis]
    return None if own in gone else _along(shape, axis, (source, own))


def _permuted(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, order = arguments(node)
    return _along(shape, axis, (source, order[axis] % len(shape)))


def _transposed(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, *dims = arguments(node)
    first, second = (dim % len(shape) for dim in dims)
    return _along(shape, axis, (source, {first: second, second: first}.get(axis, axis)))


def _sliced(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    given = arguments(node)
    dim = (given[1] if len(given) > 1 else 0) % len(shape)
    return None if axis == dim else _along(shape, axis, (given[0], axis))


def _selected(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, dim, _ = arguments(node)
    dim %= len(shape) + 1
    return _along(shape, axis, (source, axis if axis < dim else axis + 1))


def _divided(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    given = arguments(node)
    dim = (given[2] if len(given) > 2 else 0) % len(shape)
    return None if axis == dim else _along(shape, axis, (given[0], axis))


def _joined(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    given = arguments(node)
    dim = (given[1] if len(given) > 1 else 0) % len(shape)
    return None if axis == dim else _along(shape, axis, *((part, axis) for part in given[0]))


def _padded(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, amounts = arguments(node)[:2]
    place = 2 * (len(shape) - 1 - axis)
    if any(amounts[place : place + 2]):
        return _slid(node, axis, shape)
    return _along(shape, axis, (source, axis))


def _gathered(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    source, dim, index = arguments(node)[:3]
    known = shape_of(source)
    if known is None or axis == dim % len(shape) or known[axis] != shape[axis]:
        return None
    return _along(shape, axis, (source, axis), (index, axis))


def _indexed(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    """Return the inputs that a tile of an indexing op needs.

    The op has index tensors for some neighbouring axes of the input. In the output, the axes of the index tensors
    replace these axes.
    """
    source, indices = arguments(node)
    places = [place for place, index in enumerate(indices) if index is not None]
    found = [indices[place] for place in places]
    sizes = [shape_of(index) for index in found]
    if places != list(range(places[0], places[-1] + 1)) or any(size is None for size in sizes):
        return None
    first, count = places[0], max(len(size or ()) for size in sizes)
    if not first <= axis < first + count:
        own = axis if axis < first else axis - count + len(places)
        return _along(shape, axis, (source, own), *((index, None) for index in found))
    inputs: list[tuple[Node, int | None]] = [(source, None)]
    for index, size in zip(found, sizes, strict=True):
        own = axis - first - (count - len(size or ()))
        inputs.append((index, own if own >= 0 and (size or ())[own] == shape[axis] else None))
    return _along(shape, axis, *inputs)


def _looked_up(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    weight, indices = arguments(node)[:2]
    return _along(shape, axis, (weight, None), (indices, axis)) if axis < len(shape) - 1 else None


def _item(node: Node, axis: int, shape: Sequence[int]) -> Needs | None:
    return _along(shape, axis, (arguments(node)[0], axis))


_RULES: dict[str, Callable[[Node, int, Sequence[int]], Needs | None]] = {
    "mm": _product,
    "bmm": _product,
    "linear": _linear,
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "convolution": _convolution,
    "max_pool2d_with_indices": _image,
    "avg_pool2d": _image,
    "upsample_bilinear2d": _image,
    "upsample_nearest2d": _image,
    "mean": _reduced,
    "sum": _reduced,
    "amax": _reduced,
    "amin": _reduced,
    "permute_copy": _permuted,
    "transpose_copy": _transposed,
    "expand_copy": _elementwise,
    "slice_copy": _sliced,
    "select_copy": _selected,
    "split_with_sizes_copy": _divided,
    "cat": _joined,
    "constant_pad_nd": _padded,
    "embedding": _looked_up,
    "gather": _gathered,
    "index": _indexed,
    "getitem": _item,
}
"""Maps each kind of op to its rule: a function that returns the inputs of a tile."""


def piece_arguments(node: Node, axis: int, halo: Halo | None, tile: range, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of the op that computes a tile: the elements in ``tile`` along the axis.

    ``halo`` is :attr:`Needs.halo` of the op. ``given`` contains the arguments of the whole op, with each tiled input
    replaced by its tile. Inputs of convolutions and poolings with a halo must be padded.
    """
    kind, shape, size = kind_of(node), shape_of(node), len(tile)
    assert shape is not None
    if kind == "constant_pad_nd" and halo is not None:
        place, whole = 2 * (len(shape) - 1 - axis), value(arguments(node)[0]).shape[axis]
        amounts = [*given[1][:place], *halo.missing(tile, whole), *given[1][place + 2 :]]
        return (given[0], amounts, *given[2:])
    if halo is not None:
        return without_padding(node, axis, given)
    if kind in VIEWS or kind == "expand_copy":
        return (given[0], [size if dim == axis else whole for dim, whole in enumerate(shape)])
    if kind == "convolution" and axis == 1 and given[8] > 1:
        return (*given[:8], given[8] * size // shape[1])
    if kind == "native_group_norm":
        samples, channels, area, groups, epsilon = given[3:]
        return (*given[:3], samples, channels * size // shape[1], area, groups * size // shape[1], epsilon)
    return given


def is_whole(node: Node) -> bool:
    """Return whether a node has a single output that is contiguous, with static sizes and at least one dimension."""
    return not isinstance(node.meta.get("val"), (tuple, list)) and shape_of(node) is not None and value(node).dim() > 0
