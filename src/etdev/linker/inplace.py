"""In place: the output of a kernel takes over the bytes of an operand that nobody needs any more.

1. The kernel gives the same result if the two are one: a property of the operator and of the position of the operand,
   which :mod:`etdev.program.inplace` has.
2. Output and operand have one element type, one order of dimensions and, whatever the sizes are at run time, one shape:
   an operand that is broadcast is read again after it was written over.
3. The operand is nobody else's: no constant, no memory of the caller, no state; and no other argument of the call lies
   in the same bytes, unless it is the same tensor at a position that allows it as well.
4. The instruction is the last that needs anything of the operand's storage, and the first that writes any of the
   output's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etdev.decisions import InPlace
from etdev.linker.joined import Refused, Storages
from etdev.linker.operands import Operands
from etdev.program import model as m
from etdev.program.effects import operator_name, outputs
from etdev.program.inplace import Donor


def work_in_place(
    storages: Storages, table: Mapping[str, Sequence[Donor]], before: Sequence[InPlace] = ()
) -> tuple[InPlace, ...]:
    """Lay outputs over the operands that ``table`` allows; gives what was decided about each call of its operators.

    ``before``: what was decided when those that read state were left for a write-back, which comes first.
    """
    work = _Work(storages, table, {(found.instruction, found.output): found for found in before})
    for position, call in enumerate(storages.memory.reaching.flow.instructions):
        if isinstance(call, m.KernelCall):
            work.consider(position, call)
    return tuple(work.decisions)


class _OutputRefused(Refused):
    """Why an output has to be where it is."""


LEFT = "it is left for a write-back"
"""Why an output is not laid over an operand: it may be laid over state, which is another one."""


class _Work:
    def __init__(
        self,
        storages: Storages,
        table: Mapping[str, Sequence[Donor]],
        before: Mapping[tuple[int, int], InPlace],
    ) -> None:
        self.storages = storages
        self.decisions: list[InPlace] = []
        self._plan, self._memory = storages.plan, storages.memory
        self._operands = Operands(storages, table)
        self._before = before

    def consider(self, position: int, call: m.KernelCall) -> None:
        """Decide about one call, for each of its outputs."""
        for output, out in enumerate(outputs(self._plan, call.args)):
            positions = self._operands.donors(call, output)
            if not positions:
                continue
            before = self._before.get((position, output))
            if before is not None and before.reason != LEFT:
                self.decisions.append(before)
                continue
            argument, reason = self._decide(position, out, positions, again=before is not None)
            name = operator_name(self._plan.operators[call.op_index])
            self.decisions.append(InPlace(position, name, output, argument, self._tensor(out).nbytes, reason))

    def _decide(self, position: int, out: int, positions: Sequence[int], *, again: bool) -> tuple[int | None, str]:
        """The argument that an output takes over; or why it takes none."""
        reasons = []
        places: dict[int, int] = {}
        for argument in positions:
            try:
                places[argument] = self._operands.place(position, argument, out, positions)
            except Refused as reason:
                reasons.append(f"argument {argument} {reason}")
        if not again and any(self.storages.at(place).persistent for place in places.values()):
            return None, LEFT
        for argument, place in places.items():
            if self.storages.of(out) is self.storages.at(place):
                return argument, ""  # A write-back has laid it there.
        for argument, place in places.items():
            try:
                self._require_new(position, out)
                self._require_dying(position, place, out)
            except _OutputRefused as reason:
                return None, str(reason)
            except Refused as reason:
                reasons.append(f"argument {argument} {reason}")
            else:
                self.storages.lay(self.storages.at(out), self.storages.at(place))
                return argument, ""
        return None, "; ".join(sorted(reasons))

    # What must hold

    def _require_new(self, position: int, out: int) -> None:
        """The output's storage begins here, and is the output's alone."""
        if not self._tensor(out).nbytes:
            raise _OutputRefused("it writes nothing")
        taken = self.storages.of(out)
        if taken is None:
            raise _OutputRefused("the memory of its output is not planned")
        if out in self._memory.reaching.references:
            raise _OutputRefused("where its output lies is known at run time only")
        if taken.persistent:
            raise _OutputRefused("its output is state")
        if not self.storages.fills(out):
            raise _OutputRefused("its output is a part of another tensor")
        if taken.start != position + 1:
            raise _OutputRefused("the memory of its output is in use before")

    def _require_dying(self, position: int, place: int, out: int) -> None:
        """Nobody needs what the operand lies in any more."""
        given, taken = self.storages.at(place), self.storages.at(out)
        if given.persistent:
            raise Refused("is state, which is kept between calls")
        if self.storages.memory_id(given) != self.storages.memory_id(taken):
            raise Refused("is in another buffer")
        if not self.storages.fills(place) or self._tensor(out).nbytes != given.size:
            raise Refused("is a part of another tensor")
        if given.end != position + 2:
            raise Refused("is needed afterwards")

    def _tensor(self, index: int) -> m.Tensor:
        tensor = self._plan.values[index]
        assert isinstance(tensor, m.Tensor)
        return tensor
