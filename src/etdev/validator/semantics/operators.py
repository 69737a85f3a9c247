"""Table of operators and their effects on their arguments.

In the known namespaces, an ``out`` variant reads its arguments, and writes all of its outputs at the end of the call.
Sources: the schemas of PyTorch's operators; ``kernels/`` and ``kernels/prim_ops`` of executorch.
"""

from __future__ import annotations

from enum import Enum, auto


class Act(Enum):
    """Effect of an instruction."""

    COMPUTE = auto()
    """Writes all of its outputs, as a function of its operands."""
    UPDATE = auto()
    """Changes some of its arguments. The new content depends on all of its arguments."""
    VIEW = auto()
    """Points a tensor to the bytes of another tensor."""
    ADD_ROW = auto()
    """Appends row ``i`` to a tensor. The tensor then has ``i + 1`` rows."""
    NUMBER = auto()
    """Sets a number."""
    SIZE = auto()
    """Sets a number to a size of a tensor, without reading the tensor's bytes."""
    RESIZE = auto()
    """Sets the sizes of a tensor and writes no bytes."""
    UNKNOWN = auto()
    """May read or change any of its arguments."""
    DELEGATE = auto()
    MOVE = auto()
    JUMP = auto()
    FREE = auto()


NAMESPACES = frozenset({"aten", "dim_order_ops", "quantized_decomposed", "et_copy", "cortex_m"})
"""Namespaces in which every ``out`` variant reads its arguments and writes all of its outputs."""
PRIM = "executorch_prim"

ET_VIEW = "executorch_prim::et_view.default"
COPY_INDEX = "executorch_prim::et_copy_index.tensor"
COPY = "aten::copy_"
CAT = "aten::cat.out"
TO_HOST = "et_copy::_d2h_copy.out"
TO_DEVICE = "et_copy::_h2d_copy.out"
EMPTY = "aten::empty.out"
VIEW_COPY = "aten::view_copy.out"
SIZE = "aten::sym_size.int"
SCALAR = "aten::_local_scalar_dense"
SIZES = frozenset({SIZE, "aten::sym_numel", "aten::sym_stride.int", "aten::sym_storage_offset"})

_RANDOM = frozenset(
    {
        "aten::_cudnn_init_dropout_state",
        "aten::_cudnn_rnn",
        "aten::_fill_mem_eff_dropout_mask",
        "aten::_flash_attention_forward_no_dropout_inplace",
        "aten::_fused_dropout",
        "aten::_lstm_mps",
        "aten::_sample_dirichlet",
        "aten::_standard_gamma",
        "aten::_triton_scaled_dot_attention",
        "aten::alpha_dropout",
        "aten::bernoulli",
        "aten::binomial",
        "aten::cauchy",
        "aten::dropout",
        "aten::exponential",
        "aten::feature_alpha_dropout",
        "aten::feature_dropout",
        "aten::geometric",
        "aten::log_normal",
        "aten::miopen_rnn",
        "aten::multinomial",
        "aten::native_dropout",
        "aten::normal",
        "aten::poisson",
        "aten::rand",
        "aten::rand_like",
        "aten::randint",
        "aten::randint_like",
        "aten::randn",
        "aten::randn_like",
        "aten::random",
        "aten::randperm",
        "aten::rrelu",
        "aten::rrelu_with_noise",
        "aten::uniform",
    }
)
"""Operators with random results. In-place operators are listed without the underscore at the end of their names."""
ALSO_CHANGED = {"aten::_native_batch_norm_legit.out": (3, 4), "aten::native_batch_norm.out": (3, 4)}
"""Maps an ``out`` variant to the arguments that it changes in addition to its outputs: running statistics."""


def _with_nhwc(**positions: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {f"cortex_m::quantized_{name}{layout}.out": at for name, at in positions.items() for layout in ("", "_nhwc")}


OVERWRITTEN = {
    **_with_nhwc(conv2d=(12,), depthwise_conv2d=(13,), transpose_conv2d=(13, 14), avg_pool2d=(8,)),
    "cortex_m::quantized_batch_matmul.out": (7,),
}
"""Maps an ``out`` variant to the arguments that it overwrites without reading them: scratch memory.

Source: the C++ kernels in ``backends/cortex_m/ops`` of executorch.
"""


def is_random(name: str) -> bool:
    """Return whether an operator has random results."""
    return name.partition(".")[0].removesuffix("_") in _RANDOM


def same_function(name: str) -> str:
    """Return a name that is the same for all operators that compute the same function."""
    return {"aten::index_put_": "aten::index_put.out"}.get(name, name)


# Operators that work in place

_UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil clamp clone cos cosh elu erf exp expm1 floor gelu hardtanh "
    "leaky_relu log log10 log1p log2 logical_not logit neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan "
    "tanh trunc"
)
_WITH_SCALAR = (
    "add.Scalar_out bitwise_and.Scalar_out bitwise_left_shift.Tensor_Scalar_out bitwise_or.Scalar_out "
    "bitwise_right_shift.Tensor_Scalar_out bitwise_xor.Scalar_out div.Scalar_mode_out div.Scalar_out eq.Scalar_out "
    "fmod.Scalar_out ge.Scalar_out gt.Scalar_out le.Scalar_out lt.Scalar_out masked_fill.Scalar_out mul.Scalar_out "
    "ne.Scalar_out pow.Tensor_Scalar_out remainder.Scalar_out rsub.Scalar_out sub.Scalar_out"
)
_BINARY = (
    "add.out atan2.out bitwise_and.Tensor_out bitwise_left_shift.Tensor_out bitwise_or.Tensor_out "
    "bitwise_right_shift.Tensor_out bitwise_xor.Tensor_out div.out div.out_mode eq.Tensor_out floor_divide.out "
    "fmod.Tensor_out ge.Tensor_out gt.Tensor_out le.Tensor_out logical_and.out logical_or.out logical_xor.out "
    "lt.Tensor_out maximum.out minimum.out mul.out ne.Tensor_out pow.Tensor_Tensor_out remainder.Tensor_out sub.out"
)
_COPIES = "alias_copy detach_copy lift_fresh_copy unsqueeze_copy view_copy"
_DATA_OPERAND = (
    "_log_softmax.out _softmax.out cumsum.out fill.Scalar_out fill.Tensor_out full_like.out index_put.out "
    "isinf.out isnan.out native_group_norm.out native_layer_norm.out scatter.src_out scatter.value_out scatter_add.out "
    "select_scatter.out slice_scatter.out _native_batch_norm_legit.no_stats_out _native_batch_norm_legit.out "
    "_native_batch_norm_legit_no_training.out squeeze_copy.dim_out squeeze_copy.dims_out"
)

IN_PLACE: dict[str, frozenset[int]] = {
    **{f"aten::{name}.out": frozenset({0}) for name in (*_UNARY.split(), *_COPIES.split())},
    **{f"aten::{name}": frozenset({0}) for name in (*_WITH_SCALAR.split(), *_DATA_OPERAND.split())},
    **{f"aten::{name}": frozenset({0, 1}) for name in _BINARY.split()},
    "aten::pow.Scalar_out": frozenset({1}),
    "aten::clamp.Tensor_out": frozenset({0, 1, 2}),
    "aten::copy_": frozenset({0}),
    "aten::masked_fill.Scalar_out": frozenset({0, 1}),
    "aten::masked_scatter.out": frozenset({0, 1}),
    "aten::where.self_out": frozenset({0, 1, 2}),
    "quantized_decomposed::add.out": frozenset({0, 5}),
}
"""Maps an operator to the positions of the operands that its first output may overwrite.

The kernel reads each element of such an operand before it writes to that place, or reads all elements first. Point-wise
kernels read and write each element at the same place. Scatter kernels copy the operand first. Softmax and the norms
read a row before they write it. Contractions, pools, gathers, flips and broadcast operands do not qualify.
"""

READS_FIRST = frozenset({"EtdevReferenceBackend"})
"""Backends whose delegates read all inputs before they write any output."""

STATELESS = frozenset({"EthosUBackend", "EtdevReferenceBackend", "XnnpackBackend"})
"""Backends whose delegates have no effects except on their outputs and their own state."""

POINTWISE = frozenset(
    {
        *(f"aten::{name}.out" for name in _UNARY.split() if name != "clone"),
        *(f"aten::{name}" for name in (*_WITH_SCALAR.split(), *_BINARY.split())),
        "aten::clamp.Tensor_out",
        "aten::isinf.out",
        "aten::isnan.out",
        "aten::pow.Scalar_out",
        "aten::where.self_out",
    }
)
"""Operators that compute each output element from operand elements at the same index, with broadcasting."""
