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
from dataclasses import replace

from etdev.decisions import InPlace
from etdev.linker.joined import Refused, Storages
from etdev.linker.operands import Operands
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import outputs
from etdev.program.analysis.inplace import Donor


def work_in_place(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Merge outputs into operands, as the table of kernels allows.

    This leaves outputs with operands in state to the write-back pass, and to :func:`work_in_place_again`.
    """
    return _decided(method, options, again=False)


def work_in_place_again(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Decide about the outputs that were left."""
    return _decided(method, options, again=True)


def _decided(method: Method, options: LinkOptions, *, again: bool) -> Changed:
    storages = method.merging()
    work = _Work(storages, options.inplace, again=again)
    for position, call, name in method.kernels():
        work.consider(position, call, name)
    return Changed(replace(method, storages=storages), decisions=work.decisions)


class _OutputRefused(Refused):
    """The reason for keeping an output in its own storage."""


class _Work:
    def __init__(self, storages: Storages, table: Mapping[str, Sequence[Donor]], *, again: bool) -> None:
        self.storages = storages
        self.decisions: list[InPlace] = []
        self._plan, self._memory = storages.plan, storages.memory
        self._operands = Operands(storages, table)
        self._again = again

    def consider(self, position: int, call: m.KernelCall, name: str) -> None:
        """Decide about each output of one call."""
        for output, out in enumerate(outputs(self._plan, call.args)):
            positions = self._operands.donors(call, output)
            if not positions or (self._again and (position, output) not in self.storages.left):
                continue
            found = self._decide(position, out, positions)
            if found is None:
                self.storages.left.add((position, output))
                continue
            self.decisions.append(InPlace(position, name, output, found[0], self.storages.tensor(out).nbytes, found[1]))

    def _decide(self, position: int, out: int, positions: Sequence[int]) -> tuple[int | None, str] | None:
        """Return the argument that an output reuses, or None and the reason. Return None to leave the output."""
        reasons = []
        places: dict[int, int] = {}
        for argument in positions:
            try:
                places[argument] = self._operands.place(position, argument, out, positions)
            except Refused as reason:
                reasons.append(f"argument {argument} {reason}")
        if not self._again and any(self.storages.at(place).persistent for place in places.values()):
            return None
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
        if not self.storages.tensor(out).nbytes:
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
        if not self.storages.fills(place) or self.storages.tensor(out).nbytes != given.size:
            raise Refused("is a part of another tensor")
        if given.end != position + 2:
            raise Refused("is needed afterwards")
