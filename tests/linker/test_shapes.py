"""Tensors with the same sizes at run time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etdev.linker.shapes import Shapes
from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from linker.programs import Method


def tensor(method: Method, *sizes: int, dynamic: bool = True) -> int:
    index = method.tensor(64, dynamic=dynamic)
    order = tuple(range(len(sizes)))
    method.values[index] = replace(method.at(index), sizes=sizes, dim_order=order)
    return index


def given(method: Method, *sizes: int, dynamic: bool = True) -> int:
    """Add an input."""
    method.inputs.append(tensor(method, *sizes, dynamic=dynamic))
    return method.inputs[-1]


def computed(method: Method, name: str, *args: int, sizes: tuple[int, ...]) -> int:
    out = tensor(method, *sizes)
    method.kernel(name, *args, out, out)
    return out


def shapes(method: Method) -> Shapes:
    plan = method.plan()
    return Shapes(plan, flow_graph(plan))


def size_of(method: Method, of: int, dim: int) -> int:
    """Add ``sym_size``."""
    out = method.value(m.Int(0))
    method.kernel("aten::sym_size.int", of, method.value(m.Int(dim)), out)
    return out


def test_static_tensors() -> None:
    method = Method()
    one, other, third = (given(method, *sizes, dynamic=False) for sizes in ((2, 3), (2, 3), (3, 2)))
    found = shapes(method)
    assert found.equal(one, other)
    assert not found.equal(one, third)


def test_two_inputs_of_equal_bounds() -> None:
    method = Method()
    one, other = given(method, 8, 4), given(method, 8, 4)
    assert not shapes(method).equal(one, other)


@pytest.mark.parametrize(
    "name",
    ["aten::relu.out", "aten::add.Scalar_out", "aten::_softmax.out", "aten::native_layer_norm.out", "aten::clone.out"],
)
def test_what_keeps_the_shape_of_its_input(name: str) -> None:
    method = Method()
    x = given(method, 8, 4)
    assert shapes_equal(method, x, computed(method, name, x, sizes=(8, 4)))


def shapes_equal(method: Method, one: int, other: int) -> bool:
    return shapes(method).equal(one, other)


def test_a_sum_of_what_has_one_shape() -> None:
    method = Method()
    x = given(method, 8, 4)
    y = computed(method, "aten::relu.out", x, sizes=(8, 4))
    assert shapes_equal(method, x, computed(method, "aten::add.out", x, y, sizes=(8, 4)))


def test_a_bias_does_not_change_the_shape_if_its_size_is_that_of_the_last_dimension() -> None:
    method = Method()
    x = computed(
        method,
        "aten::linear.out",
        given(method, 8, 4),
        given(method, 16, 4, dynamic=False),
        given(method, 16, dynamic=False),
        sizes=(8, 16),
    )
    bias = given(method, 16, dynamic=False)
    assert shapes_equal(method, x, computed(method, "aten::add.out", x, bias, sizes=(8, 16)))


def test_an_input_whose_last_size_may_be_1() -> None:
    """Then the sum has 16 columns, and the input one."""
    method = Method()
    x, bias = given(method, 8, 16), given(method, 16, dynamic=False)
    assert not shapes_equal(method, x, computed(method, "aten::add.out", x, bias, sizes=(8, 16)))


def test_sizes_that_are_1_in_all_operands() -> None:
    """A size 1 that no operand enlarges stays 1."""
    method = Method()
    x = computed(method, "aten::linear.out", given(method, 8, 4), given(method, 1, 4, dynamic=False), sizes=(8, 1))
    total = computed(method, "aten::add.out", x, given(method, 1, dynamic=False), sizes=(8, 1))
    assert shapes_equal(method, x, total)
    assert shapes(method).of(total)[1] == 1


def test_what_may_be_broadcast() -> None:
    method = Method()
    x, y = given(method, 8, 4), given(method, 8, 4)
    total = computed(method, "aten::add.out", x, y, sizes=(8, 4))
    assert not shapes_equal(method, x, total)
    assert not shapes_equal(method, y, total)


def test_matrix_products() -> None:
    method = Method()
    x, weight = given(method, 8, 4), given(method, 4, 4, dynamic=False)
    first = computed(method, "aten::mm.out", x, weight, sizes=(8, 4))
    second = computed(method, "aten::addmm.out", given(method, 4, dynamic=False), first, weight, sizes=(8, 4))
    assert shapes_equal(method, first, second)
    assert not shapes(method).equal(x, first)


def test_a_view_by_sizes_taken_from_the_input() -> None:
    method = Method()
    x = given(method, 8, 4)
    rows = size_of(method, x, 0)
    four = method.value(m.Int(4))
    asked = method.value(m.IntList((rows, four)))
    one = computed(method, "aten::view_copy.out", x, asked, sizes=(8, 4))
    other = computed(method, "aten::relu.out", one, sizes=(8, 4))
    found = shapes(method)
    assert found.equal(one, other)
    assert found.of(one) == (found.of(x)[0], 4)


def test_a_view_that_leaves_a_size_to_be_found() -> None:
    method = Method()
    x = given(method, 8, 4)
    y = computed(method, "aten::linear.out", x, given(method, 16, 4, dynamic=False), sizes=(8, 16))
    asked = method.numbers(-1, 16)
    viewed = computed(method, "aten::view_copy.out", y, asked, sizes=(8, 16))
    assert shapes_equal(method, y, viewed)


def test_a_view_whose_sizes_do_not_say_which_is_left() -> None:
    method = Method()
    x = given(method, 8, 16)
    viewed = computed(method, "aten::view_copy.out", x, method.numbers(-1, 4), sizes=(32, 4))
    assert not shapes_equal(method, x, viewed)


def test_dimensions_in_another_order() -> None:
    method = Method()
    x = given(method, 8, 8)
    turned = computed(method, "aten::permute_copy.out", x, method.numbers(1, 0), sizes=(8, 8))
    back = computed(method, "aten::permute_copy.out", turned, method.numbers(-1, 0), sizes=(8, 8))
    found = shapes(method)
    assert found.equal(x, back)
    assert not found.equal(x, turned)


def test_an_operator_that_nobody_knows() -> None:
    method = Method()
    x = given(method, 8, 4)
    assert not shapes_equal(method, x, computed(method, "my::op.out", x, sizes=(8, 4)))


def test_a_tensor_that_is_written_twice_has_no_one_size() -> None:
    method = Method()
    x, y = given(method, 8, 4), given(method, 8, 4)
    out = tensor(method, 8, 4)
    for value in (x, y):
        method.kernel("aten::relu.out", value, out, out)
    assert not shapes_equal(method, x, out)


def test_nothing_is_known_of_loops() -> None:
    method = Method()
    x = given(method, 8, 4)
    with method.loop(2):
        out = computed(method, "aten::relu.out", x, sizes=(8, 4))
    assert not shapes_equal(method, x, out)
