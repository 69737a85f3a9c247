"""Data flow over a method: the place of each tensor at each instruction, and the writes its bytes may come from.

A tensor is in its own place, the allocation in the file, until a move or a view changes that. A move makes it another
tensor. A view makes it share another tensor's bytes. After a ``cond``, a tensor may therefore be one of several,
depending on the branch taken. The analysis keeps the sources of its bytes separately for each of them. Each record only
covers the paths on which the tensor is that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from typing import TypeAlias

from etdev.errors import LinkError
from etdev.program import model as m
from etdev.program.analysis.contents import BEFORE, UNWRITTEN, Memory, Pieces, Writes
from etdev.program.analysis.effects import DelegateInputs, Effects, effects, tensors
from etdev.program.analysis.flow import FlowGraph, flow_graph
from etdev.program.analysis.persistent import Node, joined
from etdev.program.analysis.references import References, references
from etdev.program.used import used_values

_MOST_STEPS = 30_000_000
"""Limit on the places and writes visited over all blocks. A method above it is treated as hostile."""
_TREE = 10
"""Steps that one change of a persistent map counts as."""
_ELSEWHERE = -1
"""Marker among places for unplanned memory: a constant's or the caller's."""


class Kind(Enum):
    """Extent to which a write covers a tensor."""

    ALL = "all"
    SOME = "some"
    FILL = "fill"
    """Partial write; the remainder is don't-care."""


@dataclass(frozen=True, slots=True)
class Place:
    """Planned memory of one tensor."""

    buffer: int
    """``memory_id`` of the planned buffer."""
    start: int
    """First byte, inclusive."""
    end: int
    """End byte, exclusive, for the largest size of the tensor."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write to a place by an instruction, or by the caller, who fills an input."""

    position: int
    """Position of the instruction; -1 is the caller, before the first instruction."""
    place: int
    """Value that owns the place."""
    kind: Kind
    certain: bool
    """Whether the write goes to this place on every path."""


@dataclass(frozen=True, slots=True)
class Use:
    """A read of a tensor by an instruction, or by the caller, who receives an output."""

    position: int
    """Position of the instruction; the number of instructions is the caller, after the last one."""
    value: int
    """Tensor that is read."""
    place: int
    """Value that owns the place of the tensor's bytes."""
    writes: Writes
    """Numbers of the writes that its bytes may come from: 1 + index into :attr:`Reaching.writes`."""


@dataclass(frozen=True, slots=True)
class Reaching:
    """Result of the analysis: each read of planned memory, and the writes that reach it."""

    flow: FlowGraph
    effects: tuple[Effects, ...]
    """Effects of each instruction, by position."""
    places: Mapping[int, Place]
    """Place of each nonempty tensor that has one."""
    writes: tuple[Write, ...]
    uses: tuple[Use, ...]
    elsewhere: frozenset[tuple[int, int]]
    """Position and tensor of each read that reaches unplanned memory on at least one path."""
    at_exit: Callable[[int], Writes]
    """Function that returns the writes that reach the bytes of a value's place at the end of the method."""
    references: frozenset[int]
    """Tensors that a move or a view sets, directly or through another value.

    Their place differs from the one in the file, always or on some paths.
    """


_Targets: TypeAlias = dict[int, Node]
"""Possible place of a tensor, or :data:`_ELSEWHERE` → content of the place on the paths on which the tensor is in it.

A place is named by the value that owns it.
"""


@dataclass(frozen=True, slots=True)
class _Left:
    """References that a call leaves to the next one, for values that the next call reads before it sets them."""

    targets: Mapping[int, frozenset[int]] = field(default_factory=dict)
    tensors: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(slots=True)
class _State:
    """Facts that hold at one point of a method."""

    memory: Node
    """Writes that each piece comes from."""
    targets: dict[int, _Targets] = field(default_factory=dict)
    """Places of the tensors that a move or a view has set. All others are in their own place. Copies share items."""
    tensors: dict[int, frozenset[int]] = field(default_factory=dict)
    """Values whose tensors a value may be, for values that a move has set. All others are themselves."""

    def copy(self) -> _State:
        return _State(self.memory, dict(self.targets), dict(self.tensors))

    def keep(self, live: Callable[[int], bool]) -> None:
        """Drop references that are set again before their next use. ``live`` returns whether a value has such a use."""
        self.targets = {value: targets for value, targets in self.targets.items() if live(value)}
        self.tensors = {value: tensors for value, tensors in self.tensors.items() if live(value)}


def reaching(plan: m.ExecutionPlan, delegate_inputs: DelegateInputs, persistent: Iterable[int] = ()) -> Reaching:
    """Follow a method over all its paths until nothing new is found.

    ``persistent`` are tensors that have a place even if no instruction, input or output refers to them. Raises
    :class:`~etdev.errors.LinkError` for a method whose control flow is too large.
    """
    return _Analysis(plan, delegate_inputs, persistent).run()


def _places(plan: m.ExecutionPlan, persistent: Iterable[int]) -> dict[int, Place]:
    """Return the place of each planned tensor that is used or persistent, bounded in size and nonempty."""
    found = {}
    for index in sorted({*used_values(plan), *persistent}):
        tensor = plan.values[index]
        if not isinstance(tensor, m.Tensor):
            continue
        allocation = tensor.allocation_info
        unbounded = tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND
        if allocation is not None and not unbounded and tensor.nbytes:
            start = allocation.memory_offset
            found[index] = Place(allocation.memory_id, start, start + tensor.nbytes)
    return found


class _Analysis:
    def __init__(self, plan: m.ExecutionPlan, delegate_inputs: DelegateInputs, persistent: Iterable[int]) -> None:
        self._plan = plan
        self._flow = flow_graph(plan)
        self._effects = tuple(
            effects(plan, call, delegate_inputs.get(position)) for position, call in enumerate(self._flow.instructions)
        )
        self._places = _places(plan, persistent)
        self._memory = Memory({value: (item.buffer, item.start, item.end) for value, item in self._places.items()})
        self._live: References = references(plan, self._flow, self._effects)
        self._set: set[int] = {pair[1] for found in self._effects for pair in (found.move, found.view) if pair}
        self._cycles = self._flow.cycles()
        self._loops = self._flow.loops()
        self._first_fill: dict[tuple[int, int], int] = {}
        """Place and cycle → first position in the cycle that fills the place."""
        self._writes: list[Write] = []
        self._numbers: dict[Write, int] = {}
        """Write → its number: 1 + its index in the list."""
        self._uses: list[Use] | None = None
        self._elsewhere: set[tuple[int, int]] = set()
        self._steps = 0

    def run(self) -> Reaching:
        order = self._flow.order()
        left = _Left()
        while True:
            entries = self._settle(order, self._entry(left))
            over = self._left_over(entries.get(self._flow.exit))
            if over == left:
                break
            left = over
        self._uses = []
        for block in order:
            self._run_block(block, entries[block])
        end = entries.get(self._flow.exit) or self._entry(left)
        for value in tensors(self._plan, self._plan.outputs):
            self._read(end, len(self._flow.instructions), value)
        return Reaching(
            flow=self._flow,
            effects=self._effects,
            places=self._places,
            writes=tuple(self._writes),
            uses=tuple(self._uses),
            elsewhere=frozenset(self._elsewhere),
            at_exit=partial(self._memory.of, end.memory),
            references=frozenset(self._set),
        )

    def _entry(self, left: _Left) -> _State:
        """Return the state at the start of this or of a later call, after the caller has filled the inputs."""
        state = _State(UNWRITTEN)
        for value, targets in left.targets.items():
            state.targets[value] = {target: self._content(state, target) for target in targets}
            state.targets[value] |= self._own(state, value)
        for value, others in left.tensors.items():
            state.tensors[value] = others | {value}
        for value in tensors(self._plan, self._plan.inputs):
            self._write(state, -1, value, Kind.ALL)
        return state

    def _left_over(self, end: _State | None) -> _Left:
        if end is None:
            return _Left()
        kept = end.copy()
        kept.keep(self._live.at_start)
        return _Left({value: frozenset(targets) for value, targets in kept.targets.items()}, kept.tensors)

    def _settle(self, order: Sequence[int], entry: _State) -> dict[int, _State]:
        """Return the state before each block, and at the exit."""
        first = order[0] if order else self._flow.exit
        entries = {first: entry}
        rank = {block: number for number, block in enumerate(order)}
        waiting = [0] if order else []
        waits = set(waiting)
        while waiting:
            number = heappop(waiting)
            waits.remove(number)
            block = order[number]
            state = self._run_block(block, entries[block])
            for successor in self._flow.blocks[block].successors:
                self._count(1 + len(state.targets))
                known = entries.get(successor)
                both = state.copy() if known is None else self._join(known, state)
                if both != known:
                    entries[successor] = both
                    if successor != self._flow.exit and rank[successor] not in waits:
                        waits.add(rank[successor])
                        heappush(waiting, rank[successor])
        return entries

    def _count(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise LinkError(
                f"the control flow of method {self._plan.name!r} is too large to be followed: "
                f"{len(self._flow.blocks):,} blocks over {len(self._places):,} places in memory",
                hint="split the method, or keep the plan that the file has",
            )

    def _join(self, one: _State, other: _State) -> _State:
        memory = joined(one.memory, other.memory, self._either)
        targets = {}
        for value in one.targets.keys() | other.targets.keys():
            mine, theirs = (self._targets(state, value) for state in (one, other))
            common = {target: joined(mine[target], theirs[target], self._either) for target in mine.keys() & theirs}
            targets[value] = {**mine, **theirs, **common}
        same = {
            value: one.tensors.get(value, frozenset({value})) | other.tensors.get(value, frozenset({value}))
            for value in one.tensors.keys() | other.tensors.keys()
        }
        return _State(memory, targets, same)

    def _either(self, one: Writes, other: Writes) -> Writes:
        """Return the union of two sets of writes. Reuse the object of one of them if it has all writes."""
        self._count(_TREE + len(one))
        if one >= other:
            return one
        both = one | other
        return both if len(both) > len(other) else other

    # One instruction

    def _run_block(self, number: int, entry: _State) -> _State:
        state = entry.copy()
        block = self._flow.blocks[number]
        for position in range(block.start, block.end):
            self._run(state, position, self._effects[position])
        state.keep(partial(self._live.after, number))
        return state

    def _run(self, state: _State, position: int, found: Effects) -> None:
        for value in found.reads:
            self._read(state, position, value)
        for kind, values in ((Kind.ALL, found.writes), (Kind.SOME, found.updates), (Kind.FILL, found.fills)):
            for value in values:
                self._write(state, position, value, kind)
        if found.view:
            of, out = found.view
            self._set_view(state, of, out)
        if found.move:
            origin, to = found.move
            state.targets[to] = self._targets(state, origin)
            state.tensors[to] = state.tensors.get(origin, frozenset({origin}))

    def _set_view(self, state: _State, of: int, out: int) -> None:
        """Point the tensor that ``out`` is to the bytes of ``of``, and with it all values that are the same tensor."""
        owners = state.tensors.get(out, frozenset({out}))
        seen = self._targets(state, of)
        same = {out, *owners, *(value for value, others in state.tensors.items() if others & owners)}
        self._set |= same
        for value in same:
            certain = len(owners) == 1 and state.tensors.get(value, frozenset({value})) == owners
            kept = {} if certain else self._targets(state, value)
            state.targets[value] = {**kept, **seen}

    def _targets(self, state: _State, value: int) -> _Targets:
        """Return the possible places of a tensor, each with its content."""
        return state.targets[value] if value in state.targets else self._own(state, value)

    def _own(self, state: _State, value: int) -> _Targets:
        """Return the place of a tensor that no move and no view has set."""
        target = value if value in self._places else _ELSEWHERE
        return {target: self._content(state, target)}

    def _content(self, state: _State, target: int) -> Node:
        return UNWRITTEN if target == _ELSEWHERE else self._memory.part(state.memory, target)

    def _read(self, state: _State, position: int, value: int) -> None:
        if self._uses is None:
            return
        if value in state.targets:
            for target, contents in state.targets[value].items():
                if target == _ELSEWHERE:
                    self._elsewhere.add((position, value))
                else:
                    self._use(position, value, target, contents)
        elif value in self._places:
            self._use(position, value, value, state.memory)
        else:
            self._elsewhere.add((position, value))

    def _use(self, position: int, value: int, target: int, contents: Node) -> None:
        assert self._uses is not None
        self._uses.append(Use(position, value, target, self._memory.of(contents, target)))
        self._count(len(self._uses[-1].writes))

    def _write(self, state: _State, position: int, value: int, kind: Kind) -> None:
        targets = tuple(state.targets[value]) if value in state.targets else (value,)
        sure = kind if len(targets) == 1 else Kind.SOME
        for target in targets:
            if target not in self._places:  # Unplanned memory, or an empty tensor.
                continue
            self._count(_TREE + len(state.targets))
            number = self._number(position, target, kind, len(targets) == 1)
            keeps = self._filled_with(position, target) if sure is Kind.FILL else None
            if sure is Kind.ALL:
                self._write_everywhere(state, target, partial(self._memory.written, number))
            else:
                self._write_everywhere(state, target, partial(self._memory.added, number, keeps))

    def _write_everywhere(self, state: _State, place: int, write: Callable[[Node, Pieces], Node]) -> None:
        """Update every record of the content of a place's bytes."""
        start, end = self._memory.pieces[place]
        state.memory = write(state.memory, (start, end))
        for value, targets in state.targets.items():
            changed = {}
            for target, contents in targets.items():
                if target != _ELSEWHERE:
                    first, last = self._memory.pieces[target]
                    if first < end and start < last:
                        changed[target] = write(contents, (max(start, first), min(end, last)))
            if changed:
                state.targets[value] = {**targets, **changed}

    def _filled_with(self, position: int, place: int) -> Callable[[int], bool]:
        """Return which of a place's earlier writes survive a fill: earlier fills, and writes to it in between.

        The remainder of the place is don't-care, whichever write before the first fill it comes from.
        """
        cycle = self._cycles[position]
        first = -1 if cycle in self._loops else self._first_fill[place, cycle]

        def keeps(number: int) -> bool:
            if number == BEFORE:
                return False
            write = self._writes[number - 1]
            return write.place == place or (write.position > first and self._cycles[write.position] == cycle)

        return keeps

    def _number(self, position: int, place: int, kind: Kind, certain: bool) -> int:
        write = Write(position, place, kind, certain)
        if write not in self._numbers:
            self._writes.append(write)
            self._numbers[write] = len(self._writes)
            if kind is Kind.FILL:
                key = place, self._cycles[position]
                self._first_fill[key] = min(position, self._first_fill.get(key, position))
        return self._numbers[write]
