"""Memory banks: which bank holds each storage, and at which address.

The storages of all methods are planned together. Only one method runs at a time, so temporaries of different methods
may share bytes. State is in use in all methods, so each piece of state has one address that no temporary overlaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

from etdev.errors import BanksError, CapacityError, LinkError
from etdev.linker.pins import Pins, pins_of
from etdev.linker.state import State, state_name
from etdev.linker.work import Method
from etdev.planner import Buffer, PlanError, Planner
from etdev.planner.banks import (
    Bank,
    BankedPlan,
    BankedProblem,
    BankOverflowError,
    BanksFullError,
    banked_greedy,
    plan_banks,
)
from etdev.program import model as m
from etdev.program.analysis.effects import instruction_name
from etdev.program.analysis.traffic import storage_traffic
from etdev.program.bank_report import BankReport, BankUse
from etdev.units import format_count, format_size


@dataclass(frozen=True, slots=True)
class Banks:
    """The banks of a target. They divide the host's planned memory."""

    banks: tuple[Bank, ...]
    """Banks in order of preference."""
    ids: tuple[int, ...]
    """Memory id that each bank has in the file. The ids are the numbers from 1, in any order."""
    pins: Pins = field(default_factory=Pins)
    share_most: bool = False
    """True if the link shares fewer bytes only to make the tensors fit.

    If False, the link also shares fewer bytes to lower the cost of traffic.
    """


@dataclass(frozen=True, slots=True)
class BankPlaces:
    """The bank and the offset of each storage, and the report on the banks."""

    places: list[dict[int, tuple[int, int]]]
    """One map for each method: from the index of a storage to ``(memory id, offset in bytes)``."""
    report: BankReport


def place_in_banks(
    methods: Sequence[Method],
    state: Sequence[State],
    banks: Banks,
    *,
    alignment: int,
    padding: int,
    planner: str | Planner,
    planner_name: str | None,
) -> BankPlaces:
    """Choose a bank and an address for each storage in host memory.

    ``padding`` is the number of bytes that each bank needs after its last tensor. Raises
    :class:`~etdev.errors.BanksError` if pins contradict each other, and its subclass
    :class:`~etdev.errors.CapacityError` if the storages do not fit. Raises :class:`~etdev.errors.LinkError` if the plan
    of ``planner`` is wrong.
    """
    items = _Items(methods, state, banks)
    sized = tuple(
        Bank(bank.name, max(0, bank.size - padding), bank.alignment, bank.cost) for bank in banks.banks
    )  # fmt: skip
    buffers = tuple(Buffer(size, start, end, alignment, name=name) for size, start, end, name in items.spans())
    problem = BankedProblem(sized, buffers, tuple(items.traffic), items.choices())
    try:
        plan = plan_banks(problem, planner, name=planner_name)
    except BanksFullError as error:
        raise _does_not_fit(error, items, problem, padding) from error
    except BankOverflowError as error:
        raise BanksError(str(error), hint="fix the planner, or use the planner `best`") from error
    except PlanError as error:
        raise LinkError(f"the plan is wrong: {error}", hint="fix the planner, or use the planner `best`") from error
    places: list[dict[int, tuple[int, int]]] = [{} for _ in methods]
    for number, members in enumerate(items.members):
        for method, storage, inside in members:
            places[method][storage] = banks.ids[plan.banks[number]], plan.offsets[number] + inside
    return BankPlaces(places, _report(banks, problem, plan, padding))


class _Items:
    """Items to place in banks. An item is a piece of state, or a storage of one method that is not state."""

    def __init__(self, methods: Sequence[Method], state: Sequence[State], banks: Banks) -> None:
        self.methods, self.banks = methods, banks
        self.members: list[list[tuple[int, int, int]]] = []
        """Storages of each item, as ``(method, storage, offset in the item)``."""
        self._sizes: list[int] = []
        self._names: list[str] = []
        self._state = 0
        self._starts = [0]
        for method in methods:
            self._starts.append(self._starts[-1] + method.memory.instants)
        of_state = [self._state_members(item) for item in state if self._is_on_host(item)]
        for item, found in zip((item for item in state if self._is_on_host(item)), of_state, strict=True):
            self._add(found, item.size, item.name)
        self._state = len(self.members)
        shared = [item.shared for item in state if self._is_on_host(item)]
        self._shared = [item for item, is_shared in enumerate(shared) if is_shared]
        taken = {(method, storage) for found in of_state for method, storage, _ in found}
        for index, method in enumerate(methods):
            for number, storage in enumerate(method.memory.storages):
                on_host = method.plan.buffer_device(storage.memory_id).is_host
                if on_host and (index, number) not in taken:
                    self._add([(index, number, 0)], storage.size, _storage_name(method, number))
        self._item_of = {(one, two): at for at, found in enumerate(self.members) for one, two, _ in found}
        self.traffic = [0] * len(self.members)
        for index, method in enumerate(methods):
            for number, nbytes in enumerate(storage_traffic(method.plan, method.memory)):
                if (index, number) in self._item_of:
                    self.traffic[self._item_of[index, number]] += nbytes

    def spans(self) -> Iterator[tuple[int, int, int, str]]:
        """Yield ``(size, start, end, name)`` for each item.

        ``start`` and ``end`` are instants, numbered across all methods. The first instant of a method follows the last
        instant of the method before it.
        """
        for number, (members, size, name) in enumerate(zip(self.members, self._sizes, self._names, strict=True)):
            if number < self._state:
                yield size, 0, max(1, self._starts[-1]), name
            else:
                ((method, storage, _),) = members
                found = self.methods[method].memory.storages[storage]
                first = self._starts[method]
                # An output that no instruction writes is never in use, but has an address inside its bank.
                is_output = not set(found.values).isdisjoint(self.methods[method].plan.outputs)
                end = max(found.end, found.start + is_output)
                yield size, first + found.start, first + end, name

    def is_dynamic(self, item: int) -> bool:
        """Return whether a tensor in an item has a dynamic shape."""
        method, storage, _ = self.members[item][0]
        plan = self.methods[method].plan
        found = (plan.values[value] for value in self.methods[method].memory.storages[storage].values)
        return any(isinstance(value, m.Tensor) and not value.is_static for value in found)

    def is_end(self, item: int) -> bool:
        """Return whether an item contains an input or an output of a method, and no state."""
        method, storage, _ = self.members[item][0]
        plan = self.methods[method].plan
        ends = {*plan.inputs, *plan.outputs}
        return item >= self._state and not ends.isdisjoint(self.methods[method].memory.storages[storage].values)

    def instruction_at(self, instant: int) -> tuple[Method, int]:
        """Return ``(method, instant in the method)`` for an instant that is numbered across all methods."""
        index = max(number for number, start in enumerate(self._starts[:-1]) if start <= instant)
        return self.methods[index], instant - self._starts[index]

    def choices(self) -> dict[int, tuple[int, ...]]:
        """Map each item to the indices of the banks that may hold it. Omit items that may be in any bank.

        An item has one possible bank if it has a pin, or if all preferences for its tensors name the same bank. State
        that methods share cannot be in the bank with the memory id 1. By convention, state in the buffer with that id
        is private to one method. So a loader or another tool would not share the state.
        """
        asked = self._banks_asked()
        for banks in asked.values():
            if len(banks) > 1:
                reasons = " and ".join(f"{why} in bank {bank!r}" for bank, why in sorted(banks.items()))
                raise BanksError(
                    f"pins contradict each other: {reasons} share bytes",
                    hint="pin both to the same bank, or remove one of the pins",
                )
        preferred: dict[int, set[str]] = defaultdict(set)
        for index, method in enumerate(self.methods):
            for value, bank in self.banks.pins.preferred.get(method.plan.name, {}).items():
                preferred[self._item(index, value)].add(bank)
        found = {item: next(iter(banks)) for item, banks in preferred.items() if len(banks) == 1}
        found.update({item: next(iter(banks)) for item, banks in asked.items()})
        numbers = {bank.name: number for number, bank in enumerate(self.banks.banks)}
        choices = {item: (numbers[bank],) for item, bank in found.items() if item >= 0}
        above = tuple(number for number, index in enumerate(self.banks.ids) if index > 1)
        return {**choices, **{item: self._of_shared(item, choices.get(item), above) for item in self._shared}}

    def _banks_asked(self) -> dict[int, dict[str, str]]:
        """Map each item with pins to the banks that the pins require.

        The banks of an item are a map: from the name of a bank to the description of a tensor pinned to that bank.
        """
        asked: dict[int, dict[str, str]] = defaultdict(dict)
        for item, bank, why in self._asked():
            asked[item].setdefault(bank, why)
        return asked

    @property
    def pinned(self) -> set[int]:
        """Items with at least one pinned tensor."""
        return set(self._banks_asked())

    def _of_shared(self, item: int, chosen: tuple[int, ...] | None, above: tuple[int, ...]) -> tuple[int, ...]:
        """Return the possible banks of a state that methods share. ``above`` are the banks with memory ids above 1."""
        name = self._names[item]
        if not above:
            raise BanksError(
                f"methods share the state {name!r}, which needs a bank with a memory id above 1",
                hint="add a second bank, or turn model.share_state off",
            )
        if chosen is not None and chosen[0] not in above:
            bank = self.banks.banks[chosen[0]].name
            raise BanksError(
                f"methods share the state {name!r}, so it cannot be in bank {bank!r}, which has the memory id 1",
                hint="pin the state to another bank, or give the pinned bank another memory id",
            )
        return chosen or above

    def _asked(self) -> Iterator[tuple[int, str, str]]:
        """Yield each pin as ``(item, bank, description)``."""
        for index, method in enumerate(self.methods):
            for pin in pins_of(method.plan, method.memory.reaching.flow.instructions, self.banks.pins):
                item = self._item(index, pin.value)
                if item >= 0:
                    yield item, pin.bank, pin.tensor
        for item in range(self._state):
            bank = self.banks.pins.of_state(self._names[item])
            if bank is not None:
                yield item, bank, f"state {self._names[item]!r}"

    def _item(self, method: int, value: int) -> int:
        """Return the number of a value's item, or -1 if the value is not in the host's planned memory."""
        return self._item_of.get((method, self.methods[method].memory.of.get(value, -1)), -1)

    def _add(self, members: list[tuple[int, int, int]], size: int, name: str) -> None:
        self.members.append(members)
        self._sizes.append(size)
        self._names.append(name)

    def _is_on_host(self, item: State) -> bool:
        index, value, _ = item.members[0]
        method = self.methods[index]
        return method.plan.buffer_device(method.memory.reaching.places[value].buffer).is_host

    def _state_members(self, item: State) -> list[tuple[int, int, int]]:
        found = []
        for index, value, inside in item.members:
            memory = self.methods[index].memory
            number = memory.of[value]
            begin = memory.reaching.places[value].start - memory.storages[number].offset
            found.append((index, number, inside - begin))
        return found


def _storage_name(method: Method, number: int) -> str:
    """Return a name for a storage: the name of its state, input, output or instruction."""
    storage, plan = method.memory.storages[number], method.plan
    state = state_name(plan, storage.values)
    if state:
        return state
    for kind, ends in (("input", plan.inputs), ("output", plan.outputs)):
        for position, value in enumerate(ends):
            if value in storage.values:
                return f"{kind} {position}"
    call = _call_name(method, storage.writes[0]) if storage.writes else None
    return f"the result of {call}" if call else f"value {storage.values[0]}"


def _running(method: Method, instant: int) -> m.Instruction | None:
    """Return the instruction at an instant of a method, or None while the caller fills inputs or reads outputs."""
    instructions = method.memory.reaching.flow.instructions
    return instructions[instant - 1] if 0 < instant <= len(instructions) else None


def _call_name(method: Method, instant: int) -> str | None:
    """Return the position and the operator of the instruction at an instant, or None if no instruction runs then."""
    call = _running(method, instant)
    if call is None:
        return None
    return f"instruction {instant - 1} ({instruction_name(method.plan, call)})"


def _report(banks: Banks, problem: BankedProblem, plan: BankedPlan, padding: int) -> BankReport:
    greedy = banked_greedy(problem)
    by_greedy: list[int] | None = None
    if greedy is not None:
        by_greedy = [0] * len(banks.banks)
        for index, bank in enumerate(greedy[0]):
            by_greedy[bank] += problem.traffic[index]
    uses = tuple(
        BankUse(
            bank.name,
            banks.ids[number],
            bank.size,
            plan.plans[number].size + (padding if plan.plans[number].offsets else 0),
            float(bank.cost),
            plan.traffic[number],
            by_greedy[number] if by_greedy is not None else None,
            bank.alignment,
        )
        for number, bank in enumerate(banks.banks)
    )
    costs = [bank.cost for bank in banks.banks]
    greedy_cost = None
    if by_greedy is not None:
        greedy_cost = float(sum((cost * nbytes for cost, nbytes in zip(costs, by_greedy, strict=True)), Fraction(0)))
    return BankReport(uses, float(plan.cost), greedy_cost, float(plan.lower_bound))


_MOST_NAMED = 5
"""Maximum number of tensors that the message about a full bank lists."""


def _does_not_fit(error: BanksFullError, items: _Items, problem: BankedProblem, padding: int) -> CapacityError:
    """Return the error for storages that do not fit.

    The message names the bank, the bytes, the instruction and the tensors in use.
    """
    remedies = ["use smaller inputs"]
    banks = items.banks.banks
    total, at, buffers = _most_in_use(problem)
    total += padding
    room = sum(bank.size for bank in banks)
    if total > room:
        instant = at
        have = f"{len(banks)} banks together have" if len(banks) > 1 else "bank has"
        reason = f"the {have} {room:,} bytes, but {total:,} are in use while {_moment(items, instant)}"
    else:
        bank, instant = banks[error.bank], error.instant
        lack = (
            f"{format_count(error.missing, 'byte')} {'is' if error.missing == 1 else 'are'} missing"
            if error.missing
            else "no plan was found that fits, although no bytes are missing in total"
        )
        buffers = error.buffers
        pinned = len(items.pinned.intersection(buffers))
        if pinned:
            remedies.insert(0, f"pin fewer tensors to the full bank ({pinned} of those in use are pinned)")
        reason = f"in bank {bank.name!r} ({format_size(bank.size)}), {lack} while {_moment(items, instant)}"
    if any(map(items.is_dynamic, buffers)):
        remedies.append("lower the maximum of a dynamic dimension")
    sizes = [(problem.buffers[index].size, problem.buffers[index].name) for index in buffers]
    live = [f"{name} ({format_size(size)})" for size, name in sizes[:_MOST_NAMED]]
    if len(sizes) > _MOST_NAMED:
        live.append(format_count(len(sizes) - _MOST_NAMED, "more tensor"))
    if padding:
        live.append(f"{padding} bytes after the last tensor, which XNNPACK may read")
    return CapacityError(
        f"the tensors do not fit into the memory banks: {reason}; tensors in use at that point: {', '.join(live)}",
        remedies=remedies,
        ends_in_use=any(items.is_end(index) for index in buffers),
        at_delegate=isinstance(_running(*items.instruction_at(instant)), m.DelegateCall),
        exceeds_all=total > room,
    )


def _most_in_use(problem: BankedProblem) -> tuple[int, int, Sequence[int]]:
    """Return the peak in bytes, the first instant at the peak, and the buffers in use there, largest first."""
    used = [(index, buffer) for index, buffer in enumerate(problem.buffers) if buffer.occupies]
    change: dict[int, int] = defaultdict(int)
    for _, buffer in used:
        change[buffer.start] += buffer.size
        change[buffer.end] -= buffer.size
    instants = sorted(change)
    loads = list(accumulate(change[instant] for instant in instants))
    most = max(loads, default=0)
    at = instants[loads.index(most)] if loads else 0
    live = [index for index, buffer in used if buffer.start <= at < buffer.end]
    return most, at, sorted(live, key=lambda index: (-problem.buffers[index].size, index))


def _moment(items: _Items, instant: int) -> str:
    """Return what happens at an instant: the instruction that runs, or what the caller does."""
    method, inside = items.instruction_at(instant)
    call = _call_name(method, inside)
    does = f"{call} runs" if call else f"the caller {'reads the outputs' if inside else 'fills the inputs'}"
    return f"{does} in method {method.plan.name!r}"
