"""Arguments for the operators that have rules in the validator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etdev.program import model as m


@dataclass(frozen=True)
class T:
    """Tensor argument."""

    shape: tuple[int, ...]
    dtype: m.ScalarType = m.ScalarType.FLOAT
    order: tuple[int, ...] | None = None


def t(*shape: int, dtype: m.ScalarType = m.ScalarType.FLOAT, order: tuple[int, ...] | None = None) -> T:
    """Return a tensor argument."""
    return T(shape, dtype, order)


LONG, BOOL = m.ScalarType.LONG, m.ScalarType.BOOL
FOUR_D = t(2, 3, 4, 5, order=(0, 2, 3, 1))
MOVES: dict[str, list[tuple[list[Any], list[T], bool]]] = {
    "aten::_to_copy.out": [([t(2, 3), False, None], [t(2, 3)], True)],
    "aten::alias_copy.out": [([t(2, 3)], [t(2, 3)], True)],
    "aten::cat.out": [
        ([[t(2, 3), t(1, 3), t(4, 3)], 0], [t(7, 3)], True),
        ([[t(1, 2, 3), t(1, 4, 3)], -2], [t(1, 6, 3)], True),
        ([[t(1, 1, 3), t(1, 1, 5)], 2], [t(1, 1, 8)], True),
        ([[t(0), t(2, 3), t(1, 3)], 0], [t(3, 3)], True),
        ([[t(2, 3), t(2, 1)], 1], [t(2, 4)], False),
    ],
    "aten::clone.out": [([t(2, 3), None], [t(2, 3)], True)],
    "aten::copy.out": [([t(2, 3), t(2, 3), False], [t(2, 3)], True), ([t(2, 3), t(3), False], [t(2, 3)], False)],
    "aten::detach_copy.out": [([t(2, 3)], [t(2, 3)], True)],
    "aten::expand_copy.out": [
        ([t(2, 3), [2, 3], False], [t(2, 3)], True),
        ([t(2, 3), [1, -1, 3], False], [t(1, 2, 3)], True),
        ([t(1, 3), [2, 3], False], [t(2, 3)], False),
        ([t(3), [2, -1], False], [t(2, 3)], False),
    ],
    "aten::lift_fresh_copy.out": [([t(2, 3)], [t(2, 3)], True)],
    "aten::narrow_copy.out": [
        ([t(5, 3), 0, 1, 2], [t(2, 3)], True),
        ([t(5, 3), 1, 1, 2], [t(5, 2)], False),
    ],
    "aten::permute_copy.out": [
        ([t(2, 1, 3), [1, 0, 2]], [t(1, 2, 3)], True),
        ([t(2, 1, 3), [0, -1, 1]], [t(2, 3, 1)], True),
        ([t(2, 3), [1, 0]], [t(3, 2)], False),
    ],
    "aten::select_copy.int_out": [
        ([t(4, 3), 0, 2], [t(3)], True),
        ([t(4, 3), -2, -1], [t(3)], True),
        ([t(1, 4, 3), 1, 3], [t(1, 3)], True),
        ([t(4, 3), 1, 2], [t(4)], False),
    ],
    "aten::slice_copy.Tensor_out": [
        ([t(6, 3), 0, 1, 4, 1], [t(3, 3)], True),
        ([t(6, 3), 0, -3, 100, 1], [t(3, 3)], True),
        ([t(6, 3), -2, None, None, 1], [t(6, 3)], True),
        ([t(1, 6, 2), 1, 2, 5, 1], [t(1, 3, 2)], True),
        ([t(6, 3), 0, 4, 6, 5], [t(1, 3)], True),
        ([t(6, 3), 0, 0, 6, 2], [t(3, 3)], False),
        ([t(6, 3), 1, 1, 2, 1], [t(6, 1)], False),
    ],
    "aten::split_copy.Tensor_out": [
        ([t(5, 3), 2, 0], [t(2, 3), t(2, 3), t(1, 3)], True),
        ([t(1, 4), 2, -1], [t(1, 2), t(1, 2)], True),
        ([t(2, 4), 2, 1], [t(2, 2), t(2, 2)], False),
    ],
    "aten::split_with_sizes_copy.out": [
        ([t(6, 2), [1, 3, 2], 0], [t(1, 2), t(3, 2), t(2, 2)], True),
        ([t(2, 4), [1, 3], 1], [t(2, 1), t(2, 3)], False),
    ],
    "aten::squeeze_copy.dim_out": [([t(2, 1, 3), 1], [t(2, 3)], True), ([t(2, 1, 3), 0], [t(2, 1, 3)], True)],
    "aten::squeeze_copy.dims_out": [([t(1, 2, 1), [0, 2]], [t(2)], True)],
    "aten::stack.out": [
        ([[t(2, 3), t(2, 3)], 0], [t(2, 2, 3)], True),
        ([[t(1, 3), t(1, 3)], 1], [t(1, 2, 3)], True),
        ([[t(2, 3), t(2, 3)], -1], [t(2, 3, 2)], False),
    ],
    "aten::t_copy.out": [([t(1, 4)], [t(4, 1)], True), ([t(3)], [t(3)], True), ([t(2, 4)], [t(4, 2)], False)],
    "aten::transpose_copy.int_out": [
        ([t(2, 1, 3), 0, 1], [t(1, 2, 3)], True),
        ([t(2, 1, 3), -1, -2], [t(2, 3, 1)], True),
        ([t(2, 3), 0, 1], [t(3, 2)], False),
    ],
    "aten::unbind_copy.int_out": [
        ([t(3, 2), 0], [t(2), t(2), t(2)], True),
        ([t(2, 3), 1], [t(2), t(2), t(2)], False),
    ],
    "aten::unsqueeze_copy.out": [([t(2, 3), 1], [t(2, 1, 3)], True), ([t(2, 3), -1], [t(2, 3, 1)], True)],
    "aten::view_copy.out": [([t(2, 6), [3, 4]], [t(3, 4)], True), ([t(2, 6), [-1, 2]], [t(6, 2)], True)],
    "dim_order_ops::_clone_dim_order.out": [
        ([t(2, 3), False, [0, 1]], [t(2, 3)], True),
        ([FOUR_D, False, [0, 2, 3, 1]], [FOUR_D], True),
        ([FOUR_D, False, [0, 1, 2, 3]], [t(2, 3, 4, 5)], False),
    ],
    "dim_order_ops::_to_dim_order_copy.out": [
        ([t(2, 3), False, [0, 1]], [t(2, 3)], True),
        ([t(2, 3), False, [0, 1]], [t(2, 3, dtype=m.ScalarType.INT)], False),
    ],
}
"""Operator → arguments, outputs, and whether the outputs are a few runs of the bytes of the arguments."""

SHAPES: dict[str, list[list[Any]]] = {
    "aten::_log_softmax.out": [[t(2, 3), 1, False]],
    "aten::_native_batch_norm_legit.no_stats_out": [[t(2, 3, 4), t(3), t(3), True, 0.1, 1e-5]],
    "aten::_native_batch_norm_legit.out": [[t(2, 3, 4), t(3), t(3), t(3), t(3), False, 0.1, 1e-5]],
    "aten::_native_batch_norm_legit_no_training.out": [[t(2, 3, 4), t(3), t(3), t(3), t(3), 0.1, 1e-5]],
    "aten::_softmax.out": [[t(2, 3), 1, False]],
    "aten::addmm.out": [[t(4), t(2, 3), t(3, 4)]],
    "aten::amax.out": [[t(2, 3, 4), [1], True], [t(2, 3, 4), [-1, 0], False], [t(2, 3), [], False]],
    "aten::amin.out": [[t(2, 3, 4), [1], False]],
    "aten::any.dims_out": [[t(2, 3, dtype=BOOL), [1], False], [t(2, 3, dtype=BOOL), None, False]],
    "aten::argmax.out": [[t(2, 3), 1, False], [t(2, 3), -2, True]],
    "aten::avg_pool2d.out": [[t(1, 2, 6, 6), [2, 2], [2, 2], [0, 0], False, True, None]],
    "aten::bmm.out": [[t(2, 3, 4), t(2, 4, 5)]],
    "aten::constant_pad_nd.out": [[t(2, 3, 4), [1, 2, 0, 3], 0.0], [t(2, 3), [1, 0], 0.0]],
    "aten::convolution.out": [
        [t(2, 3, 9, 8), t(5, 3, 3, 2), t(5), [2, 1], [1, 0], [1, 2], False, [0, 0], 1],
        [t(2, 4, 9), t(6, 2, 3), None, [2], [1], [1], False, [0], 2],
        [t(2, 3, 4, 4), t(3, 5, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1],
    ],
    "aten::cumsum.out": [[t(2, 3), 1]],
    "aten::embedding.out": [[t(9, 4), t(2, 3, dtype=LONG), -1, False, False]],
    "aten::empty.out": [[[2, 3]]],
    "aten::flip.out": [[t(2, 3), [1]]],
    "aten::full.out": [[[2, 3], 1.0]],
    "aten::full_like.out": [[t(2, 3), 1.0]],
    "aten::gather.out": [[t(4, 3), 0, t(2, 3, dtype=LONG)]],
    "aten::index.Tensor_out": [[t(4, 3), [t(2, 2, dtype=LONG)]]],
    "aten::index_put.out": [[t(4, 3), [t(2, dtype=LONG)], t(2, 3), False]],
    "aten::linear.out": [[t(5, 2, 3), t(4, 3), t(4)]],
    "aten::max_pool2d_with_indices.out": [[t(1, 2, 6, 6), [2, 2], [2, 2], [0, 0], [1, 1], False]],
    "aten::mean.out": [[t(2, 3, 4), [1], True], [t(2, 3, 4), [-1], False], [t(2, 3), None, False]],
    "aten::mm.out": [[t(2, 3), t(3, 4)]],
    "aten::native_group_norm.out": [[t(2, 4, 3), t(4), t(4), 2, 4, 3, 2, 1e-5]],
    "aten::native_layer_norm.out": [[t(2, 3), [3], t(3), t(3), 1e-5]],
    "aten::ones.out": [[[2, 3]]],
    "aten::scatter.src_out": [[t(4, 3), 0, t(2, 3, dtype=LONG), t(2, 3)]],
    "aten::scatter.value_out": [[t(4, 3), 0, t(2, 3, dtype=LONG), 2.0]],
    "aten::scatter_add.out": [[t(4, 3), 0, t(2, 3, dtype=LONG), t(2, 3)]],
    "aten::select_scatter.out": [[t(4, 3), t(3), 0, 1]],
    "aten::slice_scatter.out": [[t(4, 3), t(2, 3), 0, 1, 3, 1]],
    "aten::sum.IntList_out": [[t(2, 3, 4), [1, 2], False], [t(2, 3), [], True]],
    "aten::var.correction_out": [[t(2, 3, 4), [1], 1, True]],
    "aten::var.out": [[t(2, 3, 4), [1], True, False]],
    "aten::zeros.out": [[[2, 3]]],
}
"""Operator → arguments, for operators with a rule for output sizes that are not in :data:`MOVES`."""
