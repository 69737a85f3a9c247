"""Number of inputs of a delegate call, as far as a file without a sidecar determines it."""

from __future__ import annotations

import pytest

from etdev.program import model as m
from etdev.program.delegates import delegate_inputs, unsplit_call
from linker.programs import Method


class Foreign(Method):
    """Method with calls of a delegate whose arguments are given one by one."""

    def call(self, *args: int) -> int:
        """Add the call and return its position."""
        self.calls.append(m.DelegateCall(0, args))
        return len(self.calls) - 1


def found(method: Method) -> dict[int, int]:
    return dict(delegate_inputs(method.plan()))


def test_outputs_are_new_and_have_numbers_above_all_others() -> None:
    method = Foreign()
    one, two = method.input(32), method.input(32)
    call = method.call(one, two, method.tensor(32), method.tensor(16))
    assert found(method) == {call: 2}


def test_every_call_is_counted_by_itself() -> None:
    method = Foreign()
    first = method.delegate(method.input(32), nbytes=(32, 16))
    second = method.delegate(*first)
    method.delegate(method.op(*second), second[0])
    assert found(method) == {0: 1, 1: 2, 3: 2}
    assert found(method) == method.delegate_inputs


def test_an_input_may_come_several_times() -> None:
    method = Foreign()
    one = method.input(32)
    call = method.call(one, one, method.tensor(32))
    assert found(method) == {call: 2}


def test_numbers_and_constants_are_inputs() -> None:
    """A constant is new at the call, but nothing can write it."""
    method = Foreign()
    one = method.input(32)
    weight, number = method.constant(32), method.value(m.Int(1))
    call = method.call(one, weight, number, method.tensor(32))
    assert found(method) == {call: 3}


def test_state_that_is_new_at_the_call_has_a_number_below_the_inputs() -> None:
    method = Foreign()
    state, one = method.tensor(32), method.input(32)
    call = method.call(state, one, method.tensor(32))
    assert found(method) == {call: 2}


def test_state_at_the_end_of_the_arguments_is_no_output() -> None:
    """Every call has an output, so a call whose last argument cannot be one tells nothing."""
    method = Foreign()
    state, one = method.tensor(32), method.input(32)
    method.call(one, state)
    assert found(method) == {}


def test_a_call_without_outputs_says_nothing() -> None:
    method = Foreign()
    method.call(method.input(32))
    assert found(method) == {}


def test_a_call_all_of_whose_arguments_are_new_has_no_inputs() -> None:
    method = Foreign()
    method.input(32)
    call = method.call(method.tensor(32), method.tensor(32))
    assert found(method) == {call: 0}


def test_something_new_among_the_inputs_could_be_an_output() -> None:
    """``strange`` has a number above the input's, and the next argument is not an output of the call."""
    method = Foreign()
    one = method.input(32)
    strange = method.tensor(32)
    method.call(strange, one, method.tensor(32))
    assert found(method) == {}


def test_a_call_before_which_nothing_has_a_number_says_nothing() -> None:
    """Without an input or an earlier instruction, new state and a new output look the same."""
    method = Foreign()
    method.call(method.tensor(32), method.tensor(32))
    assert found(method) == {}


def test_an_earlier_instruction_gives_numbers_too() -> None:
    method = Foreign()
    one = method.op(method.constant(32))
    call = method.call(one, method.tensor(32))
    assert found(method) == {call: 1}


def test_a_call_that_has_only_what_was_there_before_says_nothing() -> None:
    """The last argument is an output of an earlier call, and may be state that both change."""
    method = Foreign()
    (one,) = method.delegate(method.input(32))
    method.call(method.inputs[0], one)
    assert found(method) == {0: 1}


SEEN = {
    "a move": lambda method, value: method.move(method.inputs[0], value),
    "a jump": lambda method, value: method.calls.append(m.JumpFalseCall(value, 0)),
    "a free": lambda method, value: method.calls.append(m.FreeCall(value)),
    "a list": lambda method, value: method.cat(value),
}


@pytest.mark.parametrize("how", SEEN)
def test_whatever_an_instruction_had_before_is_an_input(how: str) -> None:
    method = Foreign()
    method.input(32)
    value = method.tensor(32)
    SEEN[how](method, value)
    call = method.call(value, method.tensor(32))
    assert found(method) == {call: 1}


def test_the_sides_of_a_branch_are_counted_in_the_order_of_the_file() -> None:
    method = Foreign()
    one = method.input(32)
    merged = method.cond(one, lambda: method.delegate(one), lambda: method.delegate(one))
    method.delegate(*merged)
    assert found(method) == method.delegate_inputs


def test_a_position_counts_over_all_chains() -> None:
    method = Foreign()
    one = method.input(32)
    method.op(one)
    plan = method.plan()
    output = method.tensor(32)
    chains = (*plan.chains, m.Chain((m.DelegateCall(0, (one, output)),)))
    whole = m.ExecutionPlan(
        "forward", tuple(method.values), (one,), (output,), chains, plan.operators, (), (0, method.end)
    )
    assert delegate_inputs(whole) == {1: 1}


def test_the_first_call_that_nobody_knows_is_named() -> None:
    method = Foreign()
    (one,) = method.delegate(method.input(32))
    method.op(one)
    plan = method.plan()
    assert unsplit_call(plan, {0: 1}) is None
    method.call(one)
    method.call(one)
    assert unsplit_call(method.plan(), {0: 1}) == (
        "the file does not say which arguments of instruction 2 (MyBackend) are its outputs"
    )
