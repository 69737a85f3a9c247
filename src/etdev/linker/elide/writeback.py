"""Removal of write-backs: kernels compute the new content of state in place, without a ``copy_`` afterwards.

``index_put``, ``add`` and other kernels compute the new content of a buffer into a temporary of the same size. Then
``copy_`` overwrites the buffer with the temporary. The pass merges the temporary into the buffer instead, under two
conditions:

1. No instruction accesses the buffer while the temporary is in use. The ``copy_`` itself is exempt. The first
   instruction that computes the temporary is also exempt if its kernel may work in place.
2. All instructions that write the temporary are in the block of the ``copy_``, before the ``copy_``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from etdev.decisions import Elision
from etdev.linker.merged import MergedStorage, Refused, Storages
from etdev.linker.operands import Operands
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import outputs
from etdev.program.analysis.inplace import Donor

_COPY = "aten::copy_"


def elide_write_backs(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Remove each ``copy_`` into state, if the copy's source can be computed in the bytes of the state."""
    if "write_back" not in options.elide:
        return Changed(method)
    storages = method.storage_record()
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
        """Maps each storage to the instants at which an instruction reads it."""
        for use in memory.reaching.uses:
            self._reads[memory.of[use.place]].add(use.position + 1)
        self._block = [
            number for number, block in enumerate(memory.reaching.flow.blocks) for _ in range(block.start, block.end)
        ]

    def is_to_state(self, call: m.KernelCall) -> bool:
        """Return whether a ``copy_`` overwrites all bytes of a piece of state."""
        if len(call.args) != 4 or call.args[0] != call.args[3]:
            return False
        found = self.storages.storage_of(call.args[0])
        return found is not None and found.persistent and self.storages.fills_storage(call.args[0])

    def consider(self, position: int, call: m.KernelCall) -> None:
        """Merge the source of a ``copy_`` into the state. Raise ``Refused`` if that is unsafe."""
        state, source = call.args[:2]
        if state in self._memory.reaching.references:
            raise Refused("the state that it writes depends on the branch taken")
        place = self._require_whole(position, state, source)
        kept, temporary = self.storages.storage_at(state), self.storages.storage_at(place)
        if kept.writes != [position + 1]:
            raise Refused("the state is written more than once")
        first = temporary.start - 1
        self._require_same_block(position, first, temporary)
        self._require_unused(position, first, kept, temporary)
        if temporary.start in self._instants(kept):
            self._require_in_place(first, kept, temporary)
        self.storages.merge(temporary, kept)

    def _require_whole(self, position: int, state: int, source: int) -> int:
        """Return the value at whose address ``source`` is located.

        Raise ``Refused`` unless that value is a temporary with the shape and type of the state.
        """
        to, of = self.storages.tensor(state), self._plan.values[source]
        if not isinstance(of, m.Tensor) or of.is_constant:
            raise Refused("its source is a constant")
        try:
            place = self.storages.place_when_read(position, source)
        except Refused as reason:
            raise Refused(f"its source {reason}") from None
        found = self.storages.storage_at(place)
        if found.persistent:
            raise Refused("its source is state too")
        if not (to.is_static and of.is_static):
            raise Refused("its sizes are known only at run time")
        if (to.scalar_type, to.sizes, to.dim_order) != (of.scalar_type, of.sizes, of.dim_order):
            raise Refused("it changes the element type or the shape")
        if not self.storages.fills_storage(place) or of.nbytes != found.size:
            raise Refused("its source is a part of another tensor")
        if place in self._memory.reaching.references:
            raise Refused("the address of its source is known only at run time")
        return place

    def _require_same_block(self, position: int, first: int, temporary: MergedStorage) -> None:
        """Raise ``Refused`` unless all writes to the temporary precede the ``copy_`` in the same block."""
        if first < 0:
            raise Refused("its source is an input")
        if any(self._block[write - 1] != self._block[position] for write in temporary.writes):
            raise Refused("its source is computed in another branch")
        if temporary.writes[-1] > position:
            raise Refused("its source is written again afterwards")

    def _require_unused(self, position: int, first: int, kept: MergedStorage, temporary: MergedStorage) -> None:
        allowed = {first + 1, position + 1}
        if any(first + 1 <= instant < temporary.end for instant in set(self._instants(kept)) - allowed):
            raise Refused("the state is read or written while its source is in use")

    def _instants(self, storage: MergedStorage) -> Iterator[int]:
        """Yield the instants at which an instruction reads or writes a storage or the storages merged into it."""
        yield from storage.writes
        for number in storage.members:
            yield from self._reads[number]

    def _require_in_place(self, first: int, kept: MergedStorage, temporary: MergedStorage) -> None:
        """Raise ``Refused`` unless the kernel at ``first`` reads the state and may write its output over the state."""
        call = self._memory.reaching.flow.instructions[first]
        reason = "its kernel may not work in place"
        for output, out in enumerate(outputs(self._plan, call.args) if isinstance(call, m.KernelCall) else ()):
            assert isinstance(call, m.KernelCall)
            if self.storages.storage_of(out) is not temporary:
                continue
            positions = self._operands.donors(call, output)
            for argument in positions:
                try:
                    place = self._operands.place(first, argument, out, positions)
                except Refused as refused:
                    reason = f"argument {argument} {refused}"
                    continue
                if (
                    self.storages.storage_at(place) is kept
                    and self.storages.fills_storage(place)
                    and self.storages.fills_storage(out)
                ):
                    return
        raise Refused(f"the instruction that computes its source reads the state: {reason}")
