"""Effects of each kind of instruction: reads, writes, changes, fills, pointing elsewhere."""

from __future__ import annotations

import pytest

from etdev.program import model as m
from etdev.program.analysis.effects import Effects, arguments, effects, operator_name, outputs

A, B, C, D, OUT, OTHER = range(6)
NUMBER, SIZES, NONE, PAIR, PAIR_AGAIN, OPTIONAL, REVERSED, NO_TENSORS, FLAG, ZERO = range(6, 16)


def tensor(at: int) -> m.Tensor:
    return m.Tensor(m.ScalarType.BYTE, (16,), (0,), allocation_info=m.AllocationDetails(1, 64 * at))


VALUES: tuple[m.Value, ...] = (
    *(tensor(at) for at in range(6)),
    m.Int(1),
    m.IntList((NUMBER,)),
    m.Null(),
    m.TensorList((OUT, OTHER)),
    m.TensorList((OUT, OTHER)),
    m.OptionalTensorList((B, -1, NONE)),
    m.TensorList((OTHER, OUT)),
    m.TensorList(()),
    m.Bool(True),
    m.Int(0),
)


def plan(*operators: str) -> m.ExecutionPlan:
    """Build a method with these operators and the values above."""
    named = tuple(m.Operator(*operator.partition(".")[::2]) for operator in operators)
    return m.ExecutionPlan("forward", VALUES, (), (), (m.Chain(()),), named, (), (0, 1024))


BATCH_NORM = (A, B, NONE, C, D, FLAG, NUMBER, NUMBER)
KERNELS: dict[str, tuple[str, tuple[int, ...], Effects]] = {
    "one output": ("aten::add.out", (A, B, NUMBER, OUT, OUT), Effects(reads=(A, B), writes=(OUT,))),
    "an argument twice": ("aten::mul.out", (A, A, OUT, OUT), Effects(reads=(A,), writes=(OUT,))),
    "no tensor as argument": ("aten::full.out", (SIZES, NUMBER, OUT, OUT), Effects(writes=(OUT,))),
    "over its argument": ("aten::relu.out", (A, A, A), Effects(reads=(A,), writes=(A,))),
    "several outputs": ("aten::topk.values", (A, NUMBER, OUT, OTHER, PAIR), Effects((A,), (OUT, OTHER))),
    "a list of outputs": ("aten::split_copy.Tensor_out", (A, NUMBER, PAIR, PAIR_AGAIN), Effects((A,), (OUT, OTHER))),
    "the same list": ("aten::split_copy.Tensor_out", (A, NUMBER, PAIR, PAIR), Effects((A,), (OUT, OTHER))),
    "a list as argument": ("aten::cat.out", (PAIR, NUMBER, A, A), Effects(reads=(OUT, OTHER), writes=(A,))),
    "a list with absent ones": ("aten::index.Tensor_out", (A, OPTIONAL, OUT, OUT), Effects((A, B), (OUT,))),
    "quantized": ("quantized_decomposed::add.out", (A, B, OUT, OUT), Effects((A, B), (OUT,))),
    "in another order": ("dim_order_ops::_clone_dim_order.out", (A, FLAG, SIZES, OUT, OUT), Effects((A,), (OUT,))),
    "between devices": ("et_copy::_h2d_copy.out", (A, OUT, OUT), Effects((A,), (OUT,))),
    "copy_": ("aten::copy_", (A, B, FLAG, A), Effects(reads=(B,), writes=(A,))),
    "index_put_": ("aten::index_put_", (A, OPTIONAL, C, FLAG, A), Effects(reads=(A, B, C), updates=(A,))),
    "running statistics": (
        "aten::_native_batch_norm_legit.out",
        (*BATCH_NORM, OUT, OTHER, PAIR),
        Effects(reads=(A, B, C, D), writes=(OUT, OTHER), updates=(C, D)),
    ),
    "running statistics, the old op": (
        "aten::native_batch_norm.out",
        (*BATCH_NORM, OUT, OTHER, PAIR),
        Effects(reads=(A, B, C, D), writes=(OUT, OTHER), updates=(C, D)),
    ),
    "no running statistics": (
        "aten::_native_batch_norm_legit_no_training.out",
        (*BATCH_NORM, OUT, OTHER, PAIR),
        Effects(reads=(A, B, C, D), writes=(OUT, OTHER)),
    ),
    "a view": ("executorch_prim::et_view.default", (A, SIZES, OUT), Effects(view=(A, OUT))),
    "a row": ("executorch_prim::et_copy_index.tensor", (OUT, A, ZERO), Effects(reads=(A,), fills=(OUT,))),
    "a row, not from 0 on": (
        "executorch_prim::et_copy_index.tensor",
        (OUT, A, NUMBER),
        Effects((OUT, A), (), (OUT, A)),
    ),
    "numbers": ("executorch_prim::add.Scalar", (NUMBER, NUMBER, NUMBER), Effects()),
    "a prim that nobody knows": ("executorch_prim::new", (A, NUMBER, OUT), Effects((A, OUT), (), (A, OUT))),
    "a size": ("aten::sym_size.int", (A, NUMBER, NUMBER), Effects()),
    "a number of elements": ("aten::sym_numel", (A, NUMBER), Effects()),
    "a number out of a tensor": ("aten::_local_scalar_dense", (A, NUMBER), Effects(reads=(A,))),
    "empty": ("aten::empty.out", (SIZES, NONE, OUT, OUT), Effects(fills=(OUT,))),
    "empty in another order": ("dim_order_ops::_empty_dim_order.out", (SIZES, SIZES, OUT, OUT), Effects(fills=(OUT,))),
    "my own": ("my::fused.out", (A, B, OUT, OUT), Effects((A, B), (OUT,), (A, B))),
    "my own over its argument": ("my::fused.out", (A, OUT, OUT, OUT), Effects((A, OUT), (), (A, OUT))),
    "my own without outputs": ("my::update", (A, B, NUMBER), Effects((A, B), (), (A, B))),
    "my own in place": ("my::add_", (A, B, A), Effects((A, B), (), (A, B))),
    "in place without repeating": ("aten::relu_", (A,), Effects((A,), (), (A,))),
    "aten without outputs": ("aten::strange", (A, B, NUMBER), Effects((A, B), (), (A, B))),
    "an operator with a magic name": ("aten::__and__.out", (A, B, OUT, OUT), Effects((A, B), (OUT,))),
    "a view with an argument too many": (
        "executorch_prim::et_view.default",
        (A, B, C, D),
        Effects((A, B, C, D), (), (A, B, C, D)),
    ),
    "no arguments": ("aten::strange", (), Effects()),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_the_effects_of_its_operator(name: str) -> None:
    operator, args, expected = KERNELS[name]
    assert effects(plan(operator), m.KernelCall(0, args)) == expected


CALLS: dict[str, tuple[m.Instruction, int | None, Effects]] = {
    "a delegate": (m.DelegateCall(0, (A, NUMBER, B, OUT, OTHER)), 3, Effects((A, B), (OUT, OTHER))),
    "a delegate without inputs": (m.DelegateCall(0, (OUT,)), 0, Effects(writes=(OUT,))),
    "a delegate without outputs": (m.DelegateCall(0, (A,)), 1, Effects(reads=(A,))),
    "a delegate that nobody knows": (m.DelegateCall(0, (A, NUMBER, OUT)), None, Effects((A, OUT), (), (A, OUT))),
    "a move": (m.MoveCall(A, OUT), None, Effects(move=(A, OUT))),
    "a move of a number": (m.MoveCall(NUMBER, FLAG), None, Effects()),
    "a move of a tensor to no tensor": (m.MoveCall(A, NONE), None, Effects(move=(A, NONE))),
    "a jump on a tensor": (m.JumpFalseCall(A, 0), None, Effects(reads=(A,))),
    "a jump on a flag": (m.JumpFalseCall(FLAG, 0), None, Effects()),
    "a free": (m.FreeCall(A), None, Effects()),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_instructions_have_effects_too(name: str) -> None:
    call, inputs, expected = CALLS[name]
    assert effects(plan(), call, inputs) == expected


REPEATED: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "one": ((A, OUT, OUT), (OUT,)),
    "only one": ((OUT, OUT), (OUT,)),
    "a list and its tensors": ((A, OUT, OTHER, PAIR), (OUT, OTHER)),
    "two lists": ((A, PAIR, PAIR_AGAIN), (OUT, OTHER)),
    "two lists of other order": ((A, PAIR, REVERSED), ()),
    "a list in other order": ((A, OTHER, OUT, PAIR), ()),
    "a list too short of arguments": ((OTHER, PAIR), ()),
    "an empty list": ((A, NO_TENSORS), ()),
    "two others": ((A, OUT, OTHER), ()),
    "a number twice": ((A, NUMBER, NUMBER), ()),
    "a single argument": ((OUT,), ()),
}


@pytest.mark.parametrize("name", REPEATED)
def test_outputs_are_what_a_call_repeats_at_its_end(name: str) -> None:
    args, expected = REPEATED[name]
    whole = plan()
    assert outputs(whole, args) == expected
    before = arguments(whole, args)
    assert before == args[: len(before)]
    # Either nothing is an output, or everything before the outputs and their repetition is an argument.
    assert (before == args) == (not expected)


def test_arguments_end_where_outputs_begin() -> None:
    assert arguments(plan(), (A, NUMBER, OUT, OUT)) == (A, NUMBER)
    assert arguments(plan(), (A, OUT, OTHER, PAIR)) == (A,)
    assert arguments(plan(), (A, NUMBER, PAIR, PAIR_AGAIN)) == (A, NUMBER)


def test_an_operator_is_named_with_its_overload_if_it_has_one() -> None:
    assert operator_name(m.Operator("aten::add", "out")) == "aten::add.out"
    assert operator_name(m.Operator("aten::copy_")) == "aten::copy_"
