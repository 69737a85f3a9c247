"""In place: the output of a kernel reuses the bytes of an operand that is not needed any more.

1. The kernel returns the same result if the two are one. That is a property of the operator and of the operand's
   position. :mod:`etdev.program.analysis.inplace` has the table.
2. Output and operand have the same element type and the same order of dimensions. They have the same shape for all
   sizes at run time. A broadcast operand would be read again after it was overwritten.
3. The operand is not a constant, not memory of the caller and not state. No other argument of the call is in the same
   bytes. The same tensor at another position is allowed if the kernel may write over that position too.
4. The instruction is the last that needs anything of the operand's storage, and the first that writes any of the
   output's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from etdev.decisions import InPlace
from etdev.linker.joined import Refused, Storages
from etdev.linker.operands import Operands
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name, outputs
from etdev.program.analysis.inplace import Donor


def work_in_place(
    storages: Storages, table: Mapping[str, Sequence[Donor]], before: Sequence[InPlace] = ()
) -> tuple[InPlace, ...]:
    """Merge outputs into the operands that ``table`` allows; return the decisions about calls of its operators.

    ``before`` are the decisions of an earlier run. That run left outputs with operands in state to the write-back pass.
    """
    work = _Work(storages, table, {(found.instruction, found.output): found for found in before})
    for position, call in enumerate(storages.memory.reaching.flow.instructions):
        if isinstance(call, m.KernelCall):
            work.consider(position, call)
    return tuple(work.decisions)


class _OutputRefused(Refused):
    """The reason for keeping an output in its own storage."""


LEFT = "it is left for a write-back"
"""Reason for not reusing an operand in state at first: the write-back pass may merge the output into state."""


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
        """Decide about each output of one call."""
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
        """Return the argument that an output reuses, or None and the reason."""
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
                return argument, ""  # The write-back pass has merged them.
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

    # Conditions

    def _require_new(self, position: int, out: int) -> None:
        """Raise an error unless the output's storage begins here and belongs to the output alone."""
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
        """Raise an error unless the operand's storage ends here."""
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
