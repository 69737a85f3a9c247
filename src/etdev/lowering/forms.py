"""Table of the forms: the ops that they replace, their gains, and the kernel library on which the gains depend.

This module does not import torch. :mod:`etdev.lowering.rewrite` contains the function that applies each form.
``benchmarks/lowering.py`` measures each gain at one typical size, in the stock runtime of executorch 1.5.1 on one
thread. On x86-64, matrix products take half the time with executorch 1.4.1, because its Python runtime calls torch's
kernels. So the gains of ``linear``, ``addmm`` and ``convolution`` are twice as large with 1.4.1. All other gains are
the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """Entry of the table: an op of the stock lowering, and the form that replaces it."""

    name: str
    """Name of the form in reports."""
    stock: str
    """Ops that ExecuTorch's lowering emits."""
    form: str
    """Ops that replace the ops in ``stock``."""
    operators: tuple[str, ...]
    """All operators that the form may add to a file."""
    measured: str
    """Size for which the gain was measured, with all of ExecuTorch's kernel libraries linked."""
    gain: float
    """Speedup at the size in ``measured``. The speedup is 1 for a form that takes about the same time."""
    reason: str
    """Reason why the form is faster or takes less memory."""
    less_memory: float = 1
    """Planned memory without the form, divided by planned memory with the form; 1 if the form saves no memory."""


_WALK = "aten::as_strided_copy.out"
_JOIN = ("aten::cat.out", "aten::slice_copy.Tensor_out", "aten::constant_pad_nd.out", "aten::view_copy.out")

FORMS: tuple[Form, ...] = (
    Form(
        "linear",
        stock="permute_copy of the weight, then addmm or mm",
        form="linear",
        operators=("aten::linear.out",),
        measured="128 x 128 by 512 x 128, with a bias",
        gain=26,
        reason="addmm has a portable kernel only, and the weight is transposed again in every call",
    ),
    Form(
        "addmm",
        stock="addmm",
        form="linear with the matrix stored transposed; mm and add if other ops need the matrix",
        operators=("aten::linear.out", "aten::mm.out", "aten::add.out"),
        measured="128 x 128 by 128 x 512, with a bias",
        gain=27,
        reason="addmm has a portable kernel only",
    ),
    Form(
        "pow",
        stock="pow by 2, 3, 1/2 or -1/2",
        form="products, sqrt or rsqrt, as eager PyTorch computes it",
        operators=("aten::mul.out", "aten::sqrt.out", "aten::rsqrt.out"),
        measured="65,536 elements squared",
        gain=16,
        reason="the portable kernel calls the C library's pow for each element",
    ),
    Form(
        "clamp",
        stock="clamp between two numbers",
        form="hardtanh",
        operators=("aten::hardtanh.out",),
        measured="65,536 elements",
        gain=2.5,
        reason="clamp converts each element; hardtanh is a loop that compilers vectorise",
    ),
    Form(
        "gelu",
        stock="gelu, approximated by tanh",
        form="x * sigmoid(2u), which is x / 2 * (1 + tanh(u))",
        operators=("aten::mul.out", "aten::mul.Scalar_out", "aten::add.Scalar_out", "aten::sigmoid.out"),
        measured="65,536 elements",
        gain=4,
        reason="the C library's tanh takes five times as long as exp",
    ),
    Form(
        "tiling",
        stock="ops on whole tensors at the peak of the method",
        form="the same ops on one tile after another",
        operators=(
            "aten::slice_copy.Tensor_out",
            "aten::cat.out",
            "aten::view_copy.out",
            "aten::constant_pad_nd.out",
        ),
        measured="MLP with two layers: 64 inputs, 256 hidden units, 256 rows",
        gain=1,
        reason="the tensors between the ops need memory for one tile only",
        less_memory=2,
    ),
    Form(
        "pooling",
        stock="max_pool2d without its indices, avg_pool2d",
        form="maximum or sum of shifted copies, one dimension after the other; mean of whole images",
        operators=(
            *("aten::maximum.out", "aten::add.out", "aten::div.out", "aten::div.Scalar_out", "aten::mean.out"),
            *("aten::full.out", _WALK, *_JOIN),
        ),
        measured="maximum, 3 x 3, stride 2, 64 channels, 56 x 56",
        gain=4,
        reason="the portable kernels compute an index for each element of each window",
    ),
    Form(
        "convolution",
        stock="convolution",
        form="windows as columns of a matrix (as_strided_copy), times the weight (mm, or bmm for groups)",
        operators=("aten::mm.out", "aten::bmm.out", "aten::add.out", _WALK, *_JOIN),
        measured="3 x 3, 32 to 64 channels, 56 x 56",
        gain=50,
        reason="the portable kernel computes the addresses of both factors of every product",
    ),
    Form(
        "movement",
        stock="permute_copy, transpose_copy, slice_copy, select_copy, expand_copy",
        form="as_strided_copy, unless the linker makes it a view",
        operators=(_WALK, "aten::view_copy.out"),
        measured="heads of attention: 128 x 4 x 32 to 4 x 128 x 32",
        gain=7.5,
        reason="permute_copy computes an index for each element; as_strided_copy steps through its input",
    ),
)
"""Forms in the order in which they are applied."""

PRODUCTS = frozenset(form.name for form in FORMS if {"aten::linear.out", "aten::mm.out"}.intersection(form.operators))
"""Forms that compute a matrix product with a kernel that copies its operands."""
_LIBRARY = "optimized"
"""Kernel library on which all gains depend. A runtime that lacks it gets the stock lowering."""


def usable_forms(libraries: Collection[str] | None, operators: Collection[str] | None) -> tuple[str, ...]:
    """Return the names of the forms for a runtime with these kernel libraries and operators.

    None means all libraries, or all operators.
    """
    if libraries is not None and _LIBRARY not in libraries:
        return ()
    return tuple(form.name for form in FORMS if operators is None or set(form.operators).issubset(operators))
