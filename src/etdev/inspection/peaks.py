"""Peaks of planned buffers: the time of each peak, and the tensors in use at that time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import TypedDict

from etdev.inspection.lifetimes import bytes_in_use
from etdev.inspection.naming import dtype_name
from etdev.linker.state import state_name
from etdev.program import model as m
from etdev.program.analysis.effects import instruction_name
from etdev.program.analysis.storage import MethodMemory, Storage
from etdev.program.delegates import arguments_of
from etdev.program.info import Peak, TensorInUse
from etdev.program.sidecar import MethodNotes, Source


def peaks(plan: m.ExecutionPlan, memory: MethodMemory, notes: MethodNotes) -> tuple[Peak, ...]:
    """Return the peak of each of a method's planned buffers; omit buffers that contain only state.

    ``notes`` maps the positions in ``plan`` to modules and source lines.
    """
    by_buffer: dict[int, list[Storage]] = defaultdict(list)
    for storage in memory.storages:
        if storage.start < storage.end:
            by_buffer[storage.memory_id].append(storage)
    writers = _Writers(plan, memory, notes)
    return tuple(
        _peak(plan, memory, writers, buffer, storages)
        for buffer, storages in sorted(by_buffer.items())
        if not all(storage.persistent for storage in storages)
    )


def _peak(
    plan: m.ExecutionPlan, memory: MethodMemory, writers: _Writers, buffer: int, storages: Sequence[Storage]
) -> Peak:
    instant, nbytes = _fullest(storages)
    position = instant - 1
    if position < 0:
        instruction, during = None, "filling the inputs"
    elif instant == memory.instants - 1:
        instruction, during = None, "reading the outputs"
    else:
        instruction, during = position, instruction_name(plan, memory.reaching.flow.instructions[position])
    live = (storage for storage in storages if storage.start <= instant < storage.end)
    found = [writers.tensor(storage, position) for storage in live]
    return Peak(
        buffer=buffer,
        device=str(plan.buffer_device(buffer)),
        nbytes=nbytes,
        instant=instant,
        instruction=instruction,
        during=during,
        **writers.place(instruction),
        tensors=tuple(sorted(found, key=lambda item: (-item.nbytes, item.value))),
    )


def _fullest(storages: Iterable[Storage]) -> tuple[int, int]:
    """Return the first instant of the peak, and the number of bytes in use at that instant."""
    return max(bytes_in_use(storages), key=lambda step: (step[1], -step[0]), default=(0, 0))


class _Place(TypedDict):
    module: str | None
    source: str | None


class _LastUse(TypedDict):
    until: int | None
    last_user: str
    last_module: str | None


def _place(module: str | None, source: Source | None) -> _Place:
    return {"module": module, "source": None if source is None else source.place}


class _Writers:
    """Lookup of the tensor in a storage at a given time, and of the instruction that wrote the tensor."""

    def __init__(self, plan: m.ExecutionPlan, memory: MethodMemory, notes: MethodNotes) -> None:
        self._plan, self._memory, self._notes = plan, memory, notes
        self._writes: dict[int, list[int]] = defaultdict(list)
        for write in memory.reaching.writes:
            self._writes[write.place].append(write.position)
        self._inputs = {value: position for position, value in reversed(list(enumerate(plan.inputs)))}

    def tensor(self, storage: Storage, position: int) -> TensorInUse:
        """Return the tensor to show for a storage at the time when the instruction at ``position`` runs."""
        value, written = self._shown(storage, position)
        tensor = self._plan.values[value]
        assert isinstance(tensor, m.Tensor)
        instruction = written if written is not None and written >= 0 else None
        return TensorInUse(
            value=value,
            values=len(storage.values),
            dtype=dtype_name(tensor.scalar_type),
            shape=tensor.sizes,
            nbytes=storage.size,
            instruction=instruction,
            origin=self._origin(value, written),
            name=state_name(self._plan, storage.values),
            **self._place_of(storage.values, instruction),
            **self._last_use(storage),
        )

    def _last_use(self, storage: Storage) -> _LastUse:
        position = storage.end - 2
        if storage.persistent or storage.end == self._memory.instants:
            user = "a later call" if storage.persistent else "the caller"
            return {"until": None, "last_user": user, "last_module": None}
        if position < 0:
            return {"until": None, "last_user": "the inputs are filled", "last_module": None}
        user = instruction_name(self._plan, self._call(position))
        return {"until": position, "last_user": user, "last_module": self._notes.modules.get(position)}

    def place(self, instruction: int | None) -> _Place:
        """Return the module and the source line of an instruction; each is None if it is unknown."""
        if instruction is None:
            return {"module": None, "source": None}
        return _place(self._notes.modules.get(instruction), self._notes.sources.get(instruction))

    def _place_of(self, values: Container[int], instruction: int | None) -> _Place:
        """Return the module and the source line of the op that computes a storage.

        For an output of a delegate, this op is inside the delegate.
        """
        found = self.place(instruction)
        if instruction is not None:
            outputs = self._notes.outputs_of(instruction, arguments_of(self._call(instruction)))
            note = next((note for value, note in outputs.items() if value in values), None)
            if note is not None:
                inside = _place(note.module, note.source)
                found = {"module": inside["module"] or found["module"], "source": inside["source"] or found["source"]}
        return found

    def _call(self, instruction: int) -> m.Instruction:
        return self._memory.reaching.flow.instructions[instruction]

    def _shown(self, storage: Storage, position: int) -> tuple[int, int | None]:
        """Return the largest tensor of a storage, and the position of the tensor's last write up to ``position``.

        If several tensors have the largest size, return the one written last. Some tensors are never written as a
        whole: an alias, or the output of a ``cat`` whose parts are computed in place. For such a tensor, return the
        position of the last write to the storage. In a loop, this position may be after ``position``. The returned
        position is None if an earlier call of any method wrote the content.
        """
        last = self._last(storage.values, position)
        if not storage.persistent and not last:
            last = self._last(storage.values, self._memory.instants)
        places = self._memory.reaching.places
        value = max(storage.values, key=lambda item: (places[item].end - places[item].start, last.get(item, -2), -item))
        return value, last.get(value, max(last.values(), default=None))

    def _last(self, values: Iterable[int], position: int) -> dict[int, int]:
        """Map each tensor to the position of its last write up to ``position``; omit unwritten tensors."""
        written = {value: [at for at in self._writes.get(value, ()) if at <= position] for value in values}
        return {value: max(positions) for value, positions in written.items() if positions}

    def _origin(self, value: int, written: int | None) -> str:
        if written is None:
            return "an earlier call"
        if written < 0:
            return f"input {self._inputs[value]}" if value in self._inputs else "an input"
        return instruction_name(self._plan, self._call(written))
