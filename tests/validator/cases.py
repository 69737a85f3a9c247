"""Changes that a link may make, and the mistakes that look like them: each case in three variants.

A case builds its method for ``"before"``, ``"good"`` and ``"bad"``: the program before the link, a correct link of it
and a wrong one. Sizes are in elements of four bytes, addresses in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias

from etdev.program import model as m
from validator.pairs import BYTE, LONG, Half

Variant: TypeAlias = Literal["before", "good", "bad"]


@dataclass(frozen=True)
class Case:
    """Rule of the validator, with the methods that show it."""

    build: Callable[[Variant], Half]
    kind: str
    """Kind of the violation in the bad variant."""
    gone: Collection[int] = ()
    """Positions that the good and the bad variant lack."""
    new: Collection[int] = ()
    """Positions that only they have."""


CASES: dict[str, Case] = {}


def case(
    kind: str, *, gone: Collection[int] = (), new: Collection[int] = ()
) -> Callable[[Callable[[Variant], Half]], Callable[[Variant], Half]]:
    """Register a case under its name."""

    def enter(build: Callable[[Variant], Half]) -> Callable[[Variant], Half]:
        CASES[build.__name__.replace("_", " ")] = Case(build, kind, gone, new)
        return build

    return enter


def _at(variant: Variant, before: int, good: int, bad: int) -> int:
    return {"before": before, "good": good, "bad": bad}[variant]


# Addresses


@case("content")
def dead_memory_is_used_again(variant: Variant) -> Half:
    """Reuse the memory of x, which is dead after the first instruction; y is not."""
    half = Half()
    one = half.integer(1)
    x = half.input(4, at=0)
    y = half.op("mul.out", x, x, half.tensor(4, at=64))
    z = half.op("exp.out", x, half.tensor(4, at=_at(variant, 128, 0, 76)))
    half.outputs = [half.op("add.out", y, z, one, half.tensor(4, at=192))]
    return half


@case("content")
def inputs_do_not_overlap(variant: Variant) -> Half:
    half = Half()
    x, y = half.input(4, at=0), half.input(4, at=_at(variant, 64, 16, 12))
    half.outputs = [half.op("mul.out", x, y, half.tensor(4, at=128))]
    return half


@case("extent")
def tensors_lie_in_their_buffer(variant: Variant) -> Half:
    half = Half(size=64)
    x = half.input(4, at=0)
    half.outputs = [half.op("relu.out", x, half.tensor(4, at=_at(variant, 32, 48, 52)))]
    return half


@case("content")
def outputs_are_what_they_were(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, at=0)
    y = half.op("relu.out", x, half.tensor(4, at=64))
    z = half.op("exp.out", x, half.tensor(4, at=_at(variant, 128, 16, 64)))
    half.outputs = [y, z]
    return half


@case("content")
def operands_keep_their_places(variant: Variant) -> Half:
    half = Half()
    x, y = half.input(4, at=0), half.input(4, at=64)
    pair = (y, x) if variant == "bad" else (x, y)
    half.outputs = [half.op("sub.out", *pair, half.integer(1), half.tensor(4, at=_at(variant, 128, 32, 32)))]
    return half


@case("number")
def attributes_stay(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, at=0)
    alpha = half.integer(2 if variant == "bad" else 1)
    half.outputs = [half.op("add.out", x, x, alpha, half.tensor(4, at=64))]
    return half


@case("content")
def operators_stay(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, at=0)
    half.outputs = [half.op("exp.out" if variant == "bad" else "relu.out", x, half.tensor(4, at=64))]
    return half


# In place


@case("overlap")
def only_some_kernels_work_in_place(variant: Variant) -> Half:
    half = Half()
    x, y = half.input(4, 4, at=0), half.input(4, 4, at=64)
    product = half.op("mul.out", x, y, half.tensor(4, 4, at=_at(variant, 128, 0, 0)))
    half.outputs = [half.op("mm.out", product, y, half.tensor(4, 4, at=_at(variant, 192, 128, 0)))]
    return half


@case("overlap")
def a_donor_is_not_broadcast(variant: Variant) -> Half:
    """Write over a second operand that has size and address of the output in the good variant only."""
    half = Half()
    x, y = half.input(1, 4, at=0), half.input(4, 4, at=64)
    half.outputs = [half.op("mul.out", x, y, half.tensor(4, 4, at=_at(variant, 256, 64, 0)))]
    return half


@case("overlap")
def a_donor_lies_exactly_there(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, at=0)
    half.outputs = [half.op("relu.out", x, half.tensor(4, at=_at(variant, 64, 0, 4)))]
    return half


@case("overlap")
def each_operand_may_be_the_donor(variant: Variant) -> Half:
    """Write over a tensor that is an operand twice; another tensor in the same bytes is not allowed."""
    half = Half()
    x = half.input(4, at=0)
    y = half.tensor(4, at=_at(variant, 64, 64, 8))
    half.op("exp.out", x, y)
    half.outputs = [half.op("mul.out", y, y, half.tensor(4, at=_at(variant, 128, 64, 16)))]
    return half


@case("overlap")
def only_the_data_operand_of_a_norm(variant: Variant) -> Half:
    half = Half()
    x, weight, bias = (half.input(4, at=at) for at in (0, 64, 128))
    outs = [half.tensor(4, at=_at(variant, 192, 0, 64)), half.tensor(1, at=256), half.tensor(1, at=320)]
    eps = half.value(m.Double(1e-5))
    shape = half.integers(4)
    half.kernel("aten::native_layer_norm.out", x, shape, weight, bias, eps, *outs, half.list(*outs))
    half.outputs = outs[:1]
    return half


@case("overlap")
def outputs_do_not_overlap(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, 4, at=0)
    outs = [half.tensor(4, 1, at=128), half.tensor(4, 1, at=_at(variant, 192, 144, 136))]
    dim, keep = half.integer(1), half.truth(True)
    half.kernel("aten::max.dim_max", x, dim, keep, *outs, half.list(*outs))
    half.outputs = outs[:1]
    return half


@case("overlap")
def operands_in_lists_are_no_donors(variant: Variant) -> Half:
    half = Half()
    x, y = half.input(2, 4, at=0), half.input(2, 4, at=64)
    half.outputs = [
        half.op("cat.out", half.list(x, y), half.integer(1), half.tensor(2, 8, at=_at(variant, 128, 128, 0)))
    ]
    return half


@case("overlap")
def a_dynamic_donor_has_the_same_sizes(variant: Variant) -> Half:
    """Write over an operand of a sum, which may be broadcast; the operand of a unary function is not."""
    half = Half()
    x, y = half.input(4, 8, at=0, dynamic=True), half.input(4, 8, at=128, dynamic=True)
    first = half.op("relu.out", x, half.tensor(4, 8, at=_at(variant, 256, 0, 256), dynamic=True))
    half.outputs = [half.op("mul.out", first, y, half.tensor(4, 8, at=_at(variant, 512, 512, 256), dynamic=True))]
    return half


# Copies that are removed


@case("overlap")
def tensors_of_two_unknown_sizes_have_the_same_sizes(variant: Variant) -> Half:
    """Two instructions broadcast the same two unknown sizes; the third dimension may be another one."""
    half = Half()
    one = half.integer(1)
    x, y = half.input(2, 4, at=0, dynamic=True), half.input(2, 4, at=64, dynamic=True)
    total = half.op("add.out", x, y, one, half.tensor(2, 4, at=128, dynamic=True))
    product = half.op("mul.out", x, y, half.tensor(2, 4, at=192, dynamic=True))
    out = half.tensor(2, 4, at=_at(variant, 256, 128, 256), dynamic=True)
    ratio = half.op("div.out", total, product, out)
    # The first input may be broadcast.
    last = half.tensor(2, 4, at=_at(variant, 320, 320, 0), dynamic=True)
    half.outputs = [ratio, half.op("mul.out", x, y, last)]
    return half


@case("content", gone=(1,))
def a_view_is_an_alias(variant: Variant) -> Half:
    """Replace a view by an alias; the bad variant is an alias of the other tensor."""
    half = Half()
    x = half.input(4, 4, at=0)
    y = half.op("exp.out", x, half.tensor(4, 4, at=64))
    view = half.tensor(16, at=_at(variant, 128, 64, 0))
    if variant == "before":
        half.view_copy(y, view)
    half.outputs = [half.op("relu.out", view, half.tensor(16, at=192))]
    return half


@case("content", gone=(0,))
def a_view_is_read_before_its_source_is_written_again(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, at=0)
    view = half.tensor(2, 2, at=_at(variant, 64, 0, 0))
    if variant == "before":
        half.view_copy(x, view)
    y = half.op("relu.out", view, half.tensor(2, 2, at=128))
    if variant == "bad":
        half.calls.insert(0, half.calls.pop())
    half.kernel("aten::zero_", x, x)
    if variant == "bad":
        half.calls.insert(0, half.calls.pop())
    half.outputs = [y]
    return half


@case("content", gone=(1,))
def a_slice_is_a_part(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, 4, at=0)
    y = half.op("exp.out", x, half.tensor(4, 4, at=64))
    part = half.tensor(2, 4, at=_at(variant, 128, 80, 96))
    if variant == "before":
        half.op("slice_copy.Tensor_out", y, *(half.integer(n) for n in (0, 1, 3, 1)), part)
    half.outputs = [half.op("relu.out", part, half.tensor(2, 4, at=256))]
    return half


@case("content", gone=(1,))
def an_index_is_a_row(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, 4, at=0)
    y = half.op("exp.out", x, half.tensor(4, 4, at=64))
    row = half.tensor(4, at=_at(variant, 128, 112, 64))
    if variant == "before":
        half.op("select_copy.int_out", y, half.integer(0), half.integer(-1), row)
    half.outputs = [half.op("relu.out", row, half.tensor(4, at=256))]
    return half


@case("content", gone=(2,))
def parts_are_made_where_the_whole_is(variant: Variant) -> Half:
    half = Half()
    x = half.input(2, 4, at=0)
    parts = [
        half.op("exp.out", x, half.tensor(2, 4, at=_at(variant, 64, 192, 224))),
        half.op("relu.out", x, half.tensor(2, 4, at=_at(variant, 128, 224, 192))),
    ]
    whole = half.tensor(4, 4, at=192)
    if variant == "before":
        half.op("cat.out", half.list(*parts), half.integer(0), whole)
    half.outputs = [half.op("neg.out", whole, half.tensor(4, 4, at=256))]
    return half


@case("content", gone=(2,))
def a_whole_is_not_written_over_its_parts(variant: Variant) -> Half:
    """Read a part once more after the whole was changed in place."""
    half = Half()
    x = half.input(2, 4, at=0)
    parts = [
        half.op("exp.out", x, half.tensor(2, 4, at=_at(variant, 64, 192, 192))),
        half.op("relu.out", x, half.tensor(2, 4, at=_at(variant, 128, 224, 224))),
    ]
    whole = half.tensor(4, 4, at=192)
    if variant == "before":
        half.op("cat.out", half.list(*parts), half.integer(0), whole)
    y = half.op("neg.out", whole, half.tensor(4, 4, at=_at(variant, 256, 256, 192)))
    half.outputs = [half.op("sin.out", parts[1], half.tensor(2, 4, at=384)), y]
    return half


@case("size", new=())
def the_last_part_may_be_dynamic(variant: Variant) -> Half:
    """Replace ``cat`` by ``empty``, which sets the sizes of the whole; the bad variant sets those of a part."""
    half = Half()
    x = half.input(1, 4, at=0)
    y = half.input(1, 4, at=64, dynamic=True)
    first = half.op("exp.out", x, half.tensor(1, 4, at=_at(variant, 128, 256, 256)))
    last = half.op("exp.out", y, half.tensor(1, 4, at=_at(variant, 192, 272, 272), dynamic=True))
    whole = half.tensor(1, 8, at=256, dynamic=True)
    rows, columns, total = half.integer(0), half.integer(0), half.integer(0)
    dims = [half.integer(0), half.integer(1)]
    half.kernel("aten::sym_size.int", last, dims[0], rows)
    half.kernel("aten::sym_size.int", last, dims[1], columns)
    half.kernel("executorch_prim::add.Scalar", columns, half.integer(4), total)
    if variant == "before":
        half.op("cat.out", half.list(first, last), half.integer(-1), whole)
    else:
        sizes = half.value(m.IntList((half.integer(1), total if variant == "good" else columns)))
        half.op("empty.out", sizes, half.value(m.Null()), whole)
    half.outputs = [half.op("neg.out", whole, half.tensor(1, 8, at=512, dynamic=True))]
    return half


@case("state", gone=(1,))
def a_write_back_is_done_in_place(variant: Variant) -> Half:
    half = Half()
    state = half.tensor(8, at=0, name="cache")
    x, index = half.input(1, at=64), half.input(1, at=128, dtype=LONG)
    out = half.tensor(8, at=_at(variant, 192, 0, 192))
    half.op("index_put.out", state, half.value(m.OptionalTensorList((index,))), x, half.truth(False), out)
    if variant == "before":
        half.copy(state, out)
    half.outputs = [half.op("neg.out", state, half.tensor(8, at=256))] if variant != "bad" else []
    if variant == "bad":
        half.outputs = [half.op("neg.out", out, half.tensor(8, at=256))]
    return half


@case("content", gone=(0,))
def a_constant_is_moved_about_ahead_of_time(variant: Variant) -> Half:
    """Fold constant 1 into constant 5; only the good data has the right bytes."""
    half = Half()
    x = half.input(4, 4, at=64)
    weight = half.tensor(4, 4, at=0) if variant == "before" else half.tensor(4, 4, data=5)
    if variant == "before":
        half.op("permute_copy.out", half.tensor(4, 4, data=1), half.integers(1, 0), weight)
    half.outputs = [half.op("mm.out", x, weight, half.tensor(4, 4, at=128))]
    return half


@case("content", gone=(0,))
def a_part_of_a_constant_is_one(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, at=64)
    part = half.tensor(4, at=0) if variant == "before" else half.tensor(4, data=2 if variant == "good" else 3)
    if variant == "before":
        whole = half.tensor(32, data=1)
        half.op("slice_copy.Tensor_out", whole, *(half.integer(n) for n in (0, 16, 20, 1)), part)
    half.outputs = [half.op("mul.out", x, part, half.tensor(4, at=128))]
    return half


@case("content", gone=(0,))
def a_copy_to_another_type_is_none(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, at=0, dtype=BYTE)
    same = half.tensor(4, at=_at(variant, 64, 0, 0), dtype=BYTE)
    if variant == "before":
        half.kernel("dim_order_ops::_to_dim_order_copy.out", x, half.truth(False), half.integers(0), same, same)
    other = half.input(4, at=32, dtype=BYTE)
    half.outputs = [half.op("mul.out", same if variant != "bad" else other, same, half.tensor(4, at=128, dtype=BYTE))]
    return half


# Dynamic sizes


@case("size", gone=())
def a_view_of_a_dynamic_tensor_sets_the_sizes(variant: Variant) -> Half:
    """Alias a dynamic tensor. A plain alias, without ``et_view``, keeps the sizes of the previous call."""
    half = Half()
    x = half.input(4, 8, at=0, dynamic=True)
    y = half.op("exp.out", x, half.tensor(4, 8, at=128, dynamic=True))
    view = half.tensor(32, at=_at(variant, 256, 128, 128), dynamic=True)
    if variant == "before":
        half.op("view_copy.out", y, half.integers(-1), view)
    elif variant == "good":
        half.kernel("executorch_prim::et_view.default", y, half.integers(-1), view)
    else:
        half.kernel("executorch_prim::et_view.default", y, half.integers(-1), half.tensor(32, dynamic=True))
    half.outputs = [half.op("relu.out", view, half.tensor(32, at=512, dynamic=True))]
    return half


@case("content")
def what_follows_a_dynamic_tensor_may_be_old(variant: Variant) -> Half:
    """Write a dynamic tensor over a static one, which then holds old bytes past its end."""
    half = Half()
    x, y = half.input(8, at=0), half.input(8, at=64, dynamic=True)
    state = half.tensor(8, at=_at(variant, 128, 128, 192))
    half.op("exp.out", x, state)
    other = half.op("exp.out", y, half.tensor(8, at=_at(variant, 192, 256, 192), dynamic=True))
    half.outputs = [half.op("neg.out", state, half.tensor(8, at=512)), other]
    return half


# State


@case("state")
def temporaries_do_not_lie_over_state(variant: Variant) -> Half:
    half = Half()
    state = half.tensor(4, at=0)
    x = half.input(4, at=64)
    y = half.op("mul.out", state, x, half.tensor(4, at=128))
    half.copy(state, y)
    half.outputs = [half.op("relu.out", y, half.tensor(4, at=_at(variant, 192, 64, 0)))]
    return half


@case("content")
def state_is_where_it_was_left(variant: Variant) -> Half:
    """Update state; the bad variant writes it elsewhere and reads the old place in the next call."""
    half = Half()
    state = half.tensor(4, at=0)
    x = half.input(4, at=64)
    y = half.op("mul.out", state, x, half.tensor(4, at=128))
    target = state if variant != "bad" else half.tensor(4, at=256)
    half.copy(target, y)
    half.outputs = [half.op("relu.out", target if variant == "bad" else state, half.tensor(4, at=192))]
    if variant == "bad":
        half.outputs = [half.op("relu.out", state, half.tensor(4, at=192))]
        half.calls[-2:] = half.calls[-1:]
    return half


@case("state")
def initial_values_stay(variant: Variant) -> Half:
    half = Half()
    state = half.tensor(4, at=_at(variant, 0, 16, 16), data=_at(variant, 1, 1, 2), name="counter")
    x = half.input(4, at=64)
    half.outputs = [half.op("mul.out", state, x, half.tensor(4, at=128))]
    return half


# Control flow


def _condition(variant: Variant, *, first: int, second: int, swapped: bool = False) -> Half:
    """Build two branches whose results become one value."""
    half = Half()
    p, x = half.input(at=512, dtype=m.ScalarType.BOOL), half.input(4, at=0)
    merged = half.tensor(4)
    other = half.jump_if_false(p)
    a = half.op("exp.out", x, half.tensor(4, at=first))
    half.move(a, merged)
    end = half.jump()
    half.land(other)
    b = half.op("relu.out", x, half.tensor(4, at=second))
    half.move(a if swapped else b, merged)
    half.land(end)
    half.outputs = [half.op("neg.out", merged, half.tensor(4, at=256)), half.op("sin.out", x, half.tensor(4, at=320))]
    return half


@case("content")
def branches_may_use_the_same_memory(variant: Variant) -> Half:
    """Reuse memory between branches; x is read after them."""
    return _condition(variant, first=64, second=_at(variant, 128, 64, 0))


@case("content")
def a_merge_takes_each_branch_by_its_own(variant: Variant) -> Half:
    return _condition(variant, first=64, second=_at(variant, 128, 64, 128), swapped=variant == "bad")


@case("content")
def a_later_branch_leaves_the_result_of_an_earlier_one(variant: Variant) -> Half:
    """Run two conditions in a row, of which ExecuTorch 1.4.1 lets the later one overwrite the earlier result."""
    half = Half()
    p, x = half.input(at=512, dtype=m.ScalarType.BOOL), half.input(4, at=0)
    results = []
    for number, places in enumerate(((64, 128), (_at(variant, 192, 192, 64), _at(variant, 256, 192, 192)))):
        merged = half.tensor(4)
        other = half.jump_if_false(p)
        half.move(half.op(("exp.out", "cos.out")[number], x, half.tensor(4, at=places[0])), merged)
        end = half.jump()
        half.land(other)
        half.move(half.op(("relu.out", "sin.out")[number], x, half.tensor(4, at=places[1])), merged)
        half.land(end)
        results.append(merged)
    half.outputs = [half.op("sub.out", *results, half.integer(1), half.tensor(4, at=384))]
    return half


@case("content")
def a_view_at_a_merge_follows_the_branch(variant: Variant) -> Half:
    """View a result of branches. ``et_view`` follows the branch; a fixed address is in one branch only."""
    half = Half()
    p, x = half.input(at=512, dtype=m.ScalarType.BOOL), half.input(4, at=0)
    merged = half.tensor(4)
    other = half.jump_if_false(p)
    half.move(half.op("exp.out", x, half.tensor(4, at=64)), merged)
    end = half.jump()
    half.land(other)
    half.move(half.op("relu.out", x, half.tensor(4, at=128)), merged)
    half.land(end)
    view = half.tensor(2, 2, at=_at(variant, 192, 192, 64))
    if variant == "before":
        half.view_copy(merged, view)
    elif variant == "good":
        view = half.view(merged, half.tensor(2, 2))
    else:
        half.view(merged, half.tensor(2, 2))
    half.outputs = [half.op("neg.out", view, half.tensor(2, 2, at=256))]
    return half


def _loop(variant: Variant, *, temporary: int) -> Half:
    """Build a loop that multiplies one tensor and reads another one from outside, in each iteration."""
    half = Half()
    x, outside = half.input(4, at=0), half.input(4, at=64)
    carry = half.tensor(4, at=128)
    half.copy(carry, x)
    counter, one, limit, done = half.integer(0), half.integer(1), half.integer(3), half.truth(False)
    start = len(half.calls)
    y = half.op("mul.out", carry, outside, half.tensor(4, at=temporary))
    half.copy(carry, y)
    half.kernel("executorch_prim::add.Scalar", counter, one, counter)
    half.kernel("executorch_prim::eq.Scalar", counter, limit, done)
    half.jump_if_false(done, start)
    half.kernel("executorch_prim::sub.Scalar", counter, limit, counter)
    half.outputs = [half.op("neg.out", carry, half.tensor(4, at=256))]
    return half


@case("content")
def what_a_loop_reads_from_outside_stays(variant: Variant) -> Half:
    """Write in a loop over x, which is dead there; the next iteration reads the other input."""
    return _loop(variant, temporary=_at(variant, 192, 0, 64))


def _rows(variant: Variant, *, rows: int, temporary: int, above: int | None = None) -> Half:
    """Build a loop that appends rows, as ``map`` is emitted, with a temporary.

    With ``above``, an address, the loop begins at the second row of what is there.
    """
    half = Half()
    x = half.input(4, at=0)
    together = half.tensor(3, 4, at=rows, dynamic=True)
    if above is not None:
        half.op("repeat.out", x, half.integers(3, 1), half.tensor(3, 4, at=above))
    counter, one, limit, done = half.integer(above is not None), half.integer(1), half.integer(3), half.truth(False)
    start = len(half.calls)
    row = half.op("neg.out", half.op("exp.out", x, half.tensor(4, at=temporary)), half.tensor(4, at=320))
    half.kernel("executorch_prim::et_copy_index.tensor", together, row, counter)
    half.kernel("executorch_prim::add.Scalar", counter, one, counter)
    half.kernel("executorch_prim::eq.Scalar", counter, limit, done)
    half.jump_if_false(done, start)
    half.kernel("executorch_prim::sub.Scalar", counter, limit, counter)
    half.outputs = [half.op("neg.out", together, half.tensor(3, 4, at=512, dynamic=True))]
    return half


@case("content")
def rows_that_are_put_together_stay(variant: Variant) -> Half:
    return _rows(variant, rows=64, temporary=_at(variant, 256, 128, 64))


@case("content")
def rows_below_the_first_one_of_a_loop_stay(variant: Variant) -> Half:
    return _rows(variant, rows=64, temporary=_at(variant, 256, 448, 256), above=_at(variant, 64, 64, 384))


@case("control flow")
def jumps_lead_where_they_led(variant: Variant) -> Half:
    half = _condition(variant, first=64, second=_at(variant, 128, 64, 128))
    if variant == "bad":
        jump = half.calls[0]
        assert isinstance(jump, m.JumpFalseCall)
        half.calls[0] = m.JumpFalseCall(jump.cond_value_index, jump.destination_instruction - 1)
    return half


@case("content")
def conditions_are_the_same(variant: Variant) -> Half:
    half = Half()
    p, q = (half.input(at=at, dtype=m.ScalarType.BOOL) for at in (512, 516))
    x = half.input(4, at=0)
    y = half.tensor(4, at=64)
    half.op("exp.out", x, y)
    jump = half.jump_if_false(q if variant == "bad" else p)
    half.op("relu.out", x, y)
    half.land(jump)
    half.outputs = [half.op("neg.out", y, half.tensor(4, at=_at(variant, 128, 64, 128)))]
    return half


# Whole instructions


@case("content")
def delegates_get_their_inputs(variant: Variant) -> Half:
    half = Half()
    x, y = half.input(4, at=0), half.input(4, at=64)
    out = half.tensor(4, at=128)
    half.delegate([y, x] if variant == "bad" else [x, y], [out])
    half.outputs = [half.op("neg.out", out, half.tensor(4, at=_at(variant, 256, 0, 256)))]
    return half


@case("overlap")
def delegates_do_not_work_in_place(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, at=0)
    out = half.tensor(4, at=_at(variant, 128, 64, 0))
    half.delegate([x], [out])
    half.outputs = [out]
    return half


@case("instruction")
def delegates_stay(variant: Variant) -> Half:
    half = Half()
    x, out = half.input(4, at=0), half.tensor(4, at=_at(variant, 128, 64, 64))
    half.delegate([x], [out], data=1 if variant == "bad" else 0)
    half.outputs = [out]
    return half


@case("content")
def unknown_operators_may_change_what_they_get(variant: Variant) -> Half:
    """Its first argument is not an output, and may have been changed."""
    half = Half()
    x, y = half.input(4, at=0), half.input(4, at=64)
    before = half.op("exp.out", x, half.tensor(4, at=128))
    copy = half.op("alias_copy.out", before, half.tensor(4, at=_at(variant, 192, 192, 128)))
    half.kernel("my::update", before, y)
    half.outputs = [half.op("neg.out", copy, half.tensor(4, at=256)), before]
    return half


@case("caller's memory")
def an_output_is_where_the_caller_looks_for_it(variant: Variant) -> Half:
    half = Half()
    x = half.input(4, at=0)
    y = half.op("exp.out", x, half.tensor(4, at=64))
    out = half.tensor(4)
    if variant == "bad":
        half.kernel("executorch_prim::et_view.default", y, half.integers(4), out)
    else:
        half.op("alias_copy.out", y, out)
    half.outputs = [out]
    return half


@case("content")
def an_input_is_written_where_the_caller_sees_it(variant: Variant) -> Half:
    half = Half()
    x = half.input(4)
    y = half.op("exp.out", x, half.tensor(4, at=0))
    half.op("neg.out", y, half.tensor(4, at=64) if variant == "bad" else x)
    half.outputs = [y]
    return half
