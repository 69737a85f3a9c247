"""Order of instructions: the search, and the pass that applies its result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.linker import Linked, LinkOptions, link, work
from etdev.linker.order import reorder, search
from etdev.linker.order.greedy import greedy
from etdev.linker.order.improve import improve
from etdev.linker.order.problem import Item, Problem, lower_bound
from etdev.linker.order.search import Effort
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory
from etdev.program.footprint import planned_memory
from linker.checked import decided, linked
from linker.oracle import Machine
from linker.programs import Method, Object, program
from linker.programs_drawn import calls, objects
from linker.test_meaning import meaning
from validator.test_proofs import check, proof

AS_IS = LinkOptions(reorder=False)


# The search


@st.composite
def problems(draw: st.DrawFn, most: int = 7) -> Problem:
    """Draw problems in which each step has an item that some later steps use."""
    count = draw(st.integers(1, most))
    before = [
        tuple(sorted(draw(st.sets(st.integers(0, step - 1), max_size=2)))) if step else () for step in range(count)
    ]
    items = [
        Item(
            draw(st.sampled_from((1, 2, 4, 8, 64))),
            tuple(other for other in range(count) if other == step or step in before[other]),
            draw(st.booleans()) and draw(st.booleans()),
            draw(st.booleans()) and draw(st.booleans()),
        )
        for step in range(count)
    ]
    return Problem(tuple(before), tuple(items), draw(st.sampled_from((0, 5))))


def orders(problem: Problem, done: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield all orders that satisfy the dependencies."""
    if len(done) == len(problem):
        yield done
    for step in set(range(len(problem))) - set(done):
        if set(problem.before[step]) <= set(done):
            yield from orders(problem, (*done, step))


def reached(problem: Problem, order: Sequence[int] | None) -> int:
    """Return the peak of an order, or of the present one."""
    return problem.peak(range(len(problem)) if order is None else order)


@given(problem=problems())
def test_the_search_is_exact(problem: Problem) -> None:
    found = improve(problem)
    best = min(map(problem.peak, orders(problem)))
    assert found.exact
    assert reached(problem, found.order) == best
    assert lower_bound(problem) <= best
    assert found.order is None or problem.is_valid(found.order)
    assert found.order is None or best < reached(problem, None)


def test_a_search_ends_one_byte_above_the_bound() -> None:
    before = ((), (0,), (0, 1), (1,), (2,), (4,), (0,), (2,), (3,))
    items = [
        Item(8, (0, 1, 2, 6), True, False),
        Item(2, (1, 2, 3), True, True),
        Item(64, (2, 4, 7), True, False),
        Item(8, (3, 8), True, False),
        *(Item(size, users, False, False) for size, users in ((4, (4, 5)), (1, (5,)), (2, (6,)), (4, (7,)))),
        Item(8, (8,), True, True),
    ]
    problem = Problem(before, tuple(items), 5)
    for effort in (0, 1, 2, 5, 10, 20, 50, 1000):
        found = improve(problem, Effort(effort))
        assert lower_bound(problem) <= reached(problem, found.order) <= reached(problem, None)


@given(problem=problems(most=30), effort=st.integers(0, 2000))
def test_with_little_effort_the_order_is_valid_and_never_worse(problem: Problem, effort: int) -> None:
    found = improve(problem, Effort(effort))
    assert found == improve(problem, Effort(effort))
    if found.order is not None:
        assert problem.is_valid(found.order)
        assert problem.peak(found.order) < reached(problem, None)


@given(problem=problems(most=12))
def test_the_beam_search_finds_valid_orders(problem: Problem) -> None:
    limit = reached(problem, None)
    moves = search._Moves(problem, limit, Effort())
    found = search._beam(moves, 0, 0)
    assert found is None or (problem.is_valid(found) and problem.peak(found) < limit)


@given(problem=problems(), limit=st.integers(0, 300))
def test_a_search_below_a_limit_is_exact(problem: Problem, limit: int) -> None:
    found = search._in_depth(search._Moves(problem, limit + 1, Effort()), limit, 0)
    assert found.exact
    assert (found.order is not None) == (min(map(problem.peak, orders(problem))) <= limit)
    assert found.order is None or (problem.is_valid(found.order) and problem.peak(found.order) <= limit)


@given(problem=problems(most=40))
def test_the_greedy_order_is_valid(problem: Problem) -> None:
    order = greedy(problem)
    assert problem.is_valid(order)
    assert order == greedy(problem)


def test_a_part_in_the_middle_is_improved_alone() -> None:
    """Steps before and after the cuts keep their places, and the parts are searched separately."""
    one = _branches(0)
    shift = len(one)
    two = Problem(
        (*one.before, *(tuple(other + shift for other in each) or (shift - 1,) for each in one.before)),
        (*one.items, *(Item(item.size, tuple(user + shift for user in item.users)) for item in one.items)),
    )
    found = improve(two, Effort(500))
    assert found.exact
    assert found.order is not None
    assert sorted(found.order[:shift]) == list(range(shift))
    assert two.peak(found.order) == min(map(one.peak, orders(one)))


def _branches(base: int) -> Problem:
    """Build two branches that both grow and shrink, in the order in which both are grown at once."""
    before = ((), (0,), (0,), (1,), (2,), (3, 4))
    uses = (((0, 1, 2), 4), ((1, 3), 100), ((2, 4), 100), ((3, 5), 4), ((4, 5), 4), ((5,), 4))
    return Problem(before, tuple(Item(size, users) for users, size in uses), base)


@pytest.mark.parametrize("count", [50_000])
@pytest.mark.nightly
def test_many_steps_take_little_effort(count: int) -> None:
    """A chain with branches everywhere: the search ends by its effort, not by the number of orders."""
    before = tuple((step - 3,) if step > 2 else () for step in range(count))
    items = tuple(Item(1 + step % 7, tuple(range(step, min(step + 4, count), 3))) for step in range(count))
    problem = Problem(before, items)
    effort = Effort()
    found = improve(problem, effort)
    assert effort.left > -100_000
    assert found.order is None or problem.is_valid(found.order)


# The pass


def wide(name: str = "forward") -> Method:
    """Build two branches, each with a large intermediate result; both are computed before either is reduced."""
    method = Method(name)
    data = method.input(16)
    large = [method.op(data, nbytes=128) for _ in range(2)]
    small = [method.op(item, nbytes=16) for item in large]
    method.outputs = [method.op(*small, nbytes=16)]
    return method


def size(done: Linked) -> int:
    """Return the bytes of planned memory."""
    return planned_memory(done.program)["cpu"]


def test_one_branch_after_the_other() -> None:
    done = linked(wide())
    (report,) = done.methods
    assert report.order is not None
    assert (report.order.moved, report.order.memory) == (1, 272)
    assert size(done) == 160
    assert report.renumbered == {0: 0, 1: 2, 2: 1, 3: 3, 4: 4}
    assert size(linked(wide(), reorder=False)) == 272


@pytest.mark.parametrize("count", [100, 1_000])
@pytest.mark.sampled(1)
def test_many_branches_one_after_the_other(count: int) -> None:
    """The effort permits no search among so many steps, and a part has at most 1,000 of them."""
    method = Method()
    data = method.input(16)
    large = [method.op(data, nbytes=256) for _ in range(count)]
    method.outputs = [method.op(item, nbytes=16) for item in large]
    found: Object = program(method)
    done = link(found.program, LinkOptions(), found.sidecar)
    assert size(link(found.program, AS_IS, found.sidecar)) > 256 * count
    assert size(done) == 256 + 16 * count


def test_the_original_order_stays_if_it_is_as_good() -> None:
    method = Method()
    method.outputs = [method.op(method.op(method.input(64)), method.op(method.inputs[0]))]
    found = program(method)
    assert link(found.program, LinkOptions(), found.sidecar) == link(found.program, AS_IS, found.sidecar)


@given(found=objects(most_methods=2))
def test_a_new_order_needs_less_memory(found: Object) -> None:
    done, before = (link(found.program, options, found.sidecar) for options in (LinkOptions(), AS_IS))
    if any(report.order for report in done.methods):
        assert planned_memory(done.program)["cpu"] < planned_memory(before.program)["cpu"]
        for report, old in zip(done.methods, before.methods, strict=True):
            if report.order is not None:
                assert report.order.memory == sum(buffer.size for buffer in old.buffers)
                assert sorted(report.renumbered) != list(report.renumbered.values())
    else:
        assert done.program == before.program


@given(data=st.data())
def test_new_orders_keep_the_meaning_and_are_proved(data: st.DataObject) -> None:
    """Branches in drawn orders, with state and unknown operators between them, on drawn memory."""
    found = program(data.draw(branching()))
    made = data.draw(calls(["forward"]))
    inputs = {name: notes.delegate_inputs for name, notes in found.sidecar.methods.items()}
    done = link(found.program, LinkOptions(), found.sidecar)
    assert meaning(found, made, done.program) == meaning(found, made)
    check(proof(found.program, done, inputs))
    assert size(done) <= size(link(found.program, AS_IS, found.sidecar))


_KINDS = ("kernel", "kernel", "kernel", "relu", "state", "unknown", "delegate", "view", "cat")


@st.composite
def branching(draw: st.DrawFn) -> Method:
    """Draw methods with several values that each instruction may use, so that many orders are possible."""
    method = Method()
    values = [method.input(32), method.buffer(64, "state")]
    state = values[1]
    for _ in range(draw(st.integers(3, 14))):
        of = [draw(st.sampled_from(values)) for _ in range(draw(st.integers(1, 2)))]
        match draw(st.sampled_from(_KINDS)):
            case "kernel":
                values.append(method.op(*of, nbytes=draw(st.sampled_from((16, 32, 128, 512)))))
            case "relu":
                values.append(method.op(of[0], nbytes=method.at(of[0]).nbytes, name="aten::relu.out"))
            case "state":
                method.update(state, of[0])
            case "unknown":
                values.append(method.op(*of, name="my::fused.out"))
            case "delegate":
                backend = draw(st.sampled_from(("MyBackend", "XnnpackBackend", "EtdevReferenceBackend")))
                values += method.delegate(*dict.fromkeys(of), nbytes=[64], backend=backend)
            case "view":
                values.append(method.view(of[0]))
            case "cat":
                first, second = values[0], method.op(of[0], nbytes=32)
                values.append(method.cat(first, second, nbytes=64))
    method.outputs = [values[-1], *draw(st.lists(st.sampled_from(values[2:]), max_size=2))] if values[2:] else []
    return method


def in_order_of(done: Linked, *positions: int) -> bool:
    """Return whether instructions of the object program run in this order after the link."""
    new = [done.methods[0].renumbered[position] for position in positions]
    return new == sorted(new)


def between(method: Method, *, effect: str) -> Method:
    """Build two branches whose large results each go through an instruction with an effect."""
    data = method.input(16)
    large = [method.op(data, nbytes=128) for _ in range(2)]
    state = method.buffer(16, "state") if effect == "state" else None
    if state is not None:
        method.update(state, large[0])
        small = [method.op(large[0], state, nbytes=16)]
        method.update(state, large[1])
        small.append(method.op(large[1], state, nbytes=16))
    elif effect == "unplanned":
        small = [method.tensor(16, planned=False) for _ in range(2)]
        for item, out in zip(large, small, strict=True):
            method.kernel("aten::mm.out", item, item, out, out)
    elif effect == "unknown":
        small = [method.op(item, nbytes=16, name="my::fused.out") for item in large]
    elif effect == "random":
        small = [method.op(item, nbytes=16, name="aten::bernoulli.out") for item in large]
    else:
        small = [method.delegate(item, nbytes=[16], backend=effect)[0] for item in large]
    method.outputs = [method.op(*small, nbytes=16)] if effect != "unplanned" else small
    return method


def test_branches_with_state_keep_the_order_of_its_accesses() -> None:
    method = between(Method(), effect="state")
    done = linked(method)
    assert in_order_of(done, 2, 3, 4, 5)
    assert done.methods[0].order is not None
    assert in_order_of(done, 3, 1)


@pytest.mark.parametrize("effect", ["unknown", "random", "random in place", "MyBackend", "unplanned"])
def test_effects_keep_their_order(effect: str) -> None:
    """The last branch has its large result first, so the best order would exchange the effects."""
    done = linked(swapped(effect))
    assert in_order_of(done, *effects(swapped(effect), effect))


@pytest.mark.parametrize("backend", ["XnnpackBackend", "EtdevReferenceBackend"])
def test_calls_of_delegates_without_effects_may_swap(backend: str) -> None:
    done = linked(swapped(backend))
    first, second = effects(swapped(backend), backend)
    assert in_order_of(done, second, first)


def swapped(effect: str) -> Method:
    """Build two instructions with an effect: the one that frees a large input runs second."""
    method = Method()
    data = method.input(16)
    large = method.op(data, nbytes=256)
    grown = method.op(data, nbytes=16)
    outs = []
    for source, nbytes in ((grown, 256), (large, 16)):
        if effect in ("unknown", "random"):
            name = "my::fused.out" if effect == "unknown" else "aten::bernoulli.out"
            outs.append(method.op(source, nbytes=nbytes, name=name))
        elif effect == "random in place":
            outs.append(method.op(source, nbytes=nbytes))
            method.kernel("aten::exponential_", outs[-1], outs[-1])
        elif effect == "unplanned":
            out = method.tensor(16, planned=False)
            method.kernel("aten::mm.out", source, source, out, out)
            outs.append(out)
            if nbytes == 256:
                method.op(data, nbytes=nbytes)
        else:
            outs += method.delegate(source, nbytes=[nbytes], backend=effect)
    method.outputs = outs if effect == "unplanned" else [method.op(*outs, nbytes=16)]
    return method


def effects(method: Method, effect: str) -> list[int]:
    """Return the positions of the instructions with the effect."""
    found = []
    for position, call in enumerate(method.calls):
        if isinstance(call, m.DelegateCall):
            found.append(position)
        elif isinstance(call, m.KernelCall):
            name = method.operators[call.op_index].name
            names = {"unknown": "my::fused", "random": "aten::bernoulli", "random in place": "aten::exponential_"}
            wanted = names.get(effect)
            if name == wanted or (effect == "unplanned" and call.args[-1] in method.outputs):
                found.append(position)
    return found


def test_instructions_stay_on_their_side_of_a_jump() -> None:
    method = Method()
    data = method.input(16)
    large = [method.op(data, nbytes=128) for _ in range(2)]
    merged, _, _ = method.branches(data)
    method.outputs = [method.op(*large, merged, nbytes=16)]
    assert linked(method).methods[0].order is None


@pytest.mark.parametrize("adds_row", [False, True])
def test_nothing_overtakes_an_instruction_that_adds_a_row(adds_row: bool) -> None:
    """The best order computes the small result of the large tensor first."""
    method = Method()
    data, rows, counter = method.input(16), method.tensor(64, dynamic=True), method.value(m.Int(0))
    large, row = method.op(data, nbytes=256), method.op(data, nbytes=16)
    added = len(method.calls)
    if adds_row:
        method.kernel("executorch_prim::et_copy_index.tensor", rows, row, counter)
    grown = method.op(row, nbytes=256)
    small = method.op(large, nbytes=16)
    method.outputs = [method.op(grown, small, nbytes=16), *([rows] if adds_row else [])]
    done = linked(method)
    assert in_order_of(done, *range(added, added + 2)) or not adds_row
    assert in_order_of(done, added, len(method.calls) - 2) == adds_row


def test_a_branch_is_put_in_order() -> None:
    method = Method()
    data = method.input(16)

    def side() -> list[int]:
        large = [method.op(data, nbytes=128) for _ in range(2)]
        return [method.op(*(method.op(item, nbytes=16) for item in large), nbytes=16)]

    method.outputs = method.cond(data, side, side)
    done = linked(method)
    assert done.methods[0].order is not None
    assert size(done) < size(linked(method, reorder=False))


@given(objects())
def test_the_problem_of_a_region_has_all_storages_that_are_in_use(found: Object) -> None:
    """Storages that live around the region count, and those that end before it or start after it do not.

    If the values of a storage are in several storages after the link, its lifetime counts for that of the first value.
    """
    seen: list[tuple[work.Method, MethodMemory]] = []

    def record(method: work.Method, memory: MethodMemory, alignment: int) -> dict[int, tuple[int, ...]]:
        seen.append((method, memory))
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reorder, "better_orders", record)
        link(found.program, LinkOptions(alignment=16), found.sidecar)
    for method, memory in seen:
        regions = reorder.RegionMemory(method, memory, 16)
        instants: dict[int, set[int]] = defaultdict(set)
        for storage in method.memory.storages:
            for number in [memory.of[value] for value in storage.values if value in memory.of][:1]:
                instants[number].update(range(storage.start, storage.end))
        for start, end in reorder.straight_regions(method):
            in_use = [
                number
                for number, found_at in instants.items()
                if found_at and min(found_at) <= end and max(found_at) > start
            ]
            problem = regions.problem(start, end)
            bytes_in_use = problem.base + sum(item.size for item in problem.items)
            assert bytes_in_use == sum(-(-memory.storages[number].size // 16) * 16 for number in in_use)


def test_tensors_still_share_bytes_in_the_new_order() -> None:
    """The output of a pointwise kernel and the parts of a ``cat`` are where they would be without a new order."""
    method = Method()
    data = method.constant(16)
    large = [method.op(data, nbytes=256) for _ in range(3)]
    small = []
    for item in large:
        small.append(method.vector(32))
        method.kernel("aten::mm.out", item, item, small[-1], small[-1])
    for number, item in enumerate(small):
        small[number] = method.vector(32)
        method.kernel("aten::relu.out", item, small[number], small[number])
    method.outputs = [method.put_together(*small)]
    done = linked(method)
    assert size(done) == 256 + 96
    assert [action for action, _ in decided(done, "cat").values()] == ["placed"]
    assert all(item.argument == 0 for item in done.methods[0].inplace)


def test_methods_are_put_in_order_separately() -> None:
    plain = Method("b")
    plain.outputs = [plain.op(plain.input(16))]
    found: Object = program(wide("a"), plain)
    done = link(found.program, LinkOptions(), found.sidecar)
    assert [report.order is not None for report in done.methods] == [True, False]
    assert Machine(done.program).run() == []
