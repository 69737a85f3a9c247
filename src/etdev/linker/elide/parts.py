"""Removal of copies of parts of tensors: slices, and inputs of ``cat``.

1. Slices: ``slice_copy``, ``select_copy``, ``split_copy`` and similar copies. Each output must be a contiguous range of
   the input's bytes. The outputs become aliases inside the input.
2. ``cat`` and ``stack`` along a dimension whose preceding dimensions all have size 1. The inputs become aliases inside
   the output. Inputs that an earlier ``cat`` already made adjacent stay adjacent. An input that cannot move into the
   output is copied into its slot separately. Examples are a constant, state, memory of the caller, and an input that
   occurs twice.

The smaller tensor, an output in case 1 and an input in case 2, is the *part*. The larger tensor is the *whole*. Part
and whole share bytes. So the pass keeps the copy if one of the two is written after the copy while the other is in use.
The whole stays in memory while any of its parts is in use. So the pass also keeps the copy if its removal would raise
peak memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from math import prod

from etdev.decisions import Elision, ElisionKind
from etdev.linker.elide.peaks import Peaks
from etdev.linker.elide.runs import PARTS, Numbers, runs
from etdev.linker.merged import MergedStorage, Refused, Storages
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import outputs

_CAT = "aten::cat.out"
_WHOLES = frozenset({_CAT, "aten::stack.out"})


def elide_parts(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Remove copies of slices, and copies into the outputs of ``cat`` and ``stack``.

    The pass handles ``cat`` and ``stack`` first. A slice that becomes a part of such an output keeps its own copy.
    """
    storages = method.storage_record()
    parts = _Parts(storages)
    for kind, names in (("cat", _WHOLES), ("slices", PARTS.keys())):
        for position, call, name in method.kernels() if kind in options.elide else ():
            if name in names:
                parts.consider(position, call, name)
    return Changed(replace(method, storages=storages), decisions=parts.decisions)


@dataclass(frozen=True, slots=True)
class _Slot:
    """Range of a ``cat``'s output, and the inputs that fill this range.

    A slot has one input, or several inputs that are adjacent in one storage.
    """

    parts: tuple[int, ...]
    """Value indices of the inputs."""
    offset: int
    """Offset in bytes from the start of the output."""
    storage: MergedStorage | None
    """Storage that consists of these inputs, or None if that storage cannot move into the output."""
    reason: str = ""
    """Reason why the storage cannot move into the output."""


class _Parts:
    def __init__(self, storages: Storages) -> None:
        self.decisions: list[Elision] = []
        self._storages = storages
        self._plan = storages.plan
        self._numbers = Numbers(storages.plan)
        self._in_use = _bytes_in_use(storages)
        """Maps each planned buffer to the number of bytes in use at each instant."""

    def consider(self, position: int, call: m.KernelCall, name: str) -> None:
        """Decide whether this copy can be removed, and record the decision."""
        size = sum(self._storages.tensor(out).nbytes for out in outputs(self._plan, call.args))
        kind: ElisionKind = "cat" if name in _WHOLES else "slices"
        try:
            if name in _WHOLES:
                copied, reason = self._place_inputs(position, call, name)
                self.decisions.append(Elision(position, name, "placed", size - copied, reason, kind))
            else:
                self._alias_outputs(position, call, name)
                self.decisions.append(Elision(position, name, "alias", size, kind=kind))
        except Refused as found:
            self.decisions.append(Elision(position, name, "kept", size, str(found), kind))

    # Slices

    def _alias_outputs(self, position: int, call: m.KernelCall, name: str) -> None:
        found = runs(self._plan, call, name, self._numbers)
        if self._storages.tensor(call.args[0]).is_constant:
            raise Refused("its input is a constant")
        try:
            place = self._place(position, call.args[0])
        except Refused as reason:
            raise Refused(f"its input {reason}") from None
        whole = self._storages.storage_at(place)
        parts = [self._storages.own_storage(position, run.out) for run in found]
        for part in parts:
            self._require_unchanged(position, part, whole)
        start = self._storages.offset(place)
        self._require_peak(whole, parts)
        self._merge(whole, [(part, start + run.offset) for part, run in zip(parts, found, strict=True)])
        self._storages.changed[position] = ()

    def _require_unchanged(self, position: int, part: MergedStorage, whole: MergedStorage) -> None:
        """Raise ``Refused`` if the part or the whole is written after the copy while both are in use."""
        if part is whole or not self._storages.may_share(part, whole):
            raise Refused(
                "its input and output are in different buffers"
                if part is not whole
                else "its input and output share bytes already"
            )
        after = position + 1
        if whole.is_written(after, part.end):
            raise Refused("the larger tensor is written again while a part of it is in use")
        if part.is_written(after, whole.end):
            raise Refused("a part is written again while the larger tensor is in use")

    # Concatenations

    def _place_inputs(self, position: int, call: m.KernelCall, name: str) -> tuple[int, str]:
        """Move inputs into the output where possible. Return the number of bytes still copied, and the reasons."""
        out, items = self._read_call(call, name)
        whole = self._storages.own_storage(position, out)
        slots = [self._checked(position, slot, whole) for slot in self._slots(position, out, items)]
        twice = _repeated(slot.storage for slot in slots)
        slots = [
            replace(slot, storage=None, reason="an input occurs twice")
            if slot.storage and slot.storage.number in twice
            else slot
            for slot in slots
        ]
        placed = [slot for slot in slots if slot.storage is not None]
        while placed:
            try:
                self._require_peak(whole, [slot.storage for slot in placed if slot.storage])
                break
            except Refused:
                # The storage whose lifetime starts first extends the lifetime of the output most.
                first = min(placed, key=lambda slot: slot.storage.start if slot.storage else 0)
                placed.remove(first)
        if not placed:
            reasons = dict.fromkeys(slot.reason or "more memory would be in use" for slot in slots)
            raise Refused("; ".join(reasons))
        offsets = {slot.offset for slot in placed}
        others = [slot for slot in slots if slot.offset not in offsets]
        if not others:
            whole.writes = [write for write in whole.writes if write != position + 1]
        self._merge(whole, [(slot.storage, slot.offset) for slot in placed if slot.storage])
        self._storages.changed[position] = tuple(self._copy_to_slot(call, out, slot) for slot in others)
        copied = sum(self._storages.tensor(part).nbytes for slot in others for part in slot.parts)
        reasons = dict.fromkeys(slot.reason or "more memory would be in use" for slot in others)
        return copied, "; ".join(reasons)

    def _read_call(self, call: m.KernelCall, name: str) -> tuple[int, list[int]]:
        """Return the value index of the output, and the value indices of the nonempty inputs.

        Raise ``Refused`` if this call is not supported.
        """
        listed = self._plan.values[call.args[0]] if len(call.args) == 4 else None
        if not isinstance(listed, m.TensorList) or call.args[2] != call.args[3]:
            raise Refused("it has unexpected arguments")
        out = self._storages.tensor(call.args[3])
        items = [item for item in listed.items if self._storages.tensor(item).nbytes]
        tensors = [out, *map(self._storages.tensor, items)]
        if any(not tensor.is_static for tensor in tensors):
            raise Refused("its sizes are known only at run time")
        if any(tensor.scalar_type is not out.scalar_type for tensor in tensors):
            raise Refused("it changes the element type")
        if any(tensor.dim_order != tuple(range(len(tensor.sizes))) for tensor in tensors):
            raise Refused("its dimensions are in another order in memory")
        dim = self._numbers.at(call.args[1])
        dim += len(out.sizes) if dim < 0 else 0
        if not 0 <= dim < len(out.sizes) or sum(tensor.nbytes for tensor in tensors[1:]) != out.nbytes:
            raise Refused("it has unexpected arguments")
        if len({(len(tensor.sizes), tensor.sizes[:dim], tensor.sizes[dim + 1 :]) for tensor in tensors}) > 1:
            raise Refused("its inputs have other sizes than its output")
        if prod(out.sizes[:dim]) > 1:
            raise Refused("its inputs are not contiguous in its output")
        return call.args[3], items

    def _slots(self, position: int, out: int, items: Sequence[int]) -> list[_Slot]:
        """Assign each input to a slot. Adjacent inputs that together fill one storage share a slot."""
        found: list[_Slot] = []
        offsets = list(accumulate((self._storages.tensor(item).nbytes for item in items), initial=0))
        index = 0
        while index < len(items):
            count, storage, reason = self._leading_storage(position, items, index)
            found.append(_Slot(tuple(items[index : index + count]), offsets[index], storage, reason))
            index += count
        return found

    def _leading_storage(
        self, position: int, items: Sequence[int], start: int
    ) -> tuple[int, MergedStorage | None, str]:
        """Find neighboring inputs that together fill one storage, the first of them at position ``start``.

        Return ``(number of inputs, storage, "")``. If there is no such storage, return ``(1, None, reason)``.
        """
        if self._storages.tensor(items[start]).is_constant:
            return 1, None, "an input is a constant"
        end = 0
        first: MergedStorage | None = None
        for count, item in enumerate(islice(items, start, None), start=1):
            try:
                place = self._place(position, item)
            except Refused as reason:
                return 1, None, f"an input {reason}"
            storage = self._storages.storage_at(place)
            first = first or storage
            if storage is not first or self._storages.offset(place) != end:
                break
            end += self._storages.tensor(item).nbytes
            if end == storage.size:
                return count, storage, ""
        return 1, None, "an input is a part of another tensor"

    def _checked(self, position: int, slot: _Slot, whole: MergedStorage) -> _Slot:
        """Return the slot. If its storage cannot move into ``whole``, replace the storage by the reason."""
        if slot.storage is None:
            return slot
        try:
            if slot.storage.persistent:
                raise Refused("an input is state")
            self._require_unchanged(position, slot.storage, whole)
            if slot.storage.writes and slot.storage.writes[-1] > position:
                raise Refused("an input is written again afterwards")
        except Refused as reason:
            return replace(slot, storage=None, reason=str(reason))
        return slot

    def _copy_to_slot(self, call: m.KernelCall, out: int, slot: _Slot) -> m.KernelCall:
        """Return a call with the same operator. It copies the inputs of one slot to the slot's range of the output."""
        tensors = [self._storages.tensor(part) for part in slot.parts]
        dim = self._numbers.at(call.args[1])
        size = (
            len(tensors)
            if len(tensors[0].sizes) < len(self._storages.tensor(out).sizes)
            else sum(tensor.sizes[dim] for tensor in tensors)
        )
        sizes = list(self._storages.tensor(out).sizes)
        sizes[dim] = size
        index = self._storages.add_part(replace(self._storages.tensor(out), sizes=tuple(sizes)), out, slot.offset)
        parts = self._storages.add(m.TensorList(slot.parts))
        return replace(call, args=(parts, call.args[1], index, index))

    # Conditions and changes for both slices and concatenations

    def _place(self, position: int, value: int) -> int:
        """Return the value at whose planned address ``value`` is located when it is read.

        Raise ``Refused`` if ``value`` has no such address, or if it is a view of fixed sizes of a dynamic tensor. A
        write to that tensor may not reach all bytes of the view, so an alias of these bytes would seem to be state.
        """
        place = self._storages.place_when_read(position, value)
        if self._storages.tensor(value).is_static and not self._storages.tensor(place).is_static:
            raise Refused("is a view of a tensor whose sizes are known only at run time")
        return place

    def _require_peak(self, whole: MergedStorage, parts: Sequence[MergedStorage]) -> None:
        """Raise ``Refused`` if the merge would raise peak memory.

        After the merge, the whole is in use while any part is in use.
        """
        now = [whole, *parts]
        start, end = min(item.start for item in now), max(item.end for item in now)
        in_use = self._in_use[self._storages.memory_id(whole)]
        changes = [(start, end, whole.size), *((item.start, item.end, -item.size) for item in now)]
        before = in_use.peak(start, end)
        for first, last, size in changes:
            in_use.add(first, last, size)
        after = in_use.peak(start, end)
        for first, last, size in changes:
            in_use.add(first, last, -size)
        if after > before:
            raise Refused("more memory would be in use")

    def _merge(self, whole: MergedStorage, parts: Iterable[tuple[MergedStorage, int]]) -> None:
        in_use = self._in_use[self._storages.memory_id(whole)]
        parts = list(parts)
        for sign, those in ((-1, [whole, *(part for part, _ in parts)]), (1, [whole])):
            for item in those:
                in_use.add(item.start, item.end, sign * item.size)
            if sign < 0:
                for part, offset in parts:
                    self._storages.merge(part, whole, offset)


def _bytes_in_use(storages: Storages) -> dict[int, Peaks]:
    """Return, for each planned buffer, the number of bytes in use at each instant."""
    found: dict[int, list[int]] = {}
    for storage in storages.all():
        changes = found.setdefault(storages.memory_id(storage), [0] * (storages.memory.instants + 1))
        changes[storage.start] += storage.size
        changes[storage.end] -= storage.size
    return {buffer: Peaks(list(accumulate(changes))) for buffer, changes in found.items()}


def _repeated(found: Iterable[MergedStorage | None]) -> list[int]:
    """Return the numbers of the storages that occur more than once in ``found``."""
    times = Counter(item.number for item in found if item is not None)
    return [number for number, count in times.items() if count > 1]
