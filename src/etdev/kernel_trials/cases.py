"""Cases that show whether a kernel may overwrite one of its inputs.

An unsafe kernel reads an element after overwriting it. The kernel may still return the right result by luck: for a
single row, for a size that is a multiple of the kernel's vectors, or within the first block of a tiling. Therefore, the
cases have every size from 1 to the length of several vectors, and sizes around powers of two. They also have several
ranks, several numbers of rows, and every dimension along which an operator can work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from etdev.kernel_trials import elementwise, movement, products, quantized, reductions
from etdev.kernel_trials.case import LONG, Case, data


def cases(operator: str, arguments: Sequence[tuple[str, str, bool]], outputs: int = 1) -> tuple[Case, ...]:
    """Return the cases with which to try an operator.

    ``arguments`` contains the name, the type and ``has_default`` of each argument. ``outputs`` is the number of
    outputs. By default, every tensor has the shape of the output or can be broadcast to that shape. Operators that need
    other shapes have their own cases.
    """
    short = operator.partition("::")[2].partition(".")[0]
    own = _CASES.get(operator) or _CASES.get(short)
    found = own() if own else elementwise.elementwise_cases(arguments)
    return tuple(case if own else replace(case, outputs=case.outputs * outputs) for case in found)


_CASES: Mapping[str, Callable[[], Iterable[Case]]] = {
    "aten::clamp.out": elementwise.scalar_range,
    "aten::clamp.Tensor_out": elementwise.clamp,
    "aten::div.out_mode": elementwise.rounded_division(data),
    "aten::div.Scalar_mode_out": elementwise.rounded_division(lambda shape: 3),
    "gelu": elementwise.gelu,
    "where": elementwise.where,
    "masked_fill": elementwise.masked_fill,
    "masked_scatter": elementwise.masked_scatter,
    "_softmax": reductions.along(half_to_float=False),
    "_log_softmax": reductions.along(half_to_float=False),
    "cumsum": reductions.along(),
    "amax": reductions.reduced(listed=True),
    "amin": reductions.reduced(listed=True),
    "aten::any.out": reductions.reduced(listed=False),
    "aten::any.dims_out": reductions.reduced(listed=True),
    "argmax": reductions.reduced(listed=False),
    "argmin": reductions.reduced(listed=False),
    "aten::max.dim_max": reductions.reduced(listed=False, second=LONG),
    "aten::min.dim_min": reductions.reduced(listed=False, second=LONG),
    "aten::mean.out": reductions.reduced(listed=True),
    "sum": reductions.reduced(listed=True),
    "aten::prod.int_out": reductions.reduced(listed=False),
    "aten::var.out": reductions.reduced(listed=True, unbiased=False),
    "aten::var.correction_out": reductions.reduced(listed=True, correction=0),
    "var_mean": reductions.reduced_to_two,
    "aten::fill.Tensor_out": elementwise.fill,
    "topk": reductions.topk,
    "native_layer_norm": reductions.layer_norm,
    "native_group_norm": reductions.group_norm,
    "_native_batch_norm_legit_no_training": reductions.batch_norm(running=True, training=None),
    "aten::_native_batch_norm_legit.out": reductions.running_batch_norm,
    "aten::_native_batch_norm_legit.no_stats_out": reductions.batch_norm(running=False, training=True),
    "native_dropout": elementwise.dropout,
    "mm": products.squares(self=2, mat2=2),
    "bmm": products.squares(self=3, mat2=3),
    "addmm": products.scaled_squares,
    "linear": products.squares(input=2, weight=2, bias=1),
    "mixed_mm": products.mixed_squares,
    "mixed_linear": products.mixed_squares,
    "_cdist_forward": products.distances,
    "convolution": products.convolution,
    "convolution_backward": products.convolution_backward,
    "avg_pool2d": products.pool(count_include_pad=True, divisor_override=None),
    "max_pool2d_with_indices": products.pool(data((), LONG), dilation=(1, 1)),
    "max_pool2d_with_indices_backward": products.pool_backward,
    "_adaptive_avg_pool2d": products.resized("self"),
    "upsample_bilinear2d": products.resized("input", align_corners=False, scale_factors=None),
    "upsample_nearest2d": products.resized("input", scale_factors=None),
    "_upsample_bilinear2d_aa": products.resized("self", align_corners=False),
    "grid_sampler_2d": products.grid_sampler,
    "constant_pad_nd": movement.padded(2, 1, "pad", value=0),
    "reflection_pad1d": movement.padded(3, 1),
    "reflection_pad2d": movement.padded(4, 2),
    "reflection_pad3d": movement.padded(5, 3),
    "replication_pad1d": movement.padded(3, 1),
    "replication_pad2d": movement.padded(4, 2),
    "replication_pad3d": movement.padded(5, 3),
    "flip": movement.moved("dims"),
    "roll": movement.moved("dims", shifts=(1,)),
    "permute_copy": movement.permuted,
    "transpose_copy": movement.transposed,
    "as_strided_copy": movement.strided,
    "tril": movement.lower_triangle,
    "view_copy": movement.whole(size=lambda shape: shape),
    "expand_copy": movement.whole(size=lambda shape: shape),
    "repeat": movement.whole(repeats=lambda shape: (1,) * len(shape)),
    "narrow_copy": movement.whole(dim=lambda shape: 0, start=lambda shape: 0, length=lambda shape: shape[0]),
    "slice_copy": movement.whole(dim=lambda shape: 0, start=lambda shape: 0, end=lambda shape: shape[0]),
    "aten::squeeze_copy.dim_out": movement.whole(dim=lambda shape: len(shape) - 1),
    "aten::squeeze_copy.dims_out": movement.whole(dim=lambda shape: (len(shape) - 1,)),
    "cat": movement.listed("tensors"),
    "stack": movement.listed("tensors"),
    "index": movement.index,
    "index_put": movement.index_put,
    "index_select": movement.index_select,
    "gather": movement.gather,
    "aten::scatter.src_out": movement.scatter(),
    "aten::scatter.value_out": movement.scatter(value=3),
    "scatter_add": movement.scatter(),
    "embedding": movement.embedding,
    "slice_scatter": movement.slice_scatter,
    "select_scatter": movement.select_scatter,
    "repeat_interleave": movement.repeat_interleave,
    "quantized_decomposed::quantize_per_tensor.out": quantized.quantize(**quantized.ONE_SCALE),
    "quantized_decomposed::quantize_per_tensor.Tensor_out": quantized.quantize(**quantized.TENSOR_SCALE),
    "quantize_per_channel": quantized.per_channel(dequantize=False),
    "quantize_per_token": quantized.per_token(dequantize=False),
    "quantized_decomposed::dequantize_per_tensor.out": quantized.dequantize(**quantized.ONE_SCALE),
    "quantized_decomposed::dequantize_per_tensor.Tensor_out": quantized.dequantize(**quantized.TENSOR_SCALE),
    "dequantize_per_channel": quantized.per_channel(dequantize=True),
    "dequantize_per_token": quantized.per_token(dequantize=True),
    "quantized_decomposed::add.out": quantized.quantized_add,
}
"""Maps operators to functions that return cases for the operator.

A key is an operator's name, with or without the namespace and the overload.
"""
