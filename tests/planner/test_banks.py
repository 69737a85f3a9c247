"""Planning across memory banks (G1): laws, small problems by trying everything, and ExecuTorch's planner."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from etdev.planner import Buffer, PlanError, Problem, ProblemError, lower_bound, make_plan
from etdev.planner.banks import Bank, BankedPlan, BankedProblem, BanksFullError, bank_planner, banked_greedy, plan_banks
from etdev.planner.banks.forced import find_forced
from etdev.planner.banks.loads import Loads
from planner import truth
from planner.strategies import buffers
from planner.test_greedy import random_rows
from support.draws import examples
from support.speed import action_time, usual_seconds

EXAMPLES = settings(max_examples=examples(320), deadline=None)


@st.composite
def banked_problems(draw: st.DrawFn, most: int = 10) -> BankedProblem:
    """Draw banks around the size that the buffers need, so that some problems fit and some do not."""
    found = tuple(draw(st.lists(buffers(pins=False), max_size=most)))
    peak = lower_bound(Problem(found))
    sizes = draw(st.lists(st.integers(0, peak + 64), min_size=1, max_size=3))
    costs = draw(st.lists(st.integers(0, 9), min_size=len(sizes), max_size=len(sizes)))
    banks = tuple(
        Bank(f"bank{number}", size, draw(st.sampled_from([1, 4, 32])), Fraction(cost))
        for number, (size, cost) in enumerate(zip(sizes, sorted(costs), strict=True))
    )
    traffic = tuple(draw(st.integers(0, 5)) * buffer.size for buffer in found)
    pinned = draw(st.lists(st.integers(0, max(0, len(found) - 1)), max_size=2)) if found else []
    return BankedProblem(banks, found, traffic, {index: (draw(st.integers(0, len(banks) - 1)),) for index in pinned})


def planned(problem: BankedProblem) -> BankedPlan | BanksFullError:
    """Return the plan, or the error."""
    try:
        return plan_banks(problem)
    except BanksFullError as error:
        return error


def check(problem: BankedProblem, plan: BankedPlan) -> None:
    """Check a plan by the definitions alone."""
    for number, bank in enumerate(problem.banks):
        inside = [index for index, chosen in enumerate(plan.banks) if chosen == number]
        part = Problem(tuple(problem.in_bank(index, number) for index in inside))
        assert [plan.offsets[index] for index in inside] == list(plan.plans[number].offsets)
        truth.check(part, plan.plans[number])
        assert plan.plans[number].size <= bank.size
        assert plan.traffic[number] == sum(problem.traffic[index] for index in inside)
    assert all(plan.banks[index] in banks for index, banks in problem.choices.items())
    assert (
        plan.lower_bound
        <= plan.cost
        == sum(traffic * bank.cost for traffic, bank in zip(plan.traffic, problem.banks, strict=True))
    )


@EXAMPLES
@given(problem=banked_problems())
def test_a_plan_is_right_and_no_worse_than_executorchs(problem: BankedProblem) -> None:
    greedy = banked_greedy(problem)
    plan = planned(problem)
    if isinstance(plan, BanksFullError):
        assert greedy is None
        assert plan.bank < len(problem.banks)
        live = [problem.buffers[index] for index in plan.buffers]
        assert all(buffer.start <= plan.instant < buffer.end for buffer in live)
        return
    check(problem, plan)
    assert plan == plan_banks(problem)
    if greedy is not None:
        assert plan.cost <= problem.total_cost(greedy[0])


@settings(max_examples=examples(240), deadline=None)
@given(problem=banked_problems(most=6))
def test_small_problems_are_solved_as_by_trying_everything(problem: BankedProblem) -> None:
    least = cheapest(problem)
    if least is None:
        with pytest.raises(BanksFullError):
            plan_banks(problem)
    else:
        plan = plan_banks(problem)
        assert plan.lower_bound <= least <= plan.cost
        assert plan.cost <= least * 2


@settings(max_examples=examples(480), deadline=None)
@given(problem=banked_problems(most=6))
def test_each_division_with_room_has_the_properties_that_are_forced(problem: BankedProblem) -> None:
    forced = find_forced(Loads(problem))
    choices = [problem.allowed(index) for index in range(len(problem.buffers))]
    for division in itertools.product(*choices):
        loads = Loads(problem)
        loads.fill(division)
        if any(map(loads.excess, range(len(problem.banks)))):
            continue
        assert forced is not None
        assert all(division[index] in banks for index, banks in forced.problem.choices.items())
        for row, limits in zip(loads.loads, forced.limits, strict=True):
            assert all(load <= limit for load, limit in zip(row, limits, strict=True))


def test_subset_sums_show_where_buffers_must_be() -> None:
    """Only 50 fills the fast bank enough, although 30 would leave less traffic in the slow one."""
    found = Buffer(50, 0, 2, 1), Buffer(30, 0, 2, 1), Buffer(30, 0, 2, 1)
    banks = Bank("fast", 55), Bank("slow", 60, cost=Fraction(4))
    problem = BankedProblem(banks, found, (1, 90, 90))
    forced = find_forced(Loads(problem))
    assert forced is not None
    assert forced.problem.choices == {0: (0,), 1: (1,), 2: (1,)}
    assert [row[0] for row in forced.limits] == [50, 60]
    plan = plan_banks(problem)
    assert plan.cost == plan.lower_bound == 721
    assert find_forced(Loads(replace(problem, banks=(Bank("fast", 49), banks[1])))) is None


def cheapest(problem: BankedProblem) -> Fraction | None:
    """Return the least cost of all divisions that fit; None if none does."""
    choices = [problem.allowed(index) for index in range(len(problem.buffers))]
    for division in sorted(itertools.product(*choices), key=problem.total_cost):
        loads = Loads(problem)
        loads.fill(division)
        parts = [
            Problem(tuple(problem.in_bank(index, bank) for index, other in enumerate(division) if other == bank))
            for bank in range(len(problem.banks))
        ]
        if all(make_plan(part).size <= bank.size for part, bank in zip(parts, problem.banks, strict=True)):
            return problem.total_cost(division)
    return None


@pytest.mark.parametrize(("seed", "share"), list(itertools.product(range(12), (2, 4, 8))))
def test_tight_banks_hold_what_fits(seed: int, share: int) -> None:
    """The banks are exactly as large as two halves of a plan that is cut between its buffers."""
    rows = random_rows(seed, 14)
    found = tuple(Buffer(size, first, last + 1, 16) for size, first, last in rows)
    whole = make_plan(Problem(found))
    spans = [(offset, offset + buffer.size) for offset, buffer in zip(whole.offsets, found, strict=True)]
    cuts = [cut for cut, _ in spans if all(end <= cut or begin >= cut for begin, end in spans)]
    cut = min(cuts, key=lambda offset: abs(offset - whole.size // share))
    banks = Bank("fast", cut, 16), Bank("slow", whole.size - cut, 16, Fraction(4))
    problem = BankedProblem(banks, found, tuple(buffer.size for buffer in found))
    check(problem, plan_banks(problem))


def test_one_bank_is_planned_as_without_banks() -> None:
    found = tuple(Buffer(size, first, last + 1, 16) for size, first, last in random_rows(3, 40))
    alone = make_plan(Problem(found))
    plan = plan_banks(BankedProblem((Bank("ram", alone.size),), found, (0,) * len(found)))
    assert plan.plans[0].offsets == alone.offsets


def test_buffers_without_room_in_the_fast_bank_are_those_with_least_traffic() -> None:
    found = tuple(Buffer(64, 0, 4) for _ in range(4))
    banks = Bank("fast", 128), Bank("slow", 1024, cost=Fraction(4))
    plan = plan_banks(BankedProblem(banks, found, (100, 400, 200, 300)))
    assert plan.banks == (1, 0, 1, 0)
    assert plan.traffic == (700, 300)
    assert plan.cost == 700 + 4 * 300


def test_a_bank_has_its_own_alignment() -> None:
    found = tuple(Buffer(20, 0, 4, 4) for _ in range(3))
    (plan,) = plan_banks(BankedProblem((Bank("tcm", 200, 32),), found, (0, 0, 0))).plans
    assert sorted(plan.offsets) == [0, 32, 64]


def test_a_bank_that_is_too_small_says_what_is_in_use() -> None:
    found = Buffer(64, 0, 2, name="a"), Buffer(64, 1, 3, name="b"), Buffer(32, 2, 4, name="c")
    problem = BankedProblem((Bank("fast", 64), Bank("slow", 48, cost=Fraction(4))), found, (1, 1, 1))
    with pytest.raises(BanksFullError, match="bank 'slow' lacks 16 bytes") as caught:
        plan_banks(problem)
    assert caught.value.missing == 16
    assert caught.value.instant in (0, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"banks": ()}, "at least one bank"),
        ({"banks": (Bank("a", -1),)}, "bank 'a' has size -1"),
        ({"banks": (Bank("a", 1, 3),)}, "power of two"),
        ({"banks": (Bank("a", 1, 1, Fraction(-1)),)}, "cost of at least 0"),
        ({"traffic": ()}, "traffic for each buffer"),
        ({"traffic": (-1,)}, "traffic for each buffer"),
        ({"choices": {0: (0, 1)}}, "for buffer 0; expected indices of banks"),
        ({"choices": {0: ()}}, "for buffer 0; expected indices of banks"),
        ({"choices": {1: (0,)}}, "for buffer 1; expected indices of banks"),
        ({"buffers": (Buffer(1, 0, 1, pin=0),)}, "offset pin"),
        ({"buffers": (Buffer(-1, 0, 1),)}, "has the size -1"),
    ],
)
def test_a_wrong_problem_is_an_error(change: dict[str, object], message: str) -> None:
    right = BankedProblem((Bank("a", 1),), (Buffer(1, 0, 1),), (0,))
    with pytest.raises(ProblemError, match=message):
        replace(right, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("alignment", [16, 64])
@pytest.mark.parametrize("count", [1, 2, 5, 12, 40, 150])
def test_the_comparison_is_executorchs(count: int, alignment: int) -> None:
    banked = pytest.importorskip("executorch.exir.banked_memory_planning", reason="executorch 1.5 plans banks")
    import torch
    from executorch.exir.tensor import TensorSpec

    for seed in range(6):
        rows = [row for row in random_rows(seed, count) if row[0]]
        assume_size = sum(size for size, _, _ in rows) // 3 // alignment * alignment
        sizes = assume_size // 2 // alignment * alignment, assume_size, 2 * assume_size
        banks = tuple(Bank(f"b{number}", size, alignment) for number, size in enumerate(sizes) if size)
        if not banks or not rows:
            continue
        found = tuple(Buffer(size, first, last + 1, alignment) for size, first, last in rows)
        pins = dict.fromkeys(range(0, len(rows), 7), (0,))
        mine = banked_greedy(BankedProblem(banks, found, (0,) * len(found), pins))
        specs = []
        for index, (size, first, last) in enumerate(rows):
            spec = TensorSpec(torch.uint8, torch.Size([size]))
            spec.lifetime = [first, last]
            spec.mem_id = 1 if index in pins else None
            specs.append(spec)
        target = banked.TargetMemoryMap([banked.Bank(bank.name, bank.size, at) for at, bank in enumerate(banks, 1)])
        try:
            theirs = banked.BankedGreedy(target)(alignment, specs, SimpleNamespace(meta={}), None)
        except banked.BankPlacementError:
            assert mine is None
            continue
        assert mine is not None
        places = [theirs.spec_dict[spec] for spec in specs]
        assert [(place.mem_id - 1, place.mem_offset) for place in places] == list(zip(*mine, strict=True))


@EXAMPLES
@given(problem=banked_problems())
def test_the_comparison_is_a_right_plan(problem: BankedProblem) -> None:
    found = banked_greedy(problem)
    assume(found is not None)
    assert found is not None
    for number, bank in enumerate(problem.banks):
        inside = [index for index, chosen in enumerate(found[0]) if chosen == number]
        part = Problem(tuple(problem.in_bank(index, number) for index in inside))
        offsets = [found[1][index] for index in inside]
        assert not truth.flaws(Problem(tuple(b if b.occupies else replace(b, size=0) for b in part.buffers)), offsets)
        assert truth.size(part, offsets) <= bank.size


def test_the_comparison_fits_with_different_alignments() -> None:
    """ExecuTorch's planner counts 40 bytes, but needs 48 because of the gap before an aligned object."""
    found = tuple(Buffer(size, 0, 1, alignment) for size, alignment in ((16, 1), (8, 16), (8, 1)))
    problems = [BankedProblem((Bank("sram", size),), found, (1, 1, 1)) for size in (40, 47, 48)]
    assert [banked_greedy(problem) for problem in problems] == [None, None, ([0, 0, 0], [32, 16, 0])]


@bank_planner
def again(problem: BankedProblem) -> list[tuple[int, int]]:
    """Return etdev's own plan."""
    found = plan_banks(problem)
    return list(zip(found.banks, found.offsets, strict=True))


@EXAMPLES
@given(problem=banked_problems())
def test_a_planner_that_takes_banks(problem: BankedProblem) -> None:
    own = planned(problem)
    assume(isinstance(own, BankedPlan))
    assert isinstance(own, BankedPlan)
    plan = plan_banks(problem, again)
    check(problem, plan)
    assert (plan.banks, plan.offsets, plan.cost) == (own.banks, own.offsets, own.cost)
    assert {part.planner for part in plan.plans} == {f"{__name__}:again"}


@EXAMPLES
@given(found=st.lists(buffers(pins=False), max_size=10))
@pytest.mark.nightly
def test_a_planner_that_takes_banks_plans_memory_without_banks(found: list[Buffer]) -> None:
    problem = Problem(tuple(found))
    plan = make_plan(problem, again)
    truth.check(problem, plan)
    assert plan.planner == f"{__name__}:again"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "expected a sequence of pairs (bank, offset), found NoneType"),
        ({0: (0, 0), 1: (1, 0)}, "expected a sequence of pairs (bank, offset), found dict"),
        ([(1, 0)], "expected a pair (bank, offset) for each of 2 buffers, found 1 items"),
        ([(1, 0), 16], "buffer 1 'b' has the place 16; expected a pair of integers (bank, offset)"),
        ([(1, 0), (1, 16, 0)], "buffer 1 'b' has the place (1, 16, 0); expected a pair of integers (bank, offset)"),
        ([(1, 0), (1, 16.0)], "buffer 1 'b' has the place (1, 16.0); expected a pair of integers (bank, offset)"),
        ([(1, 0), (True, 0)], "buffer 1 'b' has the place (True, 0); expected a pair of integers (bank, offset)"),
        ([(1, 0), (2, 0)], "buffer 1 'b' is in bank 2; expected a number from 0 to 1"),
        ([(1, 0), (-1, 0)], "buffer 1 'b' is in bank -1; expected a number from 0 to 1"),
        ([(0, 0), (1, 0)], "buffer 0 'a' is in bank 'fast', but must be in 'slow'"),
        ([(1, 0), (1, 8)], "bank 'slow': buffer 1 'b' is at offset 8, which is not a multiple of its alignment 16"),
        ([(1, 0), (1, -16)], "bank 'slow': buffer 1 'b' is at offset -16, before the start of the arena"),
        ([(1, 0), (1, 0)], "bank 'slow': collision at instant 1: "),
        ([(1, 0), (0, 16)], "bank 'fast' has 32 bytes, but the plan needs 48"),
        ([(1, 0), (0, 0)], None),
    ],
)
def test_wrong_plans_of_a_planner_that_takes_banks(answer: object, message: str | None) -> None:
    banks = Bank("fast", 32), Bank("slow", 128)
    problem = BankedProblem(banks, (Buffer(32, 0, 2, name="a"), Buffer(32, 1, 3, name="b")), (1, 1), {0: (1,)})
    mine = bank_planner(lambda _: answer)  # type: ignore[arg-type, return-value]
    if message is None:
        assert plan_banks(problem, mine).cost == 2
        return
    with pytest.raises(PlanError) as caught:
        plan_banks(problem, mine, name="planners:mine")
    assert str(caught.value).startswith(f"planner planners:mine: {message}")


def test_a_planner_cannot_remove_the_pins() -> None:
    @bank_planner
    def mine(problem: BankedProblem) -> list[tuple[int, int]]:
        problem.choices.clear()  # type: ignore[attr-defined]
        return [(0, 0)]

    problem = BankedProblem((Bank("fast", 32), Bank("slow", 32)), (Buffer(32, 0, 2, name="a"),), (1,), {0: (1,)})
    with pytest.raises(PlanError, match=r"buffer 0 'a' is in bank 'fast', but must be in 'slow'"):
        plan_banks(problem, mine)


def test_the_message_counts_no_padding_after_the_last_buffer() -> None:
    """A bank of 40 bytes has room for a buffer of 40 bytes, although the buffer's alignment is 16."""
    banks = Bank("small", 22), Bank("large", 40)
    problem = BankedProblem(banks, tuple(Buffer(size, 0, 1, 16, name=str(size)) for size in (40, 46)), (1, 1))
    with pytest.raises(BanksFullError) as caught:
        plan_banks(problem)
    error = caught.value
    load = sum(-(-problem.buffers[index].size // 16) * 16 for index in error.buffers[:-1])
    assert error.missing == load + problem.buffers[error.buffers[-1]].size - banks[error.bank].size


@pytest.mark.parametrize("answer", [7, [(0, 0)], [(0, 0), (0, 0)]])
def test_wrong_plans_without_banks(answer: object) -> None:
    problem = Problem((Buffer(32, 0, 2), Buffer(32, 1, 3)))
    with pytest.raises(PlanError, match=f"^planner {__name__}:.*<lambda>: "):
        make_plan(problem, bank_planner(lambda _: answer))  # type: ignore[arg-type, return-value]


@pytest.mark.nightly
def test_the_effort_for_what_does_not_fit_is_limited() -> None:
    """A search for the least excess that tried every swap took minutes here; one second is enough."""
    found = tuple(Buffer(64 + 16 * (at * 7919 % 61), at, at + 1 + at * 104729 % 400, 16) for at in range(2000))
    banks = Bank("fast", 8_000), Bank("slow", 9_000, 1, Fraction(4))

    def refused() -> None:
        with pytest.raises(BanksFullError):
            plan_banks(BankedProblem(banks, found, tuple(buffer.size for buffer in found)))

    assert usual_seconds(lambda: action_time(refused), 20, most=2) < 20
