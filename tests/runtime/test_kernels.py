"""Each kernel of the zoo and most of the others compute in the interpreter what they do in the stock runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from etdev.program import write
from etdev.runtime.method import load_method
from runtime.one_kernel import OneKernel
from support.stock import shared_runtime

_GENERATOR = torch.Generator().manual_seed(7)


def f(*sizes: int) -> torch.Tensor:
    """Floats."""
    return torch.randn(sizes, generator=_GENERATOR)


def n(below: int, *sizes: int) -> torch.Tensor:
    """Numbers from 0 on."""
    return torch.randint(below, sizes, generator=_GENERATOR)


def b(*sizes: int) -> torch.Tensor:
    """Truth values."""
    return n(2, *sizes).bool()


def last(*sizes: int) -> torch.Tensor:
    """Floats, channels last."""
    return f(*sizes).to(memory_format=torch.channels_last)


X, Y, POSITIVE = f(3, 4), f(3, 4), f(3, 4).abs() + 0.1
IMAGE = f(2, 3, 8, 8)
UNARY = """
    abs asinh atan ceil cos cosh erf exp expm1 floor isinf isnan neg reciprocal relu round sigmoid sign sin sinh tan
    tanh trunc logical_not
"""
OF_POSITIVE = "log log10 log1p log2 rsqrt sqrt"
BINARY_TENSORS = "eq ge gt le lt ne fmod remainder"
CASES: dict[str, Sequence[Any]] = {
    **{f"aten::{name}.out": (X,) for name in UNARY.split()},
    **{f"aten::{name}.out": (POSITIVE,) for name in OF_POSITIVE.split()},
    **{f"aten::{name}.Tensor_out": (X, Y) for name in BINARY_TENSORS.split()},
    **{f"aten::{name}.Scalar_out": (X, 0.5) for name in BINARY_TENSORS.split()},
    "aten::add.out": (X, f(4), 2),
    "aten::add.Scalar_out": (X, 1.5, 1),
    "aten::sub.out": (X, f(3, 1), 1),
    "aten::sub.Scalar_out": (n(9, 3, 4), 2, 1),
    "aten::mul.out": (X, f(1, 4)),
    "aten::mul.Scalar_out": (X, 3),
    "aten::div.out": (X, POSITIVE),
    "aten::div.Scalar_out": (X, 4),
    "aten::div.out_mode": (X, POSITIVE, "floor"),
    "aten::div.Scalar_mode_out": (n(9, 3, 4), 2, "trunc"),
    "aten::rsub.Scalar_out": (X, 1.0, 1),
    "aten::maximum.out": (X, Y),
    "aten::minimum.out": (X, Y),
    "aten::atan2.out": (X, Y),
    "aten::floor_divide.out": (n(99, 3, 4), n(9, 3, 4) + 1),
    "aten::logical_and.out": (b(3, 4), b(3, 4)),
    "aten::logical_or.out": (b(3, 4), b(3, 4)),
    "aten::bitwise_and.Tensor_out": (n(9, 3), n(9, 3)),
    "aten::bitwise_or.Scalar_out": (n(9, 3), 4),
    "aten::bitwise_not.out": (b(3),),
    "aten::pow.Tensor_Scalar_out": (POSITIVE, 2.5),
    "aten::pow.Tensor_Tensor_out": (POSITIVE, Y),
    "aten::pow.Scalar_out": (2.0, X),
    "aten::clamp.out": (X, -0.5, None),
    "aten::clamp.Tensor_out": (X, f(3, 4) - 1, None),
    "aten::hardtanh.out": (X, -1.0, 1.0),
    "aten::leaky_relu.out": (X, 0.1),
    "aten::elu.out": (X, 1.0, 1.0, 1.0),
    "aten::gelu.out": (X, "tanh"),
    "aten::where.self_out": (b(3, 4), X, Y),
    "aten::masked_fill.Scalar_out": (X, b(3, 4), float("-inf")),
    "aten::mm.out": (f(3, 5), f(5, 2)),
    "aten::bmm.out": (f(2, 3, 5), f(2, 5, 4)),
    "aten::addmm.out": (f(2), f(3, 5), f(5, 2), 1, 1),
    "aten::linear.out": (f(3, 5), f(2, 5), f(2)),
    "aten::convolution.out": (IMAGE, f(4, 3, 3, 3), f(4), [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
    "aten::max_pool2d_with_indices.out": (IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False),
    "aten::avg_pool2d.out": (IMAGE, [2, 2], [2, 2], [0, 0], False, True, None),
    "aten::_adaptive_avg_pool2d.out": (IMAGE, [3, 2]),
    "aten::_softmax.out": (X, -1, False),
    "aten::_log_softmax.out": (X, 1, False),
    "aten::native_layer_norm.out": (X, [4], f(4), f(4), 1e-5),
    "aten::native_group_norm.out": (f(2, 4, 3), f(4), f(4), 2, 4, 3, 2, 1e-5),
    "aten::_native_batch_norm_legit_no_training.out": (IMAGE, f(3), f(3), f(3), f(3).abs(), 0.1, 1e-5),
    "aten::sum.IntList_out": (X, [1], True, None),
    "aten::mean.out": (X, [0], False, None),
    "aten::var.correction_out": (X, [1], None, False),
    "aten::amax.out": (X, [1], False),
    "aten::amin.out": (X, [0], True),
    "aten::argmax.out": (X, 1, False),
    "aten::max.dim_max": (X, 1, False),
    "aten::any.out": (b(3, 4), 1, False),
    "aten::cumsum.out": (X, 1, None),
    "aten::topk.values": (X, 2, 1, True, True),
    "aten::prod.int_out": (X, 1, False, None),
    "aten::cat.out": ([X, Y], 1),
    "aten::stack.out": ([X, Y], 0),
    "aten::split_copy.Tensor_out": (X, 2, 1),
    "aten::split_with_sizes_copy.out": (X, [1, 3], 1),
    "aten::unbind_copy.int_out": (X, 0),
    "aten::view_copy.out": (X, [2, -1]),
    "aten::permute_copy.out": (IMAGE, [0, 2, 3, 1]),
    "aten::transpose_copy.int_out": (X, 0, 1),
    "aten::t_copy.out": (X,),
    "aten::unsqueeze_copy.out": (X, 1),
    "aten::squeeze_copy.dims_out": (f(3, 1, 4), [1]),
    "aten::expand_copy.out": (f(3, 1), [2, 3, 4], False),
    "aten::slice_copy.Tensor_out": (X, 1, 1, 4, 2),
    "aten::select_copy.int_out": (X, 0, -1),
    "aten::as_strided_copy.out": (X, [2, 2], [4, 1], 3),
    "aten::flip.out": (X, [1]),
    "aten::roll.out": (X, [1], [0]),
    "aten::repeat.out": (X, [2, 1, 2]),
    "aten::diagonal_copy.out": (X, 0, 0, 1),
    "aten::unfold_copy.out": (X, 1, 2, 1),
    "aten::tril.out": (X, 0),
    "aten::constant_pad_nd.out": (X, [1, 2], 0.5),
    "aten::reflection_pad2d.out": (IMAGE, [1, 1, 2, 0]),
    "aten::replication_pad1d.out": (f(2, 3, 4), [1, 2]),
    "aten::pixel_shuffle.out": (f(1, 4, 3, 3), 2),
    "aten::pixel_unshuffle.out": (f(1, 1, 4, 4), 2),
    "aten::upsample_nearest2d.vec_out": (IMAGE, None, [2.0, 2.0]),
    "aten::upsample_bilinear2d.vec_out": (IMAGE, [5, 7], False, None),
    "aten::grid_sampler_2d.out": (IMAGE, f(2, 4, 4, 2).tanh(), 0, 0, False),
    "aten::glu.out": (X, 1),
    "aten::embedding.out": (f(9, 4), n(9, 5), -1, False, False),
    "aten::gather.out": (X, 1, n(4, 3, 2), False),
    "aten::index_select.out": (X, 0, n(3, 5)),
    "aten::index.Tensor_out": (X, [n(3, 5), n(4, 5)]),
    "aten::index_put.out": (X, [torch.tensor([0, 2])], f(2, 4), False),
    "aten::scatter.value_out": (X, 1, n(4, 3, 1), 9.0),
    "aten::scatter_add.out": (X, 0, n(3, 2, 4), f(2, 4)),
    "aten::select_scatter.out": (X, f(4), 0, 1),
    "aten::slice_scatter.out": (X, f(3, 2), 1, 1, 3, 1),
    "aten::masked_select.out": (X, torch.ones(3, 4).bool()),
    "aten::repeat_interleave.Tensor_out": (torch.tensor([1, 2, 3]), 6),
    "aten::full.out": ([2, 3], 1.5),
    "aten::full_like.out": (X, 2.0, None),
    "aten::zeros.out": ([2, 3],),
    "aten::ones.out": ([2, 3],),
    "aten::arange.start_out": (1, 9, 2),
    "aten::scalar_tensor.out": (4.0,),
    "aten::fill.Scalar_out": (X, 3.0),
    "aten::clone.out": (X, None),
    "aten::alias_copy.out": (X,),
    "aten::detach_copy.out": (X,),
    "quantized_decomposed::quantize_per_tensor.out": (X, 0.05, 3, -128, 127, torch.int8),
    "quantized_decomposed::dequantize_per_tensor.out": (
        n(9, 3, 4).to(torch.int8), 0.05, 3, -128, 127, torch.int8, None,
    ),
    "quantized_decomposed::quantize_per_channel.out": (X, POSITIVE[0].double(), n(9, 4), 1, -128, 127, torch.int8),
    "quantized_decomposed::embedding_byte.out": (
        n(99, 6, 8).to(torch.int8), POSITIVE.flatten()[:6], None, -128, 127, n(6, 5),
    ),
    "quantized_decomposed::embedding_4bit.out": (
        n(255, 6, 8).to(torch.uint8), POSITIVE.flatten()[:6], f(6), -8, 7, n(6, 2, 2),
    ),
    "quantized_decomposed::embedding_2bit.out": (
        n(255, 6, 8).to(torch.uint8), f(6, 2), f(6, 2), -2, 1, n(6, 5),
    ),
    "quantized_decomposed::add.out": (
        *(n(99, 3, 4).to(torch.uint8), 0.1, 3, 0, 255), *(n(99, 3, 4).to(torch.uint8), 0.2, 5, 0, 255),
        *(0.3, 7, 0, 255),
    ),
    "quantized_decomposed::mixed_mm.out": (f(3, 4), n(9, 4, 5).to(torch.int8), POSITIVE.flatten()[:4], None),
}  # fmt: skip
"""Operator → its arguments, but for the outputs."""


def check(tmp_path: Path, operator: str, arguments: Sequence[Any], *outs: torch.Tensor) -> None:
    case = OneKernel(operator, arguments)
    made = case.program(*outs)
    file = tmp_path / "one.pte"
    write(made, file)
    runtime = shared_runtime()
    runtime.load(file)
    wanted = runtime.call("forward", case.inputs)
    with load_method(made) as method:
        found = method.execute(case.inputs)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("operator", CASES)
def test_a_kernel_computes_what_the_stock_runtime_does(tmp_path: Path, operator: str) -> None:
    check(tmp_path, operator, CASES[operator])


def test_the_element_type_of_an_output_is_what_the_program_says(tmp_path: Path) -> None:
    check(tmp_path, "aten::_to_copy.out", (X, False, None), torch.empty(3, 4, dtype=torch.int32))
    check(tmp_path, "aten::full.out", ([3], 2), torch.empty(3, dtype=torch.int64))
    check(tmp_path, "aten::add.out", (n(9, 3), n(9, 3), 1), torch.empty(3))


def test_a_choice_of_quantization_parameters_has_two_outputs(tmp_path: Path) -> None:
    operator = "quantized_decomposed::choose_qparams.Tensor_out"
    outs = torch.empty(1, dtype=torch.float64), torch.empty(1, dtype=torch.int64)
    check(tmp_path, operator, (X, -128, 127, 1e-5, torch.int8), *outs)


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("aten::copy.out", (n(9, 3), n(9, 3), False)),
        ("aten::slice_scatter.out", (n(9, 3, 4), n(9, 3, 1), 1, 0, 2, 2)),
        ("aten::select_scatter.out", (n(9, 3, 4), n(9, 3), 1, 2)),
    ],
)
def test_what_else_is_in_a_buffer_does_not_matter(operator: str, arguments: Sequence[Any]) -> None:
    """Torch computes these on the whole memory of a tensor, whose size is not a multiple of an element's here."""
    case = OneKernel(operator, arguments)
    made = case.program()
    (plan,) = made.execution_plan
    sizes = tuple(size + 4 if size else 0 for size in plan.non_const_buffer_sizes)
    namespace, _, rest = operator.partition("::")
    function = getattr(getattr(torch.ops, namespace), rest.partition(".")[0])
    with load_method(replace(made, execution_plan=(replace(plan, non_const_buffer_sizes=sizes),))) as method:
        (found,) = method.execute(case.inputs)
    torch.testing.assert_close(found, function(*arguments))
