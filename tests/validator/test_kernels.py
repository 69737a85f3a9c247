"""The validator's tables match the kernels of the stock runtime and of PyTorch (E2, C4)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from etdev.kernel_trials.op_schema import operator_schema
from etdev.kernel_trials.trial import try_operator
from etdev.program import model as m
from etdev.program import write
from etdev.program.analysis.inplace import DEFAULT
from etdev.runtime.stock import StockRuntime
from etdev.validator.facts import TensorFacts
from etdev.validator.semantics.movement import RULES, moved
from etdev.validator.semantics.operators import IN_PLACE, POINTWISE
from etdev.validator.semantics.shapes import RULES as SHAPE_RULES
from etdev.validator.semantics.shapes import Broadcast, output_dims
from support.stock import shared_runtime
from validator.kernel_cases import MOVES, SHAPES, T, t
from validator.pairs import Half, program

pytestmark = pytest.mark.integration

DTYPES = {
    m.ScalarType.FLOAT: torch.float32,
    m.ScalarType.INT: torch.int32,
    m.ScalarType.LONG: torch.int64,
    m.ScalarType.BOOL: torch.bool,
}


class Call:
    """Call of a kernel: its program, and the operands as the validator has them."""

    def __init__(self, operator: str, args: list[Any], outs: list[T]) -> None:
        self.half = Half()
        self.tensors: list[T] = []
        indices, self.parts = zip(*map(self._argument, args), strict=True)
        self.outs = [
            self.half.tensor(*out.shape, dtype=out.dtype, order=out.order, at=2048 + 256 * number)
            for number, out in enumerate(outs)
        ]
        if len(outs) == 1 and "split" not in operator and "unbind" not in operator:
            self.half.kernel(operator, *indices, *self.outs, *self.outs)
        else:
            self.half.kernel(operator, *indices, *(self.half.list(*self.outs) for _ in range(2)))
        self.half.outputs = self.outs

    def _argument(self, value: Any) -> tuple[int, tuple[Any, ...]]:
        half = self.half
        match value:
            case T():
                number = len(self.tensors)
                self.tensors.append(value)
                index = half.tensor(*value.shape, dtype=value.dtype, order=value.order, at=256 * number)
                half.inputs.append(index)
                kind = value.dtype, None if value.order in (None, tuple(range(len(value.shape)))) else value.order
                nbytes = _facts(value).nbytes
                return index, (kind, value.shape, ((number, 0, nbytes),) if nbytes else ())
            case None:
                return half.value(m.Null()), ("none",)
            case bool():
                return half.truth(value), ("b", value)
            case int():
                return half.integer(value), ("i", value)
            case float():
                return half.value(m.Double(value)), ("value", m.Double(value))
            case [T(), *_]:
                found = [self._argument(item) for item in value]
                return half.list(*(index for index, _ in found)), ("list", *(part for _, part in found))
            case list():
                return half.integers(*value), ("list", *(("i", item) for item in value))
        raise AssertionError(value)


def _facts(found: T, *, dynamic: bool = False) -> TensorFacts:
    plain = found.order in (None, tuple(range(len(found.shape))))
    count = 1
    for size in found.shape:
        count *= size
    return TensorFacts(
        value=0,
        kind=(found.dtype, None if plain else found.order),
        sizes=found.shape,
        itemsize=found.dtype.itemsize,
        nbytes=count * found.dtype.itemsize,
        dynamic=dynamic,
        plain=plain,
        place=None,
        planned=False,
    )


def _random(found: T, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 100, found.shape, generator=generator).to(DTYPES[found.dtype])


def _bytes(value: torch.Tensor, order: tuple[int, ...] | None = None) -> bytes:
    """Return the bytes as they are in the memory of a program.

    The runtime's client puts inputs into their declared order, and returns outputs in default order.
    """
    dense = value if order is None else value.permute(order)
    return dense.contiguous().numpy().tobytes()


MOVE_CASES = [
    pytest.param(operator, *case, id=f"{operator} {number}")
    for operator, cases in MOVES.items()
    for number, case in enumerate(cases)
]


@pytest.mark.parametrize(("operator", "args", "outs", "follows"), MOVE_CASES)
def test_what_moves_bytes(operator: str, args: list[Any], outs: list[T], follows: bool, tmp_path: Path) -> None:
    """The kernel writes exactly the bytes that the validator says an output consists of."""
    call = Call(operator, args, outs)
    found = moved(operator, call.parts, [_facts(out) for out in outs])
    assert (found is not None) is follows
    file = tmp_path / "one.pte"
    write(program(call.half), file)
    inputs = [_random(tensor, seed) for seed, tensor in enumerate(call.tensors)]
    runtime = shared_runtime()
    runtime.load(file)
    values = runtime.call("forward", inputs)

    held = [_bytes(value, tensor.order) for value, tensor in zip(inputs, call.tensors, strict=True)]
    for value, out, content in zip(values, outs, found or (), strict=False):
        assert _bytes(value, out.order) == b"".join(
            held[number][start : start + count] for number, start, count in content
        )


def test_every_rule_is_tried() -> None:
    tried = {operator for operator, cases in MOVES.items() if any(follows for *_, follows in cases)}
    # No kernel here copies between devices; the random programs on devices test those copies.
    copies = {"et_copy::_d2h_copy.out", "et_copy::_h2d_copy.out"}
    assert tried == RULES.keys() - {"aten::copy_"} - copies
    # Operators of quantization and of dimension orders have no counterpart in PyTorch alone.
    others = {name for name in SHAPE_RULES if not name.startswith("aten::")}
    assert {*SHAPES, *MOVES} >= SHAPE_RULES.keys() - others


SHAPE_CASES = [
    pytest.param(operator, args, id=f"{operator} {number}")
    for operator, cases in {
        **SHAPES,
        **{operator: [args for args, *_ in cases] for operator, cases in MOVES.items() if operator in SHAPE_RULES},
    }.items()
    if operator.startswith("aten::")
    for number, args in enumerate(cases)
]


def _torch_shape(operator: str, args: list[Any]) -> tuple[int, ...]:
    """Return the sizes that PyTorch's ``out`` variant gives its first output."""
    schema = operator_schema(operator)
    assert schema is not None
    name, _, overload = operator.removeprefix("aten::").partition(".")
    values: list[Any] = []
    for seed, item in enumerate(args):
        if isinstance(item, list) and item and isinstance(item[0], T):
            values.append([_random(tensor, seed) % 2 for tensor in item])
        else:
            values.append(_random(item, seed) % 2 if isinstance(item, T) else item)
    names = [argument.name for argument in schema.arguments]
    dtypes = [value.dtype for value in values if isinstance(value, torch.Tensor)] or [torch.float32]
    kinds = [
        torch.int64 if argument.name == "indices" or name == "argmax" else dtypes[0] for argument in schema.outputs
    ]
    outs = {
        argument.name: torch.empty(0, dtype=torch.bool if name == "any" else kind)
        for argument, kind in zip(schema.outputs, kinds, strict=True)
    }
    known = {
        item.name for item in getattr(getattr(torch.ops.aten, name), overload)._schema.arguments if item.kwarg_only
    }
    positional = [value for value, key in zip(values, names, strict=False) if key not in known]
    named = {key: value for value, key in zip(values, names, strict=False) if key in known and value is not None}
    found = getattr(getattr(torch.ops.aten, name), overload)(*positional, **named, **outs)
    first = found[0] if isinstance(found, tuple | list) else found
    return tuple(first.shape)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(("operator", "args"), SHAPE_CASES)
def test_sizes_of_outputs(operator: str, args: list[Any]) -> None:
    shape = _torch_shape(operator, args)
    call = Call(operator, args, [t(*shape)])
    found = output_dims(operator, call.parts, len(shape))

    assert found is not None or operator == "aten::constant_pad_nd.out"
    for mine, theirs in zip(found or (), shape, strict=True):
        assert mine in (None, theirs)


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        ([(2, 3), (2, 3)], (2, 3)),
        ([(2, 3), (3,)], (2, 3)),
        ([(2, 1), (1, 3)], (2, 3)),
        ([(), (2, 3)], (2, 3)),
        ([(1, 3), (2, 1, 1)], (2, 1, 3)),
    ],
)
def test_sizes_are_broadcast(shapes: list[tuple[int, ...]], wanted: tuple[int, ...]) -> None:
    assert torch.broadcast_shapes(*shapes) == wanted
    parts = [((m.ScalarType.FLOAT, None), shape, ()) for shape in shapes]
    assert output_dims("aten::mul.out", parts, len(wanted)) == wanted


def test_unknown_sizes_are_broadcast_as_far_as_is_known() -> None:
    """A size that may be 1 does not follow from others; a known size other than 1 is the result."""
    unknown, other = (((7,), 1),), (((8,), 1),)
    kind = m.ScalarType.FLOAT, None
    assert output_dims("aten::mul.out", [(kind, (unknown,), ()), (kind, (1,), ())], 1) == (unknown,)
    assert output_dims("aten::mul.out", [(kind, (unknown,), ()), (kind, (5,), ())], 1) == (5,)
    assert output_dims("aten::mul.out", [(kind, (unknown,), ()), (kind, (unknown,), ())], 1) == (unknown,)
    both = Broadcast(frozenset({unknown, other}))
    assert output_dims("aten::mul.out", [(kind, (unknown,), ()), (kind, (other,), ())], 1) == (both,)
    assert output_dims("aten::mul.out", [(kind, (other, 5), ()), (kind, (unknown, 1), ())], 2) == (both, 5)


# In place

COPIES = {
    "aten::alias_copy.out",
    "aten::clone.out",
    "aten::copy_",
    "aten::detach_copy.out",
    "aten::lift_fresh_copy.out",
    "aten::squeeze_copy.dim_out",
    "aten::squeeze_copy.dims_out",
    "aten::unsqueeze_copy.out",
    "aten::view_copy.out",
}
"""Copies in the validator's table only: copies onto themselves, which the link removes."""


def test_both_tables_allow_the_same() -> None:
    """The tables were made separately, by two methods."""
    linkers = {(name, donor.argument, donor.output) for name, donors in DEFAULT.items() for donor in donors}
    own = {(name, argument, 0) for name, arguments in IN_PLACE.items() for argument in arguments}

    assert linkers - own == set()
    assert {name for name, *_ in own - linkers} == COPIES


def _tried(runtime: StockRuntime, operator: str) -> dict[int, str]:
    """Return the result of each kernel of the runtime with the first output over each argument."""
    schema = operator_schema(operator)
    assert schema is not None
    return {item.donor.argument: item.verdict for item in try_operator(runtime, schema) if item.donor.output == 0}


SAMPLE = {"aten::_softmax.out", "aten::mul.out", "aten::where.self_out"}
"""Operators of which one is tried for every commit, and all in the nightly tests."""
UNTRIED = {"aten::copy_", "aten::unsqueeze_copy.out"}
"""``copy_`` has no separate output, and that of ``unsqueeze_copy`` never has the shape of its input."""


@pytest.mark.parametrize(
    "operator",
    [
        operator if operator in SAMPLE else pytest.param(operator, marks=pytest.mark.slow)
        for operator in sorted(IN_PLACE.keys() - UNTRIED)
    ],
)
@pytest.mark.sampled(1)
def test_kernels_that_work_in_place(operator: str) -> None:
    importlib.import_module("executorch.kernels.quantized")  # Registers the schemas of its operators in PyTorch.
    with StockRuntime() as runtime:
        found = _tried(runtime, operator)
    for argument in IN_PLACE[operator]:
        assert found[argument] in ("safe", "identity"), argument


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(("shape", "dim"), [((), 0), ((3,), 0), ((3, 4), 1), ((3, 4), -1), ((2, 0, 4), 2)])
def test_unsqueeze_copy_works_in_place(shape: tuple[int, ...], dim: int, dtype: m.ScalarType, tmp_path: Path) -> None:
    given = T(shape, dtype)
    value = _random(given, 1)
    half = Half()
    half.inputs = [half.tensor(*shape, dtype=dtype, at=0)]
    out = half.tensor(*value.unsqueeze(dim).shape, dtype=dtype, at=0)
    half.op("unsqueeze_copy.out", half.inputs[0], half.integer(dim), out)
    half.outputs = [out]
    write(program(half), tmp_path / "one.pte")
    runtime = shared_runtime()
    runtime.load(tmp_path / "one.pte")

    (found,) = runtime.call("forward", [value])

    assert torch.equal(found, value.unsqueeze(dim))


def test_point_wise_operators_keep_shapes() -> None:
    """A broadcast operand gets the shape to which it is broadcast."""
    assert POINTWISE.isdisjoint(SHAPE_RULES)
