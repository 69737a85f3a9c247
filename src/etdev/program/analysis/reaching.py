"""Data-flow analysis: the place of each tensor at each instruction, and the writes that may have produced its bytes.

A tensor is at its own place, the allocation in the file, until a move or a view changes that. After a move, the value
is another tensor. After a view, the tensor shares another tensor's bytes. So after a ``cond``, a value may be one of
several tensors, depending on the branch taken. The analysis keeps a separate record for each of these tensors. A record
covers only the paths on which the value is that tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from heapq import heappop, heappush
from typing import TypeAlias

from etdev.errors import LinkError
from etdev.program import model as m
from etdev.program.analysis.contents import BEFORE, UNWRITTEN, Memory, Pieces, Writes
from etdev.program.analysis.effects import DelegateInputs, Effects, effects, tensors
from etdev.program.analysis.flow import FlowGraph, flow_graph
from etdev.program.analysis.persistent import Node, joined, room
from etdev.program.analysis.pointers import ELSEWHERE, Layout, Pointer, Pointers, Targets
from etdev.program.analysis.references import References, references
from etdev.program.used import used_values

_MOST_STEPS = 30_000_000
"""Maximum number of steps of an analysis; further steps raise an error. Visiting a place or a write is a step."""
_TREE = 10
"""One change of a persistent map counts as this number of steps."""


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
    """Position of the instruction, or -1 if the caller fills an input."""
    place: int
    """Value that owns the written place."""
    kind: Kind
    certain: bool
    """True if the write goes to this place on every path to the instruction."""


@dataclass(frozen=True, slots=True)
class Use:
    """A read of a tensor by an instruction, or by the caller, who receives an output."""

    position: int
    """Position of the instruction, or the number of instructions if the caller reads an output."""
    value: int
    """Tensor that is read."""
    place: int
    """Value that owns the place of the tensor's bytes."""
    writes: Writes
    """Numbers of the writes that may have produced the bytes. A number is 1 + an index into :attr:`Reaching.writes`."""


@dataclass(frozen=True, slots=True)
class Reaching:
    """Result of the analysis: the writes that reach each read of planned memory."""

    flow: FlowGraph
    effects: tuple[Effects, ...]
    """Effects of each instruction, by position."""
    places: Mapping[int, Place]
    """Maps the value index of a tensor to its place in planned memory. Empty tensors have no place."""
    writes: tuple[Write, ...]
    uses: tuple[Use, ...]
    elsewhere: frozenset[tuple[int, int]]
    """Position and tensor of each read that reaches unplanned memory on at least one path."""
    at_exit: Callable[[int], Writes]
    """Function that takes a place, and returns the writes that may have produced its bytes at the method's end."""
    references: frozenset[int]
    """Tensors that a move or a view sets, directly or through another value.

    On some or all paths, such a tensor is not at its place in the file.
    """


_Left: TypeAlias = dict[int, tuple[frozenset[int], frozenset[int]]]
"""For each value that the next call may read before setting it: its possible places and tensors at a call's end."""


@dataclass(slots=True)
class _State:
    """Facts that hold at one point of a method."""

    memory: Node
    """Possible writers of each piece. See :mod:`etdev.program.analysis.contents`."""
    pointers: Pointers
    """Records of the values that a move or a view has set. Every other value is its own tensor, at its own place."""

    def copy(self) -> _State:
        return _State(self.memory, self.pointers.copy())


def reaching(plan: m.ExecutionPlan, delegate_inputs: DelegateInputs, persistent: Iterable[int] = ()) -> Reaching:
    """Analyze a method on all its paths.

    ``persistent`` contains tensors that have a place even if no instruction, input or output refers to them. Raises
    :class:`~etdev.errors.LinkError` for a method whose control flow is too large.
    """
    return _Analysis(plan, delegate_inputs, persistent).run()


def _places(plan: m.ExecutionPlan, persistent: Iterable[int]) -> dict[int, Place]:
    """Return the place of each planned tensor that is used or persistent. Omit unbounded and empty tensors."""
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
        views = any(found.view for found in self._effects)
        self._layout = Layout(self._memory.pieces, self._memory.size, room(len(plan.values)), views)
        self._live: References = references(plan, self._flow, self._effects)
        self._pointing: set[int] = {pair[1] for found in self._effects for pair in (found.move, found.view) if pair}
        self._cycles = self._flow.cycles()
        self._loops = self._flow.loops()
        self._first_fill: dict[tuple[int, int], int] = {}
        """Maps a place and a cycle to the first position in the cycle that fills the place."""
        self._writes: list[Write] = []
        self._numbers: dict[Write, int] = {}
        """Maps a write to its number: 1 + its index in ``_writes``."""
        self._uses: list[Use] = []
        """Read accesses in the current block."""
        self._elsewhere: list[tuple[int, int]] = []
        """Read accesses to unplanned memory in the current block, as pairs: position, tensor."""
        self._reads: dict[int, tuple[list[Use], list[tuple[int, int]]]] = {}
        """Maps a block, or the exit, to the ``_uses`` and ``_elsewhere`` of the most recent visit."""
        self._steps = 0

    def run(self) -> Reaching:
        order, last = self._flow.order(), self._flow.exit
        left: _Left = {}
        while True:
            entries = self._settle(order, self._entry(left))
            over = self._left_over(entries.get(last))
            if over == left:
                break
            left = over
        end = entries.get(last) or self._entry(left)
        self._start_reads(last)
        for value in tensors(self._plan, self._plan.outputs):
            self._read(end, len(self._flow.instructions), value)
        return Reaching(
            flow=self._flow,
            effects=self._effects,
            places=self._places,
            writes=tuple(self._writes),
            uses=tuple(use for block in (*order, last) for use in self._reads[block][0]),
            elsewhere=frozenset(read for block in (*order, last) for read in self._reads[block][1]),
            at_exit=partial(self._memory.of, end.memory),
            references=frozenset(self._pointing),
        )

    def _entry(self, left: _Left) -> _State:
        """Return the state after the caller has filled the inputs. ``left`` describes the end of the previous call."""
        state = _State(UNWRITTEN, Pointers(self._layout))
        for value, (places, others) in left.items():
            targets = {target: self._content(state, target) for target in places} | self._own(state, value)
            state.pointers.put(Pointer(value, targets, others | {value}))
        for value in tensors(self._plan, self._plan.inputs):
            self._write(state, -1, value, Kind.ALL)
        return state

    def _left_over(self, end: _State | None) -> _Left:
        return {
            item.value: (frozenset(item.targets), item.tensors)
            for item in (end.pointers if end else ())
            if self._live.at_start(item.value)
        }

    def _settle(self, order: Sequence[int], entry: _State) -> dict[int, _State]:
        """Analyze all blocks. Return the state before the exit and, if the method has loops, before each block."""
        entries = {order[0] if order else self._flow.exit: entry}
        rank = {block: number for number, block in enumerate(order)}
        waiting = [0] if order else []
        waits = set(waiting)
        while waiting:
            number = heappop(waiting)
            waits.remove(number)
            block = order[number]
            # Without loops, each block is visited once, so its state at entry is not needed afterwards.
            state = self._run_block(block, entries[block] if self._loops else entries.pop(block))
            for successor in self._flow.blocks[block].successors:
                self._count(_TREE)
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
                f"the control flow of method {self._plan.name!r} is too large to analyze: "
                f"{len(self._flow.blocks):,} blocks, {len(self._places):,} places in memory",
                hint="split the method into smaller methods, or ship the file as it is, without a relink",
            )

    def _join(self, one: _State, other: _State) -> _State:
        def join(mine: Pointer | None, theirs: Pointer | None) -> Pointer:
            return self._joined(mine or self._itself(one, theirs), theirs or self._itself(other, mine))

        return _State(joined(one.memory, other.memory, self._either), one.pointers.joined(other.pointers, join))

    def _itself(self, state: _State, other: Pointer | None) -> Pointer:
        """Return a record for a value that has none in ``state``. ``other`` is the value's record on another path."""
        assert other is not None
        return Pointer(other.value, self._own(state, other.value), frozenset({other.value}))

    def _joined(self, one: Pointer, other: Pointer) -> Pointer:
        self._count(_TREE + len(one.targets))
        mine, theirs = one.targets, other.targets
        common = {target: joined(mine[target], theirs[target], self._either) for target in mine if target in theirs}
        return Pointer(one.value, {**mine, **theirs, **common}, one.tensors | other.tensors)

    def _either(self, one: Writes, other: Writes) -> Writes:
        """Return the union of two sets of writes. If one of the sets equals the union, return that object."""
        self._count(_TREE + len(one))
        if one >= other:
            return one
        both = one | other
        return both if len(both) > len(other) else other

    # One instruction

    def _run_block(self, number: int, entry: _State) -> _State:
        state = entry.copy()
        block = self._flow.blocks[number]
        self._start_reads(number)
        for position in range(block.start, block.end):
            self._run(state, position, self._effects[position])
        state.pointers.keep(partial(self._live.after, number), self._live.dropped(number))
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
            state.pointers.put(Pointer(to, self._targets(state, origin), self._tensors(state, origin)))

    def _set_view(self, state: _State, of: int, out: int) -> None:
        """Record that ``out`` is a view of ``of``. Update all values that may be the same tensor as ``out``."""
        owners = self._tensors(state, out)
        seen = self._targets(state, of)
        same = {out, *owners, *state.pointers.same(owners)}
        self._pointing |= same
        for value in same:
            others = self._tensors(state, value)
            certain = len(owners) == 1 and others == owners
            kept = {} if certain else self._targets(state, value)
            state.pointers.put(Pointer(value, {**kept, **seen}, others))

    def _tensors(self, state: _State, value: int) -> frozenset[int]:
        """Return the value indices of the tensors to which a value may refer."""
        known = state.pointers.get(value)
        return known.tensors if known else frozenset({value})

    def _targets(self, state: _State, value: int) -> Targets:
        """Return the possible places of a tensor, each with the content of the place."""
        known = state.pointers.get(value)
        return known.targets if known else self._own(state, value)

    def _own(self, state: _State, value: int) -> dict[int, Node]:
        """Return a tensor's place in the file, with the content. The tensor must not be set by a move or a view."""
        target = value if value in self._places else ELSEWHERE
        return {target: self._content(state, target)}

    def _content(self, state: _State, target: int) -> Node:
        return UNWRITTEN if target == ELSEWHERE else self._memory.part(state.memory, target)

    def _start_reads(self, block: int) -> None:
        self._reads[block] = self._uses, self._elsewhere = [], []

    def _read(self, state: _State, position: int, value: int) -> None:
        known = state.pointers.get(value)
        if known is not None:
            for target, contents in known.targets.items():
                if target == ELSEWHERE:
                    self._elsewhere.append((position, value))
                else:
                    self._use(position, value, target, contents)
        elif value in self._places:
            self._use(position, value, value, state.memory)
        else:
            self._elsewhere.append((position, value))

    def _use(self, position: int, value: int, target: int, contents: Node) -> None:
        self._uses.append(Use(position, value, target, self._memory.of(contents, target)))
        self._count(len(self._uses[-1].writes))

    def _write(self, state: _State, position: int, value: int, kind: Kind) -> None:
        known = state.pointers.get(value)
        targets = tuple(known.targets) if known else (value,)
        sure = kind if len(targets) == 1 else Kind.SOME
        for target in targets:
            if target not in self._places:  # Unplanned memory, or an empty tensor.
                continue
            self._count(_TREE)
            number = self._number(position, target, kind, len(targets) == 1)
            keeps = self._filled_with(position, target) if sure is Kind.FILL else None
            if sure is Kind.ALL:
                self._write_everywhere(state, target, partial(self._memory.written, number))
            else:
                self._write_everywhere(state, target, partial(self._memory.added, number, keeps))

    def _write_everywhere(self, state: _State, place: int, write: Callable[[Node, Pieces], Node]) -> None:
        """Apply ``write`` both to the planned memory and to every record that includes bytes of ``place``."""
        pieces = self._memory.pieces[place]
        state.memory = write(state.memory, pieces)
        for value in state.pointers.over(pieces):
            self._count(_TREE)
            known = state.pointers.get(value)
            assert known is not None
            targets = dict(known.targets)
            for target, contents in known.targets.items():
                first, last = self._memory.inside(target, pieces) if target != ELSEWHERE else (0, 0)
                if first < last:
                    targets[target] = write(contents, (first, last))
            state.pointers.put(Pointer(value, targets, known.tensors))

    def _filled_with(self, position: int, place: int) -> Callable[[int], bool]:
        """Return a function that takes the number of a write, and returns True if the write stays visible after a fill.

        Earlier writes to the same place stay visible. In a loop, all writes of the loop stay visible, too. Outside of
        loops, writes after the block's first fill of the place also stay visible. All other content is don't-care.
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
