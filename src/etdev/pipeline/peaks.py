"""The fullest moment of each planned buffer: when it is, and what is in use then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from etdev.linker.state import state_name
from etdev.pipeline.lifetimes import bytes_in_use
from etdev.pipeline.naming import dtype_name, instruction_name
from etdev.program import model as m
from etdev.program.storage import MethodMemory, Storage


@dataclass(frozen=True, slots=True)
class TensorInUse:
    """Bytes in use at the fullest moment: one tensor, or several of which it is the largest."""

    value: int
    """Its index among the method's values."""
    values: int
    """How many tensors lie in these bytes, on purpose."""
    dtype: str
    """``float32``."""
    shape: tuple[int, ...]
    """In elements; upper bounds if it is dynamic."""
    nbytes: int
    """Of all that lies there, of the largest sizes."""
    instruction: int | None
    """Position of the one that wrote it last before; None if none did."""
    origin: str
    """What wrote it: ``aten::mm.out``, ``input 0``, ``an input`` for what else lies in one, or ``an earlier call`` for
    what is kept between calls."""
    name: str | None
    """As the module names it, if the file says so."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The first moment at which most of a planned buffer is in use."""

    buffer: int
    """Its ``memory_id``."""
    device: str
    """``cpu``, ``cuda:0``."""
    nbytes: int
    """In use, of the largest sizes. Alignment, and what a delegate reads behind a buffer, come on top. Branches of
    which only one runs are both counted, even where the file has them in the same bytes."""
    instruction: int | None
    """Position; None while the caller fills the inputs or reads the outputs."""
    during: str
    """What runs then: ``aten::mm.out``, ``filling the inputs`` or ``reading the outputs``."""
    tensors: tuple[TensorInUse, ...]
    """The largest first."""


def peaks(plan: m.ExecutionPlan, memory: MethodMemory) -> tuple[Peak, ...]:
    """Of each buffer that holds anything but state."""
    by_buffer: dict[int, list[Storage]] = defaultdict(list)
    for storage in memory.storages:
        if storage.start < storage.end:
            by_buffer[storage.memory_id].append(storage)
    writers = _Writers(plan, memory)
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
        instruction=instruction,
        during=during,
        tensors=tuple(sorted(found, key=lambda item: (-item.nbytes, item.value))),
    )


def _fullest(storages: Iterable[Storage]) -> tuple[int, int]:
    """The first instant at which the most bytes are in use, and how many."""
    return max(bytes_in_use(storages), key=lambda step: (step[1], -step[0]), default=(0, 0))


class _Writers:
    """Which instruction wrote what is in use."""

    def __init__(self, plan: m.ExecutionPlan, memory: MethodMemory) -> None:
        self._plan, self._memory = plan, memory
        self._writes: dict[int, list[int]] = defaultdict(list)
        for write in memory.reaching.writes:
            self._writes[write.place].append(write.position)
        self._inputs = {value: position for position, value in reversed(list(enumerate(plan.inputs)))}

    def tensor(self, storage: Storage, position: int) -> TensorInUse:
        """What a storage holds while the instruction at a position runs."""
        value, written = self._shown(storage, position)
        tensor = self._plan.values[value]
        assert isinstance(tensor, m.Tensor)
        return TensorInUse(
            value=value,
            values=len(storage.values),
            dtype=dtype_name(tensor.scalar_type),
            shape=tensor.sizes,
            nbytes=storage.size,
            instruction=written if written is not None and written >= 0 else None,
            origin=self._origin(value, written),
            name=state_name(self._plan, storage.values),
        )

    def _shown(self, storage: Storage, position: int) -> tuple[int, int | None]:
        """The largest of its tensors, of several the one written last up to a position; and where that was.

        What nobody writes as a whole, such as the output of a ``cat`` whose parts are made in their places, or an
        alias, is written with what else lies there. In a loop, what is in use may be written further down; what is kept
        between calls may come from the one before.
        """
        last = self._last(storage.values, position)
        if not storage.persistent and not last:
            last = self._last(storage.values, self._memory.instants)
        places = self._memory.reaching.places
        value = max(storage.values, key=lambda item: (places[item].end - places[item].start, last.get(item, -2), -item))
        return value, last.get(value, max(last.values(), default=None))

    def _last(self, values: Iterable[int], position: int) -> dict[int, int]:
        """Where each of the tensors is written last up to a position, of those that are."""
        written = {value: [at for at in self._writes.get(value, ()) if at <= position] for value in values}
        return {value: max(positions) for value, positions in written.items() if positions}

    def _origin(self, value: int, written: int | None) -> str:
        if written is None:
            return "an earlier call"
        if written < 0:
            return f"input {self._inputs[value]}" if value in self._inputs else "an input"
        return instruction_name(self._plan, self._memory.reaching.flow.instructions[written])
