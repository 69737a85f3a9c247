"""Edits of a method: replace or insert instructions, renumber values, drop unused values and operators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from etdev.program import model as m
from etdev.program.analysis.effects import tensors
from etdev.program.analysis.storage import MethodMemory
from etdev.program.delegates import arguments_of
from etdev.program.used import used_values


def with_instructions(
    plan: m.ExecutionPlan, changed: Mapping[int, Sequence[m.Instruction]]
) -> tuple[m.ExecutionPlan, dict[int, int]]:
    """Replace or remove instructions. Jumps keep their targets.

    ``changed`` maps a position to the replacements. Positions are numbered across all chains. Also return a map from
    the old position of each remaining instruction to its new position. A replaced instruction maps to its first
    replacement.
    """
    chains: list[m.Chain] = []
    moved: dict[int, int] = {}
    base = left = 0
    for chain in plan.chains:
        after: list[int] = []
        found: list[m.Instruction] = []
        traces: list[tuple[m.Frame, ...]] = []
        for number, call in enumerate(chain.instructions):
            after.append(len(found))
            others = changed.get(base + number, (call,))
            if others:
                moved[base + number] = left + len(found)
            found += others
            # A file may have stack traces for only the first instructions of a chain.
            traces += len(others) * chain.stacktrace[number : number + 1]
        after.append(len(found))
        instructions = tuple(_redirected(call, after) for call in found)
        chains.append(replace(chain, instructions=instructions, stacktrace=tuple(traces)))
        base, left = base + len(chain.instructions), left + len(found)
    return replace(plan, chains=tuple(chains)), moved


def with_insertions(
    plan: m.ExecutionPlan, before: Mapping[int, Sequence[m.Instruction]], after: Mapping[int, Sequence[m.Instruction]]
) -> tuple[m.ExecutionPlan, dict[int, int]]:
    """Insert instructions before and after existing ones. Also return the new positions of existing instructions.

    A jump to an instruction runs the insertions ``before`` that instruction. The jump skips the insertions ``after``
    the preceding instruction. In ``after``, position -1 is the start of the method. In ``before``, a position equal to
    the number of instructions is the end of the method.
    """
    chains: list[m.Chain] = []
    moved: dict[int, int] = {}
    base = total = 0
    for index, chain in enumerate(plan.chains):
        labels: list[int] = []
        found: list[m.Instruction] = list(after.get(-1, ())) if not index else []
        traces: list[tuple[m.Frame, ...]] = [()] * len(found)
        for number, call in enumerate(chain.instructions):
            labels.append(len(found))
            here = before.get(base + number, ())
            moved[base + number] = total + len(found) + len(here)
            following = after.get(base + number, ())
            found += [*here, call, *following]
            traces += [*([()] * len(here)), *chain.stacktrace[number : number + 1], *([()] * len(following))]
        base += len(chain.instructions)
        labels.append(len(found))
        if index == len(plan.chains) - 1:
            found += before.get(base, ())
        total += len(found)
        kept = tuple(traces) if chain.stacktrace else ()
        chains.append(replace(chain, instructions=tuple(_redirected(call, labels) for call in found), stacktrace=kept))
    return replace(plan, chains=tuple(chains)), moved


def in_order(plan: m.ExecutionPlan, order: Mapping[int, int]) -> tuple[m.ExecutionPlan, dict[int, int]]:
    """Put instructions in another order. Also return a map from the old position of each instruction to its new one.

    ``order`` maps new positions to old ones. Positions are numbered across all chains. Missing positions keep their
    instructions. Instructions must stay in their chains, and jumps and targets of jumps must stay at their positions.
    """
    chains: list[m.Chain] = []
    moved: dict[int, int] = {}
    base = 0
    for chain in plan.chains:
        sources = [order.get(base + number, base + number) - base for number in range(len(chain.instructions))]
        moved.update({base + source: base + number for number, source in enumerate(sources)})
        # A file may have stack traces for only the first instructions of a chain.
        traces = [*chain.stacktrace, *([()] * (len(sources) - len(chain.stacktrace)))] if chain.stacktrace else ()
        chains.append(
            replace(
                chain,
                instructions=tuple(chain.instructions[source] for source in sources),
                stacktrace=tuple(traces[source] for source in sources) if traces else (),
            )
        )
        base += len(sources)
    return replace(plan, chains=tuple(chains)), moved


def _redirected(call: m.Instruction, after: Sequence[int]) -> m.Instruction:
    if isinstance(call, m.JumpFalseCall):
        return replace(call, destination_instruction=after[call.destination_instruction])
    return call


def placed_at(value: m.Value, place: m.AllocationDetails | None) -> m.Tensor:
    """Return the tensor with ``place`` as its address in planned memory. If ``place`` is None, remove the address."""
    assert isinstance(value, m.Tensor)
    return replace(value, allocation_info=place)


def frees(instructions: Iterable[m.Instruction]) -> dict[int, list[int]]:
    """Return a map from each freed value to the positions of the instructions that free it.

    A free resets the pointer of one value and changes no bytes. Other values at the same address keep their pointers. A
    free matters only to a pass that replaces a value or makes the value a constant.
    """
    found: dict[int, list[int]] = defaultdict(list)
    for position, call in enumerate(instructions):
        if isinstance(call, m.FreeCall):
            found[call.value_index].append(position)
    return dict(found)


def with_operator(plan: m.ExecutionPlan, name: str, overload: str) -> tuple[m.ExecutionPlan, int]:
    """Return the method with an operator in its table, and the operator's index. Add the operator if it is missing."""
    operator = m.Operator(name, overload)
    if operator in plan.operators:
        return plan, plan.operators.index(operator)
    return replace(plan, operators=(*plan.operators, operator)), len(plan.operators)


def without_unused(plan: m.ExecutionPlan, order: Iterable[int] | None = None) -> m.ExecutionPlan:
    """Drop operators that no instruction calls, and values that nothing uses.

    A runtime refuses a file that lists an unknown operator, even if no instruction calls that operator. Tensors with an
    initial value stay. ``order`` lists all values; the remaining values are numbered in that order.
    """
    calls = plan.instructions
    operators = sorted({call.op_index for call in calls if isinstance(call, m.KernelCall)})
    used = set(used_values(plan))
    values = [value for value in (range(len(plan.values)) if order is None else order) if value in used]
    operator_index = {old: new for new, old in enumerate(operators)}
    value_index = {old: new for new, old in enumerate(values)}
    plan = replace(plan, operators=tuple(plan.operators[index] for index in operators))
    return renumbered(plan, values, value_index.__getitem__, operator_index.__getitem__)


def aliases_first(
    plan: m.ExecutionPlan,
    memory: MethodMemory,
    neighbors: Mapping[int, int] | None = None,
    *,
    reordered: bool = False,
) -> list[int]:
    """Return all values in an order that keeps readers of the file from mistaking aliases for outputs.

    A reader regards an argument of a delegate call as an output if two conditions hold. The call is the first use of
    the argument. And the argument has a higher number than all values used before the call. So tensors that are never
    written come before the first written tensor at the same bytes.

    ``neighbors`` maps added tensors to original values. Each added tensor is placed next to its original value. The
    added tensor comes first if it is an input of the method or an output of a delegate; otherwise it comes second.

    If instructions were ``reordered``, values get their numbers in the order of their first uses, as in emission.
    """
    first = {*plan.inputs}
    first |= {
        value
        for call, effects in zip(memory.reaching.flow.instructions, memory.reaching.effects, strict=True)
        if isinstance(call, m.DelegateCall)
        for value in effects.writes
    }
    neighbors = neighbors or {}
    added_to: dict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for added, value in sorted(neighbors.items()):
        added_to[value][added not in first].append(added)
    order: list[int] = []
    for value in _by_first_use(plan, neighbors) if reordered else range(len(plan.values)):
        if value not in neighbors:
            before_it, behind_it = added_to[value]
            order += [*before_it, value, *behind_it]
    rank = {value: number for number, value in enumerate(order)}
    written = {*plan.inputs, *(write.place for write in memory.reaching.writes)}
    before: dict[int, list[int]] = {}
    for storage in memory.storages:
        head = min((value for value in storage.values if value in written), key=rank.__getitem__, default=None)
        if head is not None:
            found = (value for value in storage.values if value not in written and rank[value] > rank[head])
            before[head] = sorted(found, key=rank.__getitem__)
    moved = {value for aliases in before.values() for value in aliases}
    order = [found for value in order if value not in moved for found in (*before.get(value, ()), value)]
    early = _mistaken_for_outputs(plan, memory, order)
    return [*early, *(value for value in order if value not in early)]


def _by_first_use(plan: m.ExecutionPlan, neighbors: Mapping[int, int]) -> list[int]:
    """Return the values that no instruction refers to, then all other values in the order of their first uses.

    ``neighbors`` maps added tensors to original values. A use of an added tensor counts as a use of its original value.
    """
    first = {neighbors.get(value, value): -1 for value in plan.inputs}
    for position, call in enumerate(call for chain in plan.chains for call in chain.instructions):
        for value in (*arguments_of(call), *tensors(plan, arguments_of(call))):
            first.setdefault(neighbors.get(value, value), position)
    return sorted(range(len(plan.values)), key=lambda value: (first.get(value, -2), value))


def _mistaken_for_outputs(plan: m.ExecutionPlan, memory: MethodMemory, order: Sequence[int]) -> dict[int, None]:
    """Return the inputs of delegate calls that a reader of the file would mistake for outputs.

    An example is an alias of state. The returned values must come first in the final order. A reader then recognizes
    the values as inputs.
    """
    rank = {value: number for number, value in enumerate(order)}
    seen = set(tensors(plan, plan.inputs))
    highest = max((rank[value] for value in plan.inputs), default=-1)
    found: dict[int, None] = {}
    for call, effects in zip(memory.reaching.flow.instructions, memory.reaching.effects, strict=True):
        if isinstance(call, m.DelegateCall):
            new = [value for value in effects.reads if value not in seen and rank[value] > highest]
            found.update(dict.fromkeys(new))
        used = tensors(plan, arguments_of(call))
        seen.update(used)
        highest = max((highest, *(rank[value] for value in used if value not in found)))
    return found


def renumbered(
    plan: m.ExecutionPlan,
    order: Sequence[int],
    value: Callable[[int], int],
    operator: Callable[[int], int] = lambda index: index,
) -> m.ExecutionPlan:
    """Return the method with its values in a new order.

    ``value`` and ``operator`` map old indices to new indices.
    """

    def each(indices: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(index if index < 0 else value(index) for index in indices)

    def call(found: m.Instruction) -> m.Instruction:
        match found:
            case m.KernelCall():
                return m.KernelCall(operator(found.op_index), each(found.args))
            case m.DelegateCall():
                return m.DelegateCall(found.delegate_index, each(found.args))
            case m.MoveCall():
                return m.MoveCall(value(found.move_from), value(found.move_to))
            case m.JumpFalseCall():
                return m.JumpFalseCall(value(found.cond_value_index), found.destination_instruction)
            case m.FreeCall():
                return m.FreeCall(value(found.value_index))

    def item(found: m.Value) -> m.Value:
        if isinstance(found, m.IntList | m.TensorList | m.OptionalTensorList):
            return replace(found, items=each(found.items))
        return found

    return replace(
        plan,
        values=tuple(item(plan.values[index]) for index in order),
        inputs=each(plan.inputs),
        outputs=each(plan.outputs),
        chains=tuple(
            replace(
                chain,
                instructions=tuple(map(call, chain.instructions)),
                inputs=each(chain.inputs),
                outputs=each(chain.outputs),
            )
            for chain in plan.chains
        ),
    )
