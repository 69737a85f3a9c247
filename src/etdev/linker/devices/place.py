"""Devices: delegates get tensors that lie where they run, and what crosses between host and devices is copied.

Each delegate call on a device is given replicas of its arguments there. Copies to devices are placed first: a delegate
needs its inputs on its device, and a write anywhere else ends what was there. Then the host is looked at in the same
way, the copies to devices being among those who read there; what one device has written and another one needs crosses
through the host so.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from etdev.devices import HOST, Device
from etdev.errors import LinkError
from etdev.linker.devices.items import Items, sort_items
from etdev.linker.devices.names import Names
from etdev.linker.devices.origins import Origins, find_origins
from etdev.linker.devices.replicas import Replicas
from etdev.linker.devices.transfers import Needs, Spot, find_spots
from etdev.linker.edit import with_insertions, with_operator
from etdev.program import model as m
from etdev.program.devices import D2H_COPY, H2D_COPY
from etdev.program.effects import DelegateInputs, Effects, effects, tensors
from etdev.program.flow import FlowGraph, flow_graph
from etdev.program.storage import MethodMemory


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where a method's tensors are to be at its ends."""

    inputs: Mapping[int, Device] = field(default_factory=dict)
    """By position, those that the caller leaves on a device."""
    outputs: Mapping[int, Device] = field(default_factory=dict)
    """By position, those that the caller takes from a device."""
    state: Mapping[int, Device] = field(default_factory=dict)
    """By value, what stays on a device between calls."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A method whose tensors are where they are needed."""

    plan: m.ExecutionPlan
    moved: Mapping[int, int]
    """Positions of its instructions: before → now."""
    replicas: Mapping[int, int]
    """Value that was added → the one that it stands for."""
    state: Mapping[int, int]
    """State that stays on a device → the value that it is now."""


class _UnclearError(Exception):
    """Where an item was last written is not the same on all paths."""

    def __init__(self, item: int) -> None:
        super().__init__(item)
        self.item = item


def place_tensors(
    plan: m.ExecutionPlan,
    memory: MethodMemory,
    inputs: DelegateInputs,
    devices: Mapping[int, Device],
    wanted: Wanted,
) -> Placed:
    """Give each delegate call of ``devices`` tensors on its device, and put in the copies that this takes."""
    items = sort_items(plan, memory)
    plan = _with_host_memory(plan, wanted)
    while True:
        try:
            return _Placement(plan, memory, inputs, devices, wanted, items).run()
        except _UnclearError as unclear:
            items = items.with_fixed(unclear.item)


class _Placement:
    def __init__(
        self,
        plan: m.ExecutionPlan,
        memory: MethodMemory,
        inputs: DelegateInputs,
        devices: Mapping[int, Device],
        wanted: Wanted,
        items: Items,
    ) -> None:
        self._plan, self._memory, self._inputs = plan, memory, inputs
        self._devices, self._wanted, self._items = devices, wanted, items
        self._replicas = Replicas(plan, items, self._written_over_state())
        self._names = Names(tensors(plan, plan.inputs), memory, items)
        self._state = {items.of[value]: device for value, device in wanted.state.items()}
        self._given = {items.of[plan.inputs[position]]: device for position, device in wanted.inputs.items()}
        kept = {items.of[value] for number in memory.storages if number.persistent for value in number.values}
        filled = {items.of[value] for value in tensors(plan, plan.inputs)}
        constant = {items.of[value] for value, tensor in plan.tensors() if tensor.is_constant and value in items.of}
        self._set = kept | filled | constant
        """Items that have a content when the method begins."""

    def run(self) -> Placed:
        """Both directions, one after the other."""
        self._bring_ends()
        plan, moved = self._copy_to_devices()
        plan, again = self._copy_to_host(plan, moved)
        plan = replace(plan, values=self._replicas.values(), non_const_buffer_device=self._replicas.buffers())
        return Placed(
            plan,
            {position: again[after] for position, after in moved.items()},
            dict(self._replicas.first),
            {value: self._replicas.of[value, device] for value, device in self._wanted.state.items()},
        )

    def _written_over_state(self) -> set[int]:
        """What delegates write in the place of state that has another name."""
        kept = {value for item in self._memory.storages if item.persistent for value in item.values}
        written = {value for position in self._devices for value in self._memory.reaching.effects[position].writes}
        return {value for value in kept & written if not self._has_name(value)}

    def _bring_ends(self) -> None:
        """Replicas that the caller owns, and those of state."""
        for positions, indices in self._ends():
            for position, device in positions.items():
                self._replicas.get(indices[position], device, planned=False)
        # The one with a name comes first.
        for value, device in sorted(
            self._wanted.state.items(), key=lambda found: (not self._has_name(found[0]), found[0])
        ):
            self._replicas.get(value, device, named=True)

    def _has_name(self, value: int) -> bool:
        tensor = self._plan.values[value]
        info = tensor.extra_tensor_info if isinstance(tensor, m.Tensor) else None
        return info is not None and info.fully_qualified_name is not None

    # To devices

    def _copy_to_devices(self) -> tuple[m.ExecutionPlan, dict[int, int]]:
        """Copies to devices, and what lies there."""
        facts = _Facts(len(self._memory.reaching.effects))
        bits = {pair: facts.new() for pair in sorted(self._pairs())}
        self._enter_instructions(facts, bits)
        self._enter_ends(facts, bits)
        before: _Insertions = defaultdict(list)
        behind = self._fixed_copies()
        for spot, found_bits in find_spots(self._memory.reaching.flow, facts.needs()).items():
            where = behind if spot.after else before
            for (item, device), bit in bits.items():
                if bit & found_bits:
                    name = self._names.read_at(spot, item)
                    if name is None:
                        raise _UnclearError(item)
                    where[spot.position] += self._to_device(name, device)
        return with_insertions(*self._with_operators(self._with_arguments(), before, behind))

    def _enter_instructions(self, facts: _Facts, bits: Mapping[tuple[int, Device], int]) -> None:
        """What each instruction needs on devices, and what it leaves there."""
        on = _by_item(bits)
        for position, found in enumerate(self._memory.reaching.effects):
            device = self._devices.get(position, HOST)
            for value in found.reads:
                facts.needed[position] |= bits.get((self._items.of[value], device), 0)
            for value in (*found.writes, *found.updates, *found.fills, *self._referring(found)):
                for item in self._items.changing(self._items.of[value]):
                    for other, bit in on[item]:
                        facts.ended[position] |= bit
                        if other == device and item == self._items.of[value]:
                            facts.made[position] |= bit

    def _referring(self, found: Effects) -> Iterable[int]:
        """Fixed values that are another tensor from now on."""
        to = (found.move or found.view or ())[1:]
        return (value for value in to if self._items.of.get(value) in self._items.fixed)

    def _pairs(self) -> set[tuple[int, Device]]:
        """Each item with each device that has anything to do with it."""
        found = {(self._items.of[value], device) for value, device in self._wanted.state.items()}
        for position, device in self._devices.items():
            here = self._memory.reaching.effects[position]
            found |= {(self._items.of[value], device) for value in (*here.reads, *here.writes, *here.updates)}
        for positions, indices in self._ends():
            found |= {(self._items.of[indices[position]], device) for position, device in positions.items()}
        return found

    def _ends(self) -> tuple[tuple[Mapping[int, Device], Sequence[int]], ...]:
        return (self._wanted.inputs, self._plan.inputs), (self._wanted.outputs, self._plan.outputs)

    def _enter_ends(self, facts: _Facts, bits: Mapping[tuple[int, Device], int]) -> None:
        """What is on devices when the method begins, and what has to be there when it ends."""
        for (item, device), bit in bits.items():
            resident = self._state.get(item) == device
            undefined = item not in self._set and item not in self._items.fixed
            if resident or self._given.get(item) == device or undefined:
                facts.at_entry |= bit
            if resident:
                facts.needed[-1] |= bit
        for position, device in self._wanted.outputs.items():
            facts.needed[-1] |= bits[self._items.of[self._plan.outputs[position]], device]

    def _fixed_copies(self) -> _Insertions:
        """Copies behind each call, of what is on the host at all times."""
        behind: _Insertions = defaultdict(list)
        for position, device in self._devices.items():
            found = self._memory.reaching.effects[position]
            for value in dict.fromkeys((*found.writes, *found.updates)):
                if self._items.of[value] in self._items.fixed:
                    behind[position] += self._to_host(value, device)
        return behind

    def _argument(self, position: int, number: int, value: int, device: Device) -> int:
        """What a call is given on a device instead of a value."""
        found = self._plan.values[value]
        if isinstance(found, m.TensorList | m.OptionalTensorList):
            raise LinkError(
                f"a delegate takes a list of tensors, value {value}, on {device}",
                where=f"method {self._plan.name!r}, instruction {position}",
                hint="runtimes hand on tensors one by one: lower the model again",
            )
        if not isinstance(found, m.Tensor):
            return value
        if number < self._inputs[position]:
            at = Spot(position, after=False)
            value = self._names.standing_for(value, at, self._items.of[value], self._plan)
        return self._replicas.get(value, device)

    def _with_arguments(self) -> m.ExecutionPlan:
        """The method with its calls, inputs and outputs on devices."""
        chains, base = [], 0
        for chain in self._plan.chains:
            calls = list(chain.instructions)
            for number, call in enumerate(calls):
                device = self._devices.get(base + number)
                if isinstance(call, m.DelegateCall) and device is not None:
                    args = (
                        self._argument(base + number, index, value, device) for index, value in enumerate(call.args)
                    )
                    calls[number] = replace(call, args=tuple(args))
            ends = [
                tuple(positions.get(value, value) for value in found)
                for found, positions in (
                    (chain.inputs, self._at_ends(self._wanted.inputs, self._plan.inputs)),
                    (chain.outputs, self._at_ends(self._wanted.outputs, self._plan.outputs)),
                )
            ]
            chains.append(replace(chain, instructions=tuple(calls), inputs=ends[0], outputs=ends[1]))
            base += len(calls)
        inputs, outputs = list(self._plan.inputs), list(self._plan.outputs)
        for indices, positions in ((inputs, self._wanted.inputs), (outputs, self._wanted.outputs)):
            for position, device in positions.items():
                indices[position] = self._replicas.of[indices[position], device]
        return replace(self._plan, chains=tuple(chains), inputs=tuple(inputs), outputs=tuple(outputs))

    def _at_ends(self, positions: Mapping[int, Device], indices: Sequence[int]) -> dict[int, int]:
        values = {indices[position]: device for position, device in positions.items()}
        return {value: self._replicas.of[value, device] for value, device in values.items()}

    # To the host

    def _copy_to_host(self, plan: m.ExecutionPlan, moved: Mapping[int, int]) -> tuple[m.ExecutionPlan, dict[int, int]]:
        """Copies to the host, of what it or a copy to a device reads there."""
        whole = replace(plan, values=self._replicas.values())
        flow = flow_graph(whole)
        tracked = sorted({self._items.of[value] for value, _ in self._replicas.of} - self._items.fixed.keys())
        facts = _Facts(len(flow.instructions))
        bits = {item: facts.new() for item in tracked}
        devices = {moved[position]: device for position, device in self._devices.items()}
        written: list[dict[int, Device]] = []
        for position, found in enumerate(self._effects(whole, moved, flow)):
            device = devices.get(position, HOST)
            for value in (*found.reads, *found.fills) if device == HOST else ():
                facts.needed[position] |= bits.get(self._item(value), 0)
            changed = {
                self._item(value)
                for value in (*found.writes, *found.updates, *found.fills)
                # A copy to a device leaves what is on the host as it is.
                if device != HOST or value < len(self._plan.values)
            } & bits.keys()
            for item in changed:
                (facts.made if device == HOST else facts.ended)[position] |= bits[item]
            written.append(dict.fromkeys(changed, device))
        at_entry = {item: self._state.get(item, self._given.get(item, HOST)) for item in tracked if item in self._set}
        facts.at_entry = sum(bit for item, bit in bits.items() if at_entry.get(item, HOST) == HOST)
        for item in self._read_by_caller(plan) & bits.keys():
            facts.needed[-1] |= bits[item]
        origins = find_origins(flow, written, at_entry)
        spots = find_spots(flow, facts.needs(), [sum(bits[item] for item in apart) for apart in origins.apart])
        return with_insertions(*self._with_operators(plan, *self._from_devices(spots, bits, origins, moved)))

    def _from_devices(
        self, spots: Mapping[Spot, int], bits: Mapping[int, int], origins: Origins, moved: Mapping[int, int]
    ) -> tuple[_Insertions, _Insertions]:
        """Copies from where each item was written last."""
        positions = sorted(moved.values())
        before: _Insertions = defaultdict(list)
        behind: _Insertions = defaultdict(list)
        for spot, found_bits in spots.items():
            for item, bit in bits.items():
                if bit & found_bits:
                    source = origins.at(spot, item)
                    if source is None or source == HOST:
                        raise _UnclearError(item)
                    at = (
                        bisect_right(positions, spot.position) - 1
                        if spot.after
                        else bisect_left(positions, spot.position)
                    )
                    at_spot = Spot(at, spot.after)
                    name = self._names.write_at(at_spot, item)
                    held = self._names.standing_for(name, at_spot, item, self._plan)
                    (behind if spot.after else before)[spot.position] += self._copy(
                        D2H_COPY, self._replicas.get(held, source), name
                    )
        return before, behind

    def _read_by_caller(self, plan: m.ExecutionPlan) -> set[int]:
        """Items that are to be on the host when the method ends: outputs, and state for the next call."""
        outputs = tensors(self._plan, (value for value in plan.outputs if value < len(self._plan.values)))
        kept = (value for item in self._memory.storages if item.persistent for value in item.values)
        return {self._items.of[value] for value in (*outputs, *kept)} - self._state.keys()

    def _effects(self, plan: m.ExecutionPlan, moved: Mapping[int, int], flow: FlowGraph) -> Iterator[Effects]:
        inputs = {moved[position]: count for position, count in self._inputs.items()}
        for position, call in enumerate(flow.instructions):
            found = effects(plan, call, inputs.get(position))
            if isinstance(call, m.KernelCall) and found == Effects():
                # It asks for the sizes only; those of a static tensor are the same everywhere.
                found = Effects(reads=tuple(value for value in tensors(plan, call.args) if _is_dynamic(plan, value)))
            yield found

    def _item(self, value: int) -> int:
        return self._items.of[self._replicas.first.get(value, value)]

    # Copies

    def _to_device(self, value: int, device: Device) -> list[tuple[str, int, int]]:
        return self._copy(H2D_COPY, value, self._replicas.get(value, device))

    def _to_host(self, value: int, device: Device) -> list[tuple[str, int, int]]:
        return self._copy(D2H_COPY, self._replicas.get(value, device), value)

    def _copy(self, operator: str, source: int, target: int) -> list[tuple[str, int, int]]:
        tensor = self._plan.values[min(source, target)]  # The one that was there before.
        assert isinstance(tensor, m.Tensor)
        empty = not _is_dynamic(self._plan, min(source, target)) and not tensor.nbytes
        return [] if empty else [(operator, source, target)]

    def _with_operators(
        self, plan: m.ExecutionPlan, before: _Insertions, behind: _Insertions
    ) -> tuple[m.ExecutionPlan, dict[int, list[m.Instruction]], dict[int, list[m.Instruction]]]:
        """The method with the operators of some copies, and these as its instructions."""
        indices = {}
        for name in sorted({name for copies in (*before.values(), *behind.values()) for name, _, _ in copies}):
            plan, indices[name] = with_operator(plan, name, "out")

        def calls(insertions: _Insertions) -> dict[int, list[m.Instruction]]:
            return {
                position: [m.KernelCall(indices[name], (source, target, target)) for name, source, target in copies]
                for position, copies in insertions.items()
            }

        return plan, calls(before), calls(behind)


_GAP = 64
"""Bytes between what was not planned before and its neighbours."""
_Insertions = defaultdict[int, list[tuple[str, int, int]]]
"""Position → operator, source and target of each copy there."""


class _Facts:
    """Facts of a method as they are found."""

    def __init__(self, count: int) -> None:
        """``count``: of its instructions."""
        self.needed = [0] * (count + 1)
        self.made, self.ended = [0] * count, [0] * count
        self.at_entry = 0
        self._count = 0

    def new(self) -> int:
        """The bit of one more fact."""
        self._count += 1
        return 1 << (self._count - 1)

    def needs(self) -> Needs:
        return Needs(self.needed, self.made, self.ended, self.at_entry)


def _with_host_memory(plan: m.ExecutionPlan, wanted: Wanted) -> m.ExecutionPlan:
    """Inputs and outputs on devices have memory on the host too, for those who read them there."""
    values = list(plan.values)
    ends = [
        tensor.allocation_info.memory_offset + tensor.nbytes
        for _, tensor in plan.tensors()
        if tensor.allocation_info is not None and tensor.allocation_info.memory_id == 1
    ]
    end = max(ends, default=0)
    for value in (*map(plan.inputs.__getitem__, wanted.inputs), *map(plan.outputs.__getitem__, wanted.outputs)):
        tensor = values[value]
        assert isinstance(tensor, m.Tensor)
        if tensor.allocation_info is None and tensor.shape_dynamism is not m.TensorShapeDynamism.DYNAMIC_UNBOUND:
            end = (end + 2 * _GAP - 1) // _GAP * _GAP
            values[value] = replace(tensor, allocation_info=m.AllocationDetails(1, end))
            end += tensor.nbytes
    return replace(plan, values=tuple(values))


def _by_item(bits: Mapping[tuple[int, Device], int]) -> Mapping[int, Sequence[tuple[Device, int]]]:
    found: dict[int, list[tuple[Device, int]]] = defaultdict(list)
    for (item, device), bit in bits.items():
        found[item].append((device, bit))
    return found


def _is_dynamic(plan: m.ExecutionPlan, value: int) -> bool:
    tensor = plan.values[value]
    return isinstance(tensor, m.Tensor) and tensor.shape_dynamism is not m.TensorShapeDynamism.STATIC
