"""Instructions in another order: the validator proves the orders that compute the same, and refuses all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.linker.order import hazards
from etdev.program import Program
from etdev.program import model as m
from etdev.validator import Correspondence, ValidationReport, validate_link
from etdev.validator.semantics import operators
from linker.oracle import Call, Machine
from linker.programs import Method, Object, program
from linker.test_order import branching
from validator.test_proofs import OLDER


def ordered(whole: Program, order: Sequence[int]) -> Program:
    """Return the program with its instructions in another order: ``order`` has their old positions."""
    (plan,) = whole.execution_plan
    (chain,) = plan.chains
    chain = replace(chain, instructions=tuple(chain.instructions[position] for position in order), stacktrace=())
    return replace(whole, execution_plan=(replace(plan, chains=(chain,)),))


def validate(found: Object, order: Sequence[int]) -> ValidationReport:
    """Validate an object program whose instructions are in another order, with a true correspondence."""
    moved = {old: new for new, old in enumerate(order)}
    (notes,) = found.sidecar.methods.values()
    links = {"forward": Correspondence(moved, notes.delegate_inputs)}
    return validate_link(found.program, ordered(found.program, order), links)


def is_proved(method: Method, *order: int) -> bool:
    """Return whether a new order is proved. An order that is not proved has a violation of the right kind."""
    report = validate(program(method), order)
    assert report.not_validated == ()
    assert {item.kind for item in report.violations} <= {"content", "control flow", "state"}
    return report.proved


def pair(name: str = "aten::mm.out") -> Method:
    """Build two instructions that do not depend on each other."""
    method = Method()
    data = method.input(32)
    method.outputs = [method.op(data, name=name), method.op(data, data, name=name)]
    return method


def test_independent_instructions_may_swap() -> None:
    assert is_proved(pair(), 0, 1)
    assert is_proved(pair(), 1, 0)


def test_an_instruction_stays_after_those_whose_results_it_reads() -> None:
    method = Method()
    method.outputs = [method.op(method.op(method.input(32)))]
    assert not is_proved(method, 1, 0)


def test_a_read_stays_before_a_later_write() -> None:
    method = Method()
    state, data = method.buffer(32, "state"), method.input(32)
    method.outputs = [method.op(state)]
    method.copy(state, data)
    assert is_proved(method, 0, 1)
    assert not is_proved(method, 1, 0)


def test_writes_to_the_same_bytes_stay_in_order() -> None:
    method = Method()
    state, data = method.buffer(32, "state"), method.input(32)
    one, other = method.op(data), method.op(data, data)
    method.copy(state, one)
    method.copy(state, other)
    assert is_proved(method, 1, 0, 2, 3)
    assert not is_proved(method, 0, 1, 3, 2)


@pytest.mark.parametrize("name", ["my::fused.out", "aten::bernoulli.out", "aten::rand.out"])
def test_unknown_operators_and_random_numbers_stay_in_order(name: str) -> None:
    assert is_proved(pair(name), 0, 1)
    assert not is_proved(pair(name), 1, 0)


@pytest.mark.parametrize("name", ["aten::exponential", "aten::uniform", "aten::bernoulli"])
def test_random_numbers_that_are_written_in_place_stay_in_order(name: str) -> None:
    method = Method()
    method.outputs = [method.op(method.input(32)) for _ in range(2)]
    for out in method.outputs:
        method.kernel(f"{name}_", out, out)
    assert is_proved(method, 1, 0, 2, 3)
    assert not is_proved(method, 0, 1, 3, 2)


def test_operators_with_random_results_are_those_of_torch() -> None:
    """The linker and the validator each have a list. Torch's operators have a tag."""
    torch = pytest.importorskip("torch")
    random: set[str] = set()
    for name in torch._C._dispatch_get_all_op_names():
        packet = getattr(torch.ops.aten, name.partition("::")[2].partition(".")[0], None) if "aten::" in name else None
        for overload in packet.overloads() if packet else ():
            found = getattr(packet, overload)
            writes = any(argument.alias_info and argument.alias_info.is_write for argument in found._schema.arguments)
            if writes and torch.Tag.nondeterministic_seeded in found.tags:
                random.add(found._schema.name)
    assert "aten::exponential_" in random
    assert {name for name in random if not operators.is_random(name)} == set()
    assert {name for name in random if name.removesuffix("_") not in hazards._RANDOM} == set()


@pytest.mark.parametrize(("backend", "may_swap"), [("XnnpackBackend", True), ("MyBackend", False)])
def test_delegates(backend: str, may_swap: bool) -> None:
    method = Method()
    data = method.input(32)
    method.outputs = [*method.delegate(data, backend=backend), *method.delegate(data, data, backend=backend)]
    assert is_proved(method, 0, 1)
    assert is_proved(method, 1, 0) == may_swap


def test_calls_of_one_delegate_stay_in_order() -> None:
    """It may have state."""
    method = Method()
    data = method.input(32)
    method.outputs = [
        *method.delegate(data, backend="XnnpackBackend"),
        *method.delegate(data, backend="XnnpackBackend"),
    ]
    first, second = method.calls
    assert isinstance(first, m.DelegateCall)
    assert isinstance(second, m.DelegateCall)
    method.calls[1] = replace(second, delegate_index=first.delegate_index)
    assert not is_proved(method, 1, 0)


def test_accesses_to_the_memory_of_the_caller_stay_in_order() -> None:
    """The caller may lend the same memory for the input and the output."""
    method = Method()
    method.inputs = [method.tensor(32, planned=False)]
    out, data = method.tensor(32, planned=False), method.input(32)
    method.outputs = [method.op(*method.inputs), out]
    method.kernel("aten::mm.out", data, data, out, out)
    assert is_proved(method, 0, 1)
    assert not is_proved(method, 1, 0)


def test_no_instruction_passes_a_jump() -> None:
    method = Method()
    data = method.input(32)
    first = method.op(data)
    merged, _, _ = method.branches(data)
    method.outputs = [first, merged]
    count = len(method.calls)
    assert is_proved(method, *range(count))
    order = [*range(1, 2), 0, *range(2, count)]  # The first jump leads to the same instruction as before.
    assert not is_proved(method, *order)


def test_an_instruction_that_runs_only_before_the_link_is_missed() -> None:
    """One that is left out inside a region is not taken for one that runs later."""
    found = program(pair("my::fused.out"))
    report = validate_link(found.program, ordered(found.program, (1,)), {"forward": Correspondence({1: 0}, {})})
    assert not report.proved


@given(data=st.data())
def test_orders_that_are_proved_compute_the_same(data: st.DataObject) -> None:
    """Of all orders of drawn programs, only those with the same traces are proved."""
    found = program(data.draw(branching()))
    count = len(found.program.execution_plan[0].instructions)
    order = list(range(count))
    for _ in range(data.draw(st.integers(1, 3))):
        moving = order.pop(data.draw(st.integers(0, count - 1)))
        order.insert(data.draw(st.integers(0, count - 1)), moving)
    report = validate(found, order)
    assert all(item.reason.startswith(OLDER) for item in report.not_validated)
    if report.proved:
        made = [Call(seed=seed) for seed in range(3)]
        after = Machine(ordered(found.program, order), placed=False, inputs=found.inputs).run(*made)
        assert after == Machine(found.program, placed=False, inputs=found.inputs).run(*made)
