"""Removal of write-backs: new contents of state are computed in place, and the ``copy_`` into the state is removed.

``index_put``, ``add`` and other kernels compute the new content of a buffer into a temporary of the same size. Then
``copy_`` overwrites the buffer with it. The pass merges the temporary into the buffer instead, if

1. the buffer is neither read nor written during the lifetime of the temporary. The ``copy_`` itself is exempt. So is
   the instruction that begins to compute the temporary, as far as its kernel may work in place;
2. the instructions from the first to the ``copy_`` always run one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from etdev.decisions import Elision
from etdev.linker.joined import Joined, Refused, Storages
from etdev.linker.operands import Operands
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import outputs
from etdev.program.analysis.inplace import Donor

_COPY = "aten::copy_"


def elide_write_backs(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Remove the copies into state, as far as kernels may write an output over an operand."""
    if "write_back" not in options.elide:
        return Changed(method)
    storages = method.merging()
    backs = _WriteBacks(storages, options.inplace)
    decisions = []
    for position, call, name in method.kernels():
        if name != _COPY or not backs.is_to_state(call):
            continue
        size = storages.tensor(call.args[0]).nbytes
        try:
            backs.consider(position, call)
        except Refused as reason:
            decisions.append(Elision(position, _COPY, "kept", size, str(reason), "write_back"))
        else:
            storages.changed[position] = ()
            decisions.append(Elision(position, _COPY, "placed", size, kind="write_back"))
    return Changed(replace(method, storages=storages), decisions=decisions)


class _WriteBacks:
    def __init__(self, storages: Storages, table: Mapping[str, Sequence[Donor]]) -> None:
        self.storages = storages
        self._plan, self._memory = storages.plan, storages.memory
        memory = storages.memory
        self._operands = Operands(storages, table)
        self._reads: dict[int, set[int]] = defaultdict(set)
        """Storage → instants at which it is read."""
        for use in memory.reaching.uses:
            self._reads[memory.of[use.place]].add(use.position + 1)
        self._block = [
            number for number, block in enumerate(memory.reaching.flow.blocks) for _ in range(block.start, block.end)
        ]

    def is_to_state(self, call: m.KernelCall) -> bool:
        """Return whether the call writes all of a piece of state."""
        if len(call.args) != 4 or call.args[0] != call.args[3]:
            return False
        found = self.storages.of(call.args[0])
        return found is not None and found.persistent and self.storages.fills(call.args[0])

    def consider(self, position: int, call: m.KernelCall) -> None:
        """Merge the source of a copy into the state. Raise :class:`~etdev.linker.joined.Refused` if that is unsafe."""
        state, source = call.args[:2]
        if state in self._memory.reaching.references:
            raise Refused("which state it is depends on the branch taken")
        place = self._require_whole(position, state, source)
        kept, temporary = self.storages.at(state), self.storages.at(place)
        if kept.writes != [position + 1]:
            raise Refused("the state is written more than once")
        first = temporary.start - 1
        self._require_together(position, first, temporary)
        self._require_unused(position, first, kept, temporary)
        if temporary.start in self._instants(kept):
            self._require_in_place(first, kept, temporary)
        self.storages.lay(temporary, kept)

    def _require_whole(self, position: int, state: int, source: int) -> int:
        """Return the value in whose place the source is. Raise an error unless it is a temporary like the state."""
        to, of = self.storages.tensor(state), self._plan.values[source]
        if not isinstance(of, m.Tensor) or of.is_constant:
            raise Refused("what it copies is a constant")
        try:
            place = self.storages.place_read(position, source)
        except Refused as reason:
            raise Refused(f"what it copies {reason}") from None
        found = self.storages.at(place)
        if found.persistent:
            raise Refused("what it copies is state, too")
        if {to.shape_dynamism, of.shape_dynamism} != {m.TensorShapeDynamism.STATIC}:
            raise Refused("its sizes are known at run time only")
        if (to.scalar_type, to.sizes, to.dim_order) != (of.scalar_type, of.sizes, of.dim_order):
            raise Refused("it changes the element type or the shape")
        if not self.storages.fills(place) or of.nbytes != found.size:
            raise Refused("what it copies is a part of another tensor")
        if place in self._memory.reaching.references:
            raise Refused("where what it copies lies is known at run time only")
        return place

    def _require_together(self, position: int, first: int, temporary: Joined) -> None:
        """Raise an error unless the temporary is computed in the same block as the copy, and before it."""
        if first < 0:
            raise Refused("what it copies is an input")
        if any(self._block[write - 1] != self._block[position] for write in temporary.writes):
            raise Refused("what it copies is computed in another branch")
        if temporary.writes[-1] > position:
            raise Refused("what it copies is written again afterwards")

    def _require_unused(self, position: int, first: int, kept: Joined, temporary: Joined) -> None:
        allowed = {first + 1, position + 1}
        if any(first + 1 <= instant < temporary.end for instant in set(self._instants(kept)) - allowed):
            raise Refused("the state is needed as it was, or changed, while what it copies is in use")

    def _instants(self, joined: Joined) -> Iterator[int]:
        """Yield the instants at which any of these storages is read or written."""
        yield from joined.writes
        for number in joined.members:
            yield from self._reads[number]

    def _require_in_place(self, first: int, kept: Joined, temporary: Joined) -> None:
        """Raise an error unless the instruction that reads the state may write its output over it."""
        call = self._memory.reaching.flow.instructions[first]
        reason = "its kernel may not work in place"
        for output, out in enumerate(outputs(self._plan, call.args) if isinstance(call, m.KernelCall) else ()):
            assert isinstance(call, m.KernelCall)
            if self.storages.of(out) is not temporary:
                continue
            positions = self._operands.donors(call, output)
            for argument in positions:
                try:
                    place = self._operands.place(first, argument, out, positions)
                except Refused as refused:
                    reason = f"argument {argument} {refused}"
                    continue
                if self.storages.at(place) is kept and self.storages.fills(place) and self.storages.fills(out):
                    return
        raise Refused(f"what computes it reads the state: {reason}")
