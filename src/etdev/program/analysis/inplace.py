"""Kernels that may overwrite one of their inputs with an output.

The table was measured with the kernels of executorch 1.4.1 and 1.5.1 (``benchmarks/inplace_table.py``). A kernel ran
once with separate memory, and once with its output in the bytes of its input. Both runs gave bit-identical results. The
smallest tensors had one element. The largest tensors exceeded the blocks and vectors that kernels work in.

An entry states that the kernel never reads an element of the input after overwriting the element. The entry alone does
not permit the reuse of the input. The linker also checks that no later instruction needs the input, and that input and
output have the same shape.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Donor:
    """An input whose bytes an output may reuse.

    The input must have the output's shape, and no later instruction may need the input.
    """

    argument: int
    """Position among the arguments of the kernel's schema, from 0. It is also the position in ``KernelCall.args``."""
    output: int = 0
    """Index of the kernel's output, from 0."""


_FIRST = (Donor(0),)
_SECOND = (Donor(1),)
_BOTH = (Donor(0), Donor(1))
_THREE = (Donor(0), Donor(1), Donor(2))

_UNARY = """
    abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh elu erf exp expm1 floor gelu hardtanh isinf isnan
    leaky_relu log log10 log1p log2 logical_not logit neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan
    tanh trunc
"""
_BINARY = """
    add atan2 div floor_divide logical_and logical_or logical_xor maximum minimum mul sub
"""
_BINARY_TENSORS = """
    bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor eq fmod ge gt le lt ne remainder
"""
_WITH_SCALAR = """
    add bitwise_and bitwise_or bitwise_xor div eq fmod ge gt le lt mul ne remainder rsub sub
"""


def _table() -> Iterable[tuple[str, tuple[Donor, ...]]]:
    # Pointwise: element i of the output depends only on the elements i of the inputs.
    yield from ((f"aten::{name}.out", _FIRST) for name in _UNARY.split())
    yield from ((f"aten::{name}.out", _BOTH) for name in _BINARY.split())
    yield from ((f"aten::{name}.Tensor_out", _BOTH) for name in _BINARY_TENSORS.split())
    yield from ((f"aten::{name}.Scalar_out", _FIRST) for name in _WITH_SCALAR.split())
    yield "aten::bitwise_left_shift.Tensor_Scalar_out", _FIRST
    yield "aten::bitwise_right_shift.Tensor_Scalar_out", _FIRST
    yield "aten::div.out_mode", _BOTH
    yield "aten::div.Scalar_mode_out", _FIRST
    yield "aten::pow.Tensor_Tensor_out", _BOTH
    yield "aten::pow.Tensor_Scalar_out", _FIRST
    yield "aten::pow.Scalar_out", _SECOND
    yield "aten::clamp.out", _FIRST
    yield "aten::clamp.Tensor_out", _THREE
    yield "aten::where.self_out", _THREE
    yield "aten::masked_fill.Scalar_out", _BOTH
    yield "aten::masked_scatter.out", _BOTH
    yield "quantized_decomposed::add.out", (Donor(0), Donor(5))
    # These kernels read a row first. Then they write the row element by element, each over the element it depends on.
    yield "aten::_softmax.out", _FIRST
    yield "aten::_log_softmax.out", _FIRST
    yield "aten::cumsum.out", _FIRST
    yield "aten::native_layer_norm.out", _FIRST
    yield "aten::native_group_norm.out", _FIRST
    yield "aten::_native_batch_norm_legit_no_training.out", _FIRST
    yield "aten::_native_batch_norm_legit.out", _FIRST
    yield "aten::_native_batch_norm_legit.no_stats_out", _FIRST
    # These begin with a copy of the whole input onto itself, and then change a part.
    yield "aten::index_put.out", _FIRST
    yield "aten::scatter.src_out", _FIRST
    yield "aten::scatter.value_out", _FIRST
    yield "aten::scatter_add.out", _FIRST
    yield "aten::select_scatter.out", _FIRST
    yield "aten::slice_scatter.out", _FIRST
    # These read only the shape of the input.
    yield "aten::fill.Scalar_out", _FIRST
    yield "aten::fill.Tensor_out", _FIRST
    yield "aten::full_like.out", _FIRST


DEFAULT: Mapping[str, tuple[Donor, ...]] = MappingProxyType(dict(_table()))
"""Maps a kernel to the inputs whose bytes its outputs may reuse. :func:`operator_name` defines the kernel's name."""

_SPELLED = re.compile(
    r"(?:torch\.ops\.)?(?:(?P<namespace>\w+)::|(?P<dotted>\w+)\.(?=\w+\.)|aten\.)?"
    r"(?P<name>\w+)(?:\.(?P<overload>\w+))?",
    re.ASCII,
)
_OTHERWISE = {"default": ("out", ""), "Tensor": ("out",), "Tensor_mode": ("out_mode",)}
"""Maps an overload to the names that its ``out`` variant may have in addition to ``OVERLOAD_out``."""


def parse_operator(text: str, known: Iterable[str] = DEFAULT) -> tuple[str, ...]:
    """Return the operators in ``known`` to which a text refers, or ``()`` if there are none.

    ``aten::relu.out``, ``aten.relu.default`` and ``relu`` refer to the same operator. A text without an overload refers
    to all overloads: ``add`` is ``aten::add.out`` and ``aten::add.Scalar_out``. Raises :class:`ValueError` for a text
    that is not the name of an operator.
    """
    spelled = _SPELLED.fullmatch(text)
    if spelled is None:
        raise ValueError(
            f"{text!r} is not the name of an operator such as `aten::relu.out`, `aten.relu.default` or `relu`"
        )
    namespace = spelled["namespace"] or spelled["dotted"] or "aten"
    start = f"{namespace}::{spelled['name']}"
    family = {name: name.removeprefix(start).removeprefix(".") for name in known if name.partition(".")[0] == start}
    wanted = spelled["overload"]
    if wanted is None:
        return tuple(sorted(family))
    for overload in (wanted, f"{wanted}_out", *_OTHERWISE.get(wanted, ())):
        found = tuple(name for name in family if family[name] == overload)
        if found:
            return found
    return ()


def nearest_operators(text: str, known: Iterable[str] = DEFAULT) -> tuple[str, ...]:
    """Return the names in ``known`` that are most similar to a text."""
    spelled = _SPELLED.fullmatch(text)
    wanted = spelled["name"] if spelled else text
    by_name: dict[str, list[str]] = {}
    for name in sorted(known):
        by_name.setdefault(name.partition("::")[2].partition(".")[0], []).append(name)
    close = difflib.get_close_matches(wanted, by_name, n=2)
    return tuple(name for short in close for name in by_name[short])
