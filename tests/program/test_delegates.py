"""Number of inputs of a delegate call, as far as a file without a sidecar determines it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etdev.program import Blob, serialize
from etdev.program import model as m
from etdev.program.delegates import delegate_inputs, unsplit_call
from linker.programs import Method, program
from support.blobs import xnnpack
from support.files import chain


class Foreign(Method):
    """Method with calls of a delegate whose arguments are given one by one."""

    def call(self, *args: int, backend: str = "MyBackend") -> int:
        """Add the call and return its position."""
        data = m.BackendDelegateDataReference(m.DataLocation.INLINE, 0)
        self.delegates.append(m.BackendDelegate(backend, data, ()))
        self.calls.append(m.DelegateCall(len(self.delegates) - 1, args))
        return len(self.calls) - 1

    def view(self, value: int, **changes: object) -> int:
        """Add a view of a tensor that was elided: another tensor at its address."""
        tensor = self.values[value]
        assert isinstance(tensor, m.Tensor)
        return self.value(replace(tensor, **changes))


def found(method: Method, blob: bytes = b"") -> dict[int, int]:
    whole = replace(program(method).program, backend_delegate_data=(Blob(blob),))
    return dict(delegate_inputs(whole, whole.execution_plan[0]))


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
    method.cuts.append(1)
    method.call(one, method.tensor(32))
    assert len(method.plan().chains) == 2
    assert found(method) == {1: 1}


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


# Views that ExecuTorch elides: their first use is the call


def test_a_new_tensor_at_the_address_of_an_earlier_one_may_be_a_view() -> None:
    method = Foreign()
    one = method.op(method.input(32))
    method.call(method.view(one), method.tensor(32))
    assert found(method) == {}


@pytest.mark.parametrize("kept", ["an input", "state"])
def test_tensors_without_an_earlier_instruction_have_views_too(kept: str) -> None:
    method = Foreign()
    state, one = method.tensor(32), method.input(32)
    method.call(method.view(state if kept == "state" else one), method.tensor(32))
    assert found(method) == {}


def test_the_last_argument_is_an_output() -> None:
    """Every call has one, so it is no view, although it has the address of an earlier tensor."""
    method = Foreign()
    one = method.op(method.input(32))
    two = method.op(one)
    call = method.call(two, method.tensor(32), method.view(one))
    assert found(method) == {call: 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"scalar_type": m.ScalarType.INT},
        {"sizes": (4,)},
        {"shape_dynamism": m.TensorShapeDynamism.DYNAMIC_BOUND},
        {"allocation_info": None},
    ],
)
def test_a_view_has_the_type_and_size_of_its_base_and_fixed_sizes(changes: dict[str, object]) -> None:
    """For other views, there is an instruction, ``et_view``."""
    method = Foreign()
    one = method.op(method.input(32))
    call = method.call(method.inputs[0], method.view(one, **changes), method.tensor(32))
    assert found(method) == {call: 1}


def test_a_view_may_have_a_base_of_dynamic_sizes() -> None:
    method = Foreign()
    one = method.op(method.input(32))
    tensor = method.values[one]
    assert isinstance(tensor, m.Tensor)
    method.values[one] = replace(tensor, sizes=(16,), shape_dynamism=m.TensorShapeDynamism.DYNAMIC_BOUND)
    method.call(method.view(one, sizes=(8,), shape_dynamism=m.TensorShapeDynamism.STATIC), method.tensor(32))
    assert found(method) == {}


def test_a_tensor_whose_bytes_another_one_has_used_since_has_no_view() -> None:
    method = Foreign()
    one = method.op(method.input(32))
    over = method.view(one, sizes=(4,))
    method.calls.append(m.KernelCall(0, (method.inputs[0], over, over)))
    call = method.call(method.inputs[0], method.view(one), method.tensor(32))
    assert found(method) == {call: 1}


def test_a_use_on_another_path_does_not_count() -> None:
    """The branch that does not run overwrites nothing."""
    method = Foreign()
    condition, one = method.input(32), method.op(method.input(32))
    over = method.view(one, sizes=(4,))

    def other() -> list[int]:
        method.call(method.view(one), method.tensor(32))
        return [method.op(one)]

    def then() -> list[int]:
        method.calls.append(m.KernelCall(0, (method.inputs[0], over, over)))
        return [over]

    method.cond(condition, then, other)
    assert found(method) == {}


# Blobs that state the number


def test_an_xnnpack_graph_states_its_inputs() -> None:
    """The second argument is a view, and the first output has the address of an earlier tensor."""
    method = Foreign()
    one = method.op(method.input(32))
    two = method.op(one)
    args = (two, method.view(two), method.view(one), method.tensor(32))
    call = method.call(*args, backend="XnnpackBackend")
    assert found(method, xnnpack(inputs=2, outputs=2)) == {call: 2}
    assert found(method, xnnpack(inputs=2, outputs=1)) == {}
    assert found(method, b"") == {}


def test_a_nested_program_states_its_inputs() -> None:
    method = Foreign()
    one = method.op(method.input(32))
    call = method.call(method.view(one), method.tensor(32), backend="EtdevReferenceBackend")
    assert found(method, serialize(chain(2))) == {call: 1}
    assert found(method, b"") == {}
