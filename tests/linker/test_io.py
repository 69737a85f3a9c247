"""B8: inputs and outputs whose memory the caller brings, and those for which it cannot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.errors import ExitCode, LinkError
from etdev.linker import CallerOwned, Linked, LinkOptions, link
from etdev.linker.io import CallerOwnedError
from etdev.program import model as m
from linker.oracle import Call, Machine
from linker.programs import Method, program


def owned(inputs: tuple[int, ...] = (), outputs: tuple[int, ...] = ()) -> CallerOwned:
    return CallerOwned(frozenset(inputs), frozenset(outputs))


def linked(method: Method, caller: CallerOwned) -> Linked:
    """Link a method, and check that it computes the same."""
    found = program(method)
    done = link(found.program, LinkOptions(caller={method.name: caller}), found.sidecar)
    calls = [Call(seed=seed) for seed in range(3)]
    assert Machine(done.program).run(*calls) == Machine(found.program).run(*calls)
    return done


def planned(done: Linked, values: tuple[int, ...]) -> list[bool]:
    plan = done.program.execution_plan[0]
    return [plan.values[index].allocation_info is not None for index in values]


def add() -> Method:
    """Build two inputs and two outputs."""
    method = Method()
    one, two = method.input(32), method.input(32)
    total = method.op(one, two)
    method.outputs = [total, method.op(total)]
    return method


@pytest.mark.parametrize(
    ("caller", "inputs", "outputs", "size"),
    [
        (owned(), [True, True], [True, True], 96),
        (owned(inputs=(1,)), [True, False], [True, True], 64),
        (owned(outputs=(0,)), [True, True], [False, True], 64),
        (owned((0, 1), (0, 1)), [False, False], [False, False], 0),
    ],
    ids=["none", "an input", "an output", "all"],
)
def test_what_the_caller_owns_is_not_planned(
    caller: CallerOwned, inputs: list[bool], outputs: list[bool], size: int
) -> None:
    done = linked(add(), caller)
    plan = done.program.execution_plan[0]
    assert planned(done, plan.inputs) == inputs
    assert planned(done, plan.outputs) == outputs
    assert sum(plan.non_const_buffer_sizes) == size


def test_only_the_method_that_is_named_is_changed() -> None:
    one, two = add(), add()
    two.name = "other"
    found = program(one, two)
    done = link(found.program, LinkOptions(caller={"other": owned(inputs=(0,))}), found.sidecar)
    first, second = done.program.execution_plan
    assert isinstance(first.values[first.inputs[0]], m.Tensor)
    assert first.values[first.inputs[0]].allocation_info is not None
    assert second.values[second.inputs[0]].allocation_info is None


def test_what_has_no_planned_memory_is_the_callers_already() -> None:
    method = Method()
    method.outputs = [method.op(method.input(32, planned=False))]
    assert planned(linked(method, owned(inputs=(0,))), (0,)) == [False]


def test_a_view_of_what_the_caller_owns_is_set_at_run_time() -> None:
    method = Method()
    method.outputs = [method.op(method.view(method.input(32)))]
    assert [item.action for item in linked(method, owned(inputs=(0,))).methods[0].elisions] == ["view"]


def test_a_view_into_what_the_caller_owns_stays() -> None:
    method = Method()
    method.outputs = [method.view(method.op(method.input(32)))]
    (found,) = linked(method, owned(outputs=(0,))).methods[0].elisions
    assert (found.action, found.reason) == ("kept", "the memory of its output is not planned")


def a_number(method: Method) -> CallerOwned:
    method.inputs.append(method.value(m.Int(1)))
    return owned(inputs=(0,))


def a_constant(method: Method) -> CallerOwned:
    method.outputs = [method.constant(32)]
    return owned(outputs=(0,))


def an_input_given_back(method: Method) -> CallerOwned:
    method.outputs = [method.input(32)]
    return owned(inputs=(0,))


def an_output_given_twice(method: Method) -> CallerOwned:
    method.outputs = [method.op(method.input(32))] * 2
    return owned(outputs=(1,))


def a_merged_value(method: Method) -> CallerOwned:
    data = method.input(32)
    method.outputs = method.cond(data, lambda: [method.op(data)], lambda: [method.op(data)])
    return owned(outputs=(0,))


def state(method: Method) -> CallerOwned:
    method.input(32)
    method.outputs = [method.buffer(32, "cache")]
    return owned(outputs=(0,))


def what_nobody_computes(method: Method) -> CallerOwned:
    """Add an output that no instruction computes: it is what the call before left, hence state."""
    method.outputs = [method.tensor(32)]
    return owned(outputs=(0,))


def an_alias(method: Method) -> CallerOwned:
    one = method.op(method.input(32))
    method.outputs = [method.alias(one, 16)]
    return owned(outputs=(0,))


REFUSED: dict[str, tuple[Callable[[Method], CallerOwned], str, str]] = {
    "a number": (a_number, "input 0", "it is not a tensor but a value of type Int"),
    "a constant": (a_constant, "output 0", "it is a constant of the program"),
    "an input that is given back": (
        an_input_given_back,
        "input 0",
        "it occurs more than once among the inputs and outputs",
    ),
    "an output twice": (
        an_output_given_twice,
        "output 1",
        "it occurs more than once among the inputs and outputs",
    ),
    "a merged value": (a_merged_value, "output 0", "it may be one of several tensors, depending on the branch taken"),
    "state": (state, "output 0", "it is state, which is kept between calls"),
    "what nobody computes": (what_nobody_computes, "output 0", "it is state, which is kept between calls"),
    "an alias": (an_alias, "output 0", "it shares its bytes with other values (1, 2)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_the_callers_is_refused(name: str) -> None:
    method = Method("decode")
    build, where, reason = REFUSED[name]
    caller = build(method)
    found = program(method)
    with pytest.raises(CallerOwnedError) as refused:
        link(found.program, LinkOptions(caller={"decode": caller}), found.sidecar)
    assert refused.value.message == f"{where} of method 'decode' cannot be in the caller's memory: {reason}"
    assert refused.value.hint == f'set this {where.partition(" ")[0]} to "host"'
    assert refused.value.method == "decode"
    assert refused.value.exit_code is ExitCode.BUILD_FAILED


@pytest.mark.parametrize(
    ("caller", "message", "hint"),
    [
        (owned(inputs=(2,)), "there is no input 2 of method 'forward'", "choose one of the method's 2 inputs"),
        (owned(outputs=(0, 5)), "there is no output 5 of method 'forward'", "choose one of the method's 2 outputs"),
        (owned(inputs=(-1,)), "there is no input -1 of method 'forward'", "choose one of the method's 2 inputs"),
    ],
    ids=["input", "output", "below zero"],
)
def test_positions_that_there_are_not_are_refused(caller: CallerOwned, message: str, hint: str) -> None:
    found = program(add())
    with pytest.raises(LinkError) as refused:
        link(found.program, LinkOptions(caller={"forward": caller}), found.sidecar)
    assert (refused.value.message, refused.value.hint) == (message, hint)
