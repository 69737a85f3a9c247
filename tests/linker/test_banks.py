"""Programs in memory banks (G1): the meaning stays, each bank holds its tensors, and pins are kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from etdev.errors import BanksError, CapacityError, LinkError
from etdev.linker import Linked, LinkOptions, link, link_foreign
from etdev.linker.banks import Banks
from etdev.linker.enlarge import sizes_that_suffice
from etdev.linker.pins import Pins
from etdev.planner import Problem
from etdev.planner.banks import Bank, BankedProblem, bank_planner, banked_greedy
from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from etdev.program.analysis.storage import method_memory
from etdev.program.analysis.traffic import run_counts
from etdev.program.footprint import buffer_sizes, planned_memory
from etdev.validator import Correspondence, validate_link
from linker.programs import Method, Object, program
from linker.programs_drawn import calls, objects
from linker.test_meaning import METHODS, meaning
from support.draws import examples
from support.files import banked
from validator.pairs import Half
from validator.test_proofs import carries, check


def two_banks(fast: int, slow: int, *, pins: Pins | None = None, swapped: bool = False) -> Banks:
    """Return a fast bank and a slow one; ``swapped`` gives the fast bank the memory id 2."""
    banks = Bank("fast", fast, 16), Bank("slow", slow, 16, Fraction(4))
    return Banks(banks, (2, 1) if swapped else (1, 2), pins or Pins())


def sizes(program: m.Program) -> dict[int, int]:
    """Return the size of each buffer: the largest of all methods."""
    found: dict[int, int] = {}
    for plan in program.execution_plan:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            found[index] = max(found.get(index, 0), size)
    return found


def in_banks(found: Object, banks: Banks, **options: object) -> Linked | None:
    """Return the linked program, or None if it does not fit."""
    try:
        return link(found.program, LinkOptions(banks=banks, **options), found.sidecar)  # type: ignore[arg-type]
    except LinkError as error:
        assert "do not fit into the memory banks" in error.message  # noqa: PT017
        return None


WITHOUT_SHRINKING = settings(
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
"""Shrinking a program with several methods takes minutes."""


@WITHOUT_SHRINKING
@given(data=st.data())
def test_the_meaning_stays(data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=3))
    made = data.draw(calls(METHODS[: len(found.program.execution_plan)]))
    share = data.draw(st.booleans())
    whole = planned_memory(link(found.program, LinkOptions(share_state=share), found.sidecar).program)["cpu"]
    fast = data.draw(st.integers(0, whole + 16)) // 16 * 16
    banks = two_banks(fast, whole - fast + 512, swapped=data.draw(st.booleans()))
    linked = in_banks(found, banks, share_state=share)
    if linked is None:
        return
    wanted = meaning(found, made, named=share)
    assert meaning(found, made, linked.program, shared=True) == wanted
    assert share or meaning(found, made, linked.program) == wanted
    assert linked.banks is not None
    for use in linked.banks.banks:
        assert sizes(linked.program).get(use.index, 0) <= use.capacity
        assert use.used <= use.capacity
    assert linked.banks.lower_bound <= linked.banks.cost
    if linked.banks.greedy_cost is not None:
        assert linked.banks.cost <= linked.banks.greedy_cost


@WITHOUT_SHRINKING
@given(found=objects(most_methods=2), share=st.sampled_from([2, 4, 8]))
def test_a_link_into_banks_is_proved(found: Object, share: int) -> None:
    if carries(found):
        return
    whole = planned_memory(link(found.program, LinkOptions(), found.sidecar).program)["cpu"]
    linked = in_banks(found, two_banks(whole // share, whole + 512))
    if linked is None:
        return
    reports = {report.name: report for report in linked.methods}
    inputs = {name: notes.delegate_inputs for name, notes in found.sidecar.methods.items()}
    links = {name: Correspondence(reports[name].renumbered, inputs[name]) for name in reports}
    check(validate_link(found.program, linked.program, links))


@given(found=objects())
def test_one_large_bank_is_as_no_bank(found: Object) -> None:
    """With one candidate for the link: of several, a link into banks takes the one with the least traffic."""
    options = LinkOptions(merged_views=False, growth=False, reorder=False)
    without = link(found.program, options, found.sidecar)
    assume(not has_unwritten_output(without, found))  # In a bank, it has bytes that are inside the bank.
    banks = Banks((Bank("ram", 1 << 20, 16),), (1,))
    linked = link(found.program, replace(options, banks=banks), found.sidecar)
    assert planned_memory(linked.program) == planned_memory(without.program)


def has_unwritten_output(linked: Linked, found: Object) -> bool:
    """Return whether no instruction writes an output, so that it is never in use."""
    for plan, report in zip(linked.program.execution_plan, linked.methods, strict=True):
        inputs = found.sidecar.methods[plan.name].delegate_inputs
        memory = method_memory(plan, {report.renumbered[position]: count for position, count in inputs.items()})
        for storage in memory.storages:
            if storage.start >= storage.end and not set(storage.values).isdisjoint(plan.outputs):
                return True
    return False


@WITHOUT_SHRINKING
@given(data=st.data())
def test_pins_are_kept(data: st.DataObject) -> None:
    found = data.draw(objects())
    (plan,) = found.program.execution_plan
    planned = [
        position
        for position, value in enumerate(plan.inputs)
        if isinstance(tensor := plan.values[value], m.Tensor) and tensor.allocation_info and tensor.nbytes
    ]
    pins = Pins(inputs={plan.name: dict.fromkeys(planned, "slow")}, state={"": "slow"})
    linked = in_banks(found, two_banks(1 << 16, 1 << 16, pins=pins))
    assert linked is not None
    (done,) = linked.program.execution_plan
    for position in planned:
        tensor = done.values[done.inputs[position]]
        assert isinstance(tensor, m.Tensor)
        assert tensor.allocation_info is not None
        assert tensor.allocation_info.memory_id == 2
    for note in found.sidecar.methods[plan.name].state:
        for value in done.values:
            if (
                isinstance(value, m.Tensor)
                and value.extra_tensor_info
                and value.extra_tensor_info.fully_qualified_name == note.name
                and value.allocation_info
            ):
                assert value.allocation_info.memory_id == 2


def test_a_full_bank_names_what_is_in_use() -> None:
    found = small_object()
    with pytest.raises(CapacityError) as caught:
        link(found.program, LinkOptions(banks=two_banks(16, 16)), found.sidecar)
    assert caught.value.message == (
        "the tensors do not fit into the memory banks: the 2 banks together have 32 bytes, but 192 are in use while "
        "instruction 1 (aten::mm.out) runs in method 'forward'; tensors in use at that point: input 0 (64 B), "
        "the result of instruction 0 (aten::mm.out) (64 B), output 0 (64 B)"
    )
    assert caught.value.hint == (
        "enlarge bank 'fast' to 192 bytes, or enlarge bank 'slow' to 192 bytes, or use smaller inputs"
    )
    assert not caught.value.at_delegate


def test_the_bytes_that_one_bank_lacks_are_named() -> None:
    found = small_object()
    with pytest.raises(CapacityError) as caught:
        link(found.program, LinkOptions(banks=two_banks(160, 48)), found.sidecar)
    assert caught.value.message == (
        "the tensors do not fit into the memory banks: in bank 'fast' (160 B), 32 bytes are missing while "
        "instruction 1 (aten::mm.out) runs in method 'forward'; tensors in use at that point: input 0 (64 B), "
        "the result of instruction 0 (aten::mm.out) (64 B), output 0 (64 B)"
    )
    assert caught.value.remedies[:2] == ("enlarge bank 'fast' to 192 bytes", "enlarge bank 'slow' to 64 bytes")


def test_one_byte_is_missing() -> None:
    found = small_object()
    with pytest.raises(CapacityError, match=r"in bank 'fast' \(191 B\), 1 byte is missing while "):
        link(found.program, LinkOptions(banks=two_banks(191, 48)), found.sidecar)


@WITHOUT_SHRINKING
@given(data=st.data())
@pytest.mark.nightly
def test_the_size_that_an_error_states_suffices(data: st.DataObject) -> None:
    found = data.draw(objects(most_methods=2, delegates=False))
    total = sum(planned_memory(link(found.program, LinkOptions(), found.sidecar).program).values())
    fast = data.draw(st.integers(0, max(0, total - 1)))
    banks = two_banks(fast, data.draw(st.integers(0, max(0, total - 1 - fast))))
    try:
        link(found.program, LinkOptions(banks=banks), found.sidecar)
    except CapacityError as error:
        stated = [re.fullmatch(r"enlarge bank '(\w+)' to ([\d,]+) bytes", remedy) for remedy in error.remedies]
        larger = {match[1]: int(match[2].replace(",", "")) for match in stated if match}
        assert larger.keys() == {"fast", "slow"}
        for number, bank in enumerate(banks.banks):
            changed = list(banks.banks)
            changed[number] = replace(bank, size=larger[bank.name])
            assert in_banks(found, replace(banks, banks=tuple(changed))) is not None
            assert larger[bank.name] > bank.size


def test_the_stated_size_is_the_smallest_that_was_found() -> None:
    """A bank that holds all that the others cannot hold may take more than it needs."""
    sizes: list[int] = []

    def link_into(banks: Banks) -> Sequence[int] | None:
        size = banks.banks[0].size
        sizes.append(size)
        return None if size < 36_864 else (36_864 if size < 55_296 else 55_296, 0)

    assert next(sizes_that_suffice(two_banks(32_768, 32_768), link_into)) == ("fast", 36_864)
    assert len(sizes) < 10


def test_a_bank_that_cannot_help_is_not_named() -> None:
    found = small_object()
    banks = two_banks(96, 1024, pins=Pins(values={"forward": dict.fromkeys(range(3), "fast")}))
    with pytest.raises(CapacityError) as caught:
        link(found.program, LinkOptions(banks=banks), found.sidecar)
    assert [remedy for remedy in caught.value.remedies if "enlarge" in remedy] == ["enlarge bank 'fast' to 192 bytes"]


def test_the_bytes_that_xnnpack_may_read_count_as_in_use() -> None:
    method = Method("forward")
    method.outputs = method.delegate(method.input(64, dynamic=True), nbytes=[32], backend="XnnpackBackend")
    found = program(method)
    with pytest.raises(CapacityError) as caught:
        link(found.program, LinkOptions(banks=Banks((Bank("sram", 159),), (1,))), found.sidecar)
    assert caught.value.message == (
        "the tensors do not fit into the memory banks: the bank has 159 bytes, but 160 are in use while instruction 0 "
        "(XnnpackBackend) runs in method 'forward'; tensors in use at that point: "
        "input 0 (64 B), output 0 (32 B), 64 bytes after the last tensor, which XNNPACK may read"
    )
    assert caught.value.hint == (
        "enlarge bank 'sram' to 160 bytes, or use smaller inputs, or lower the maximum of a dynamic dimension"
    )
    assert caught.value.at_delegate
    link(found.program, LinkOptions(banks=Banks((Bank("sram", 160),), (1,))), found.sidecar)


def small_object() -> Object:
    """Return an object program that needs more than 32 bytes."""
    method = Method("forward")
    x = method.input(64)
    y = method.op(x, nbytes=64)
    method.outputs = [method.op(x, y, nbytes=64)]
    return program(method)


@WITHOUT_SHRINKING
@given(data=st.data())
def test_shared_state_is_not_in_buffer_1(data: st.DataObject) -> None:
    """By convention, methods share no state in buffer 1: a relink would take it for private."""
    found = data.draw(objects(most_methods=3, initial=False, delegates=False))
    made = data.draw(calls(METHODS[: len(found.program.execution_plan)]))
    swapped = data.draw(st.booleans())
    linked = in_banks(found, two_banks(1 << 16, 1 << 16, swapped=swapped), share_state=True)
    assert linked is not None
    wanted = meaning(found, made, named=True)
    assert meaning(found, made, linked.program, shared=True) == wanted
    again = link_foreign(linked.program).program
    assert meaning(found, made, again, shared=True) == wanted


def shared() -> Object:
    """Return an object program with two methods that add to the same state."""
    methods = []
    for name in METHODS[:2]:
        method = Method(name)
        x = method.input(16)
        cache = method.tensor(16)
        method.state[cache] = "cache"
        method.outputs = [method.op(x, cache, nbytes=16)]
        methods.append(method)
    return program(*methods)


def test_shared_state_needs_a_second_bank() -> None:
    found = shared()
    one = Banks((Bank("ram", 1 << 16, 16),), (1,))
    with pytest.raises(LinkError, match="needs a bank with a memory id above 1"):
        link(found.program, LinkOptions(banks=one, share_state=True), found.sidecar)
    pins = Pins(state={"": "fast"})
    with pytest.raises(LinkError, match="cannot be in bank 'fast', which has the memory id 1"):
        link(found.program, LinkOptions(banks=two_banks(4096, 4096, pins=pins), share_state=True), found.sidecar)


def test_a_loop_counts_once_for_each_iteration() -> None:
    half = Half()
    x = half.input(4, at=0)
    counter, limit, done, step = half.integer(0), half.integer(5), half.truth(False), half.integer(1)
    out = half.tensor(4, at=64)
    half.op("neg.out", x, out)
    start = len(half.calls)
    half.op("exp.out", out, half.tensor(4, at=128))
    half.kernel("executorch_prim::add.Scalar", counter, step, counter)
    half.kernel("executorch_prim::eq.Scalar", counter, limit, done)
    half.jump_if_false(done, start)
    half.op("neg.out", out, half.tensor(4, at=192))
    half.outputs = [out]
    plan = half.plan()
    assert run_counts(plan, flow_graph(plan)) == [1, 5, 5, 5, 5, 1]
    values = list(plan.values)
    values[limit] = m.Int(0)
    assert run_counts(replace(plan, values=tuple(values)), flow_graph(plan))[1] == 1
    values[limit], values[step] = m.Int(6), m.Int(2)
    assert run_counts(replace(plan, values=tuple(values)), flow_graph(plan))[1] == 1


@pytest.mark.parametrize("bank_wise", [True, False])
def test_a_wrong_plan_of_ones_own_is_an_error_in_any_candidate(bank_wise: bool) -> None:
    """The linker links several times and takes the cheapest plan, but no wrong plan is passed over."""
    found = small_object()
    calls: list[object] = []

    def whole(problem: BankedProblem) -> list[tuple[int, int]]:
        calls.append(problem)
        return [(0, 0)] * len(problem.buffers) if len(calls) > 1 else [*zip(*banked_greedy(problem) or (), strict=True)]

    def single(problem: Problem) -> list[int]:
        calls.append(problem)
        return [0] * len(problem.buffers)

    planner = bank_planner(whole) if bank_wise else single
    options = LinkOptions(planner=planner, planner_name="planners:mine", banks=two_banks(64, 1 << 10))
    with pytest.raises(LinkError, match=r"^the plan is wrong: planner planners:mine: ") as caught:
        link(found.program, options, found.sidecar)
    assert type(caught.value) is LinkError
    assert caught.value.hint == "fix the planner, or use the planner `best`"
    assert calls


@bank_planner
def one_after_another(problem: BankedProblem) -> list[tuple[int, int]]:
    """Place each buffer in the last bank that may hold it, without any reuse."""
    ends = accumulate(-(-buffer.size // 64) * 64 for buffer in problem.buffers)
    return [(problem.allowed(index)[-1], end - 64) for index, end in enumerate(ends)]


def test_a_candidate_that_exceeds_a_bank_is_passed_over() -> None:
    """A planner whose plan without any sharing is too large still links the program with sharing."""
    method = Method("forward")
    value = method.input(64)
    for _ in range(3):
        value = method.op(value, name="aten::relu.out", nbytes=64)
    method.outputs = [value]
    found = program(method)
    options = LinkOptions(planner=one_after_another, planner_name="planners:mine", banks=two_banks(16, 64))
    linked = link(found.program, options, found.sidecar)
    assert planned_memory(linked.program) == {"cpu": 64}
    with pytest.raises(BanksError, match="bank 'slow' has 48 bytes, but the plan needs 64"):
        link(found.program, replace(options, banks=two_banks(16, 48)), found.sidecar)


def test_a_planner_that_exceeds_a_files_own_bank_gets_more_room() -> None:
    """A file's own banks grow if the tensors do not fit, whoever plans them."""
    linked = link_foreign(banked(8, 16), LinkOptions(planner=one_after_another), keep_smaller=False)
    assert sum(buffer_sizes(linked.program).values()) > 24


def test_only_pins_of_the_config_are_called_pins() -> None:
    found = shared()
    with pytest.raises(CapacityError) as caught:
        link(found.program, LinkOptions(share_state=True, banks=two_banks(1 << 10, 0)), found.sidecar)
    assert "pin fewer" not in str(caught.value.hint)
