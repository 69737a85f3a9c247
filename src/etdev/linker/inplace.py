"""In place: the output of a kernel reuses the bytes of an operand that no other instruction needs any more.

1. The kernel computes the same result if output and operand are the same bytes. That depends on the operator and on the
   operand's position. :mod:`etdev.program.analysis.inplace` has the table.
2. Output and operand have the same element type and the same order of dimensions. They have the same shape for all
   sizes at run time. A broadcast operand would be read again after it was overwritten.
3. The operand is not a constant, not memory of the caller and not state. No other argument of the call shares the
   operand's bytes. Exception: the same tensor may be passed again at a position that the kernel may also overwrite.
4. No later instruction uses the operand's storage. No earlier instruction writes to the output's storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from etdev.decisions import InPlace
from etdev.linker.merged import Refused, Storages
from etdev.linker.operands import Operands
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import outputs
from etdev.program.analysis.inplace import Donor


def work_in_place(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Let outputs reuse the bytes of operands, if the table of kernels allows the reuse.

    This pass skips outputs whose operands are in state. The write-back pass and :func:`work_in_place_again` handle
    these outputs.
    """
    return _decide_all(method, options, again=False)


def work_in_place_again(method: Method, work: Work, options: LinkOptions) -> Changed:
    """After the write-back pass, decide about the outputs that :func:`work_in_place` skipped."""
    return _decide_all(method, options, again=True)


def _decide_all(method: Method, options: LinkOptions, *, again: bool) -> Changed:
    storages = method.storage_record()
    work = _Decider(storages, options.inplace, again=again)
    for position, call, name in method.kernels():
        work.consider(position, call, name)
    return Changed(replace(method, storages=storages), decisions=work.decisions)


class _Decider:
    def __init__(self, storages: Storages, table: Mapping[str, Sequence[Donor]], *, again: bool) -> None:
        self.storages = storages
        self.decisions: list[InPlace] = []
        self._plan = storages.plan
        self._operands = Operands(storages, table)
        self._again = again

    def consider(self, position: int, call: m.KernelCall, name: str) -> None:
        """For each output of a call, decide whether it reuses the bytes of an operand. Record the decisions."""
        for output, out in enumerate(outputs(self._plan, call.args)):
            positions = self._operands.donors(call, output)
            if not positions or (self._again and (position, output) not in self.storages.deferred):
                continue
            found = self._decide(position, out, positions)
            if found is None:
                self.storages.deferred.add((position, output))
                continue
            self.decisions.append(InPlace(position, name, output, found[0], self.storages.tensor(out).nbytes, found[1]))

    def _decide(self, position: int, out: int, positions: Sequence[int]) -> tuple[int | None, str] | None:
        """Return ``(argument, reason)`` for an output, or None if a later pass must decide.

        The output reuses the bytes of ``argument``, and ``reason`` is empty. If the output reuses no bytes, then
        ``argument`` is None, and ``reason`` states why.
        """
        reasons = []
        places: dict[int, int] = {}
        for argument in positions:
            try:
                places[argument] = self._operands.place(position, argument, out, positions)
            except Refused as reason:
                reasons.append(f"argument {argument} {reason}")
        if not self._again and any(self.storages.storage_at(place).persistent for place in places.values()):
            return None
        for argument, place in places.items():
            if self.storages.storage_of(out) is self.storages.storage_at(place):
                return argument, ""  # The write-back pass has merged them.
        if places and (obstacle := self._obstacle(position, out)):
            return None, obstacle
        for argument, place in places.items():
            try:
                self._require_last_use(position, place, out)
            except Refused as reason:
                reasons.append(f"argument {argument} {reason}")
            else:
                self.storages.merge(self.storages.storage_at(out), self.storages.storage_at(place))
                return argument, ""
        return None, "; ".join(sorted(reasons))

    # Conditions

    def _obstacle(self, position: int, out: int) -> str | None:
        """Return the reason why an output can reuse the bytes of no operand; None if there is no such reason."""
        if not self.storages.tensor(out).nbytes:
            return "its output is empty"
        try:
            self.storages.own_storage(position, out)
        except Refused as reason:
            return str(reason)
        return None

    def _require_last_use(self, position: int, place: int, out: int) -> None:
        """Raise ``Refused`` unless the output fits the operand's storage and no later instruction uses that storage."""
        given, taken = self.storages.storage_at(place), self.storages.storage_at(out)
        if given.persistent:
            raise Refused("is state, which is kept between calls")
        if not self.storages.may_share(given, taken):
            raise Refused("is in another buffer")
        if not self.storages.fills_storage(place) or self.storages.tensor(out).nbytes != given.size:
            raise Refused("is a part of another tensor")
        if given.end != position + 2:
            raise Refused("is needed afterwards")
