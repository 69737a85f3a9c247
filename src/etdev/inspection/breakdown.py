"""Breakdown of a program's figures into their parts.

The parts are tensors in use, constants, sections of the file, copies and ops. A message about a missed limit lists the
largest parts. A message about growth lists the parts that are new or larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from etdev.inspection.constants import describe_constants
from etdev.inspection.inspect import describe_methods, file_sections
from etdev.inspection.measure import nested_programs
from etdev.inspection.naming import dtype_name
from etdev.inspection.planned_memory import method_memories
from etdev.inspection.transfers import transfers
from etdev.pipeline.results.result import MethodResult
from etdev.pipeline.stages.link.nested import device_memory
from etdev.program import Program, read
from etdev.program import model as m
from etdev.program.footprint import repeated_constants
from etdev.program.info import BufferInfo, MethodInfo, Peak, TensorInUse
from etdev.program.sidecar import MethodNotes
from etdev.program.sidecar.notes import noted_inputs

_LISTED = 3
_KEY_LENGTH = 16
"""Maximum number of characters to show of a data item's name. Most of these names are digests."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one figure, in any order."""

    items: tuple[tuple[str, int], ...]
    """Name and amount of each part; several parts may have the same name. The amount is a number of bytes or ops."""
    when: str = ""
    """Text with the moment of the peak if the figure is memory; otherwise empty."""
    unit: str = " bytes"

    def largest(self) -> str:
        """Return a text with the largest parts; empty if there are no parts.

        An example is ``float32 [8, 8] of aten::mm.out x2 512 bytes, … and 4 more``.
        """
        return self._listed(self._totals(), "")

    def grown_since(self, before: Parts) -> str:
        """Return a text with the parts that are new or larger than in ``before``; empty if there are none."""
        return self._listed(self._totals() - before._totals(), "+")

    def _totals(self) -> Counter[str]:
        totals: Counter[str] = Counter()
        for name, amount in self.items:
            totals[name] += amount
        return totals

    def _listed(self, totals: Counter[str], sign: str) -> str:
        times = Counter(name for name, _ in self.items)
        shown = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
        if not shown:
            return ""
        texts = [f"{name}{_times(times[name])} {sign}{amount:,}{self.unit}" for name, amount in islice(shown, _LISTED)]
        rest = f" and {len(shown) - _LISTED:,} more" if len(shown) > _LISTED else ""
        return f"{self.when}{', '.join(texts)}{rest}"


def memory_parts(program: Program, device: str, notes: Mapping[str, MethodNotes]) -> Parts:
    """Return the tensors in use at the peak of each buffer on a device.

    If several methods use the same buffer, the peak is from the method in which the buffer is largest.
    ``notes`` maps each method to notes on the modules that computed its tensors.
    """
    nested = device_memory(program).get(device, (0, 0))[1]
    inside = (("programs in delegates", nested),) if nested else ()
    return _buffer_parts(program, lambda buffer: buffer.device == device, notes, inside)


def tensors_at_peak(program: Program, device: str, notes: Mapping[str, MethodNotes]) -> Iterator[TensorInUse]:
    """Yield the tensors in use at the peak of each buffer on a device; ``notes`` as in :func:`memory_parts`."""
    methods = describe_methods(program, method_memories(program, noted_inputs(notes)), notes)
    for index, method in _largest_buffers(methods, lambda buffer: buffer.device == device):
        for peak in method.peaks:
            if peak.buffer == index:
                yield from peak.tensors


def bank_parts(program: Program, index: int, notes: Mapping[str, MethodNotes]) -> Parts:
    """Return the tensors in use at the peak of a memory bank; ``index`` is the bank's memory id.

    The peak is from the method that uses the most bytes of the bank. ``notes`` maps each method to notes on the modules
    that computed its tensors.
    """
    return _buffer_parts(program, lambda buffer: buffer.index == index, notes)


def _buffer_parts(
    program: Program,
    chosen: Callable[[BufferInfo], bool],
    notes: Mapping[str, MethodNotes],
    more: tuple[tuple[str, int], ...] = (),
) -> Parts:
    """Return the tensors in use at the peaks of the chosen buffers, and the parts in ``more``."""
    found: list[tuple[str, int]] = []
    highest: Peak | None = None
    where = ""
    methods = describe_methods(program, method_memories(program, noted_inputs(notes)), notes)
    for index, method in _largest_buffers(methods, chosen):
        peak = next((peak for peak in method.peaks if peak.buffer == index), None)
        found += _in_use(method, index, peak)
        if peak is not None and (highest is None or peak.nbytes > highest.nbytes):
            highest, where = peak, f" of {method.name!r}"
    return Parts((*found, *more), _moment(highest, where))


def _largest_buffers(
    methods: Sequence[MethodInfo], chosen: Callable[[BufferInfo], bool]
) -> Iterator[tuple[int, MethodInfo]]:
    """Yield ``(buffer, method)`` for each chosen buffer. ``method`` is the method in which the buffer is largest."""
    largest: dict[int, tuple[int, MethodInfo]] = {}
    for method in methods:
        for buffer in method.buffers:
            if chosen(buffer) and (buffer.index not in largest or buffer.size > largest[buffer.index][0]):
                largest[buffer.index] = buffer.size, method
    return ((index, method) for index, (_, method) in sorted(largest.items()))


def _in_use(method: MethodInfo, buffer: int, peak: Peak | None) -> list[tuple[str, int]]:
    if peak is not None:
        return [(_tensor(tensor), tensor.nbytes) for tensor in peak.tensors]
    return [(f"state {state.name}", state.size) for state in method.state if state.buffer == buffer]


def _tensor(tensor: TensorInUse) -> str:
    module = f" in {tensor.module}" if tensor.module else ""
    return tensor.name or f"{tensor.dtype} {list(tensor.shape)} of {tensor.origin}{module}"


def _moment(peak: Peak | None, method: str) -> str:
    if peak is None:
        return ""
    if peak.instruction is None:
        return f"while {peak.during}{method}: "
    place = ", ".join(filter(None, (peak.during, peak.module, peak.source)))
    return f"at instruction {peak.instruction}{method} ({place}): "


def weight_parts(program: Program, *, pooled: Collection[str] = ()) -> Parts:
    """Return the sizes of a program's constants, and of the data that delegates look up by name.

    The name of a constant includes the first op that uses the constant. Constants and data of nested programs in
    reference delegates are included. ``pooled`` has names of data, as in
    :func:`~etdev.inspection.measure.weight_bytes`. Data with such a name is left out if a constant has the same bytes.
    """
    nested = tuple(part for each in nested_programs(program) for part in _weights(each))
    return Parts((*_weights(program, pooled=pooled), *nested))


def _weights(program: Program, *, pooled: Collection[str] = ()) -> Iterator[tuple[str, int]]:
    once = {*repeated_constants(program, pooled).values()}
    for item in describe_constants(program):
        if item.kind == "constant":
            use = f" for {item.operator}" if item.operator is not None else ""
            yield item.name or f"{item.dtype} {list(item.shape)}{use}", item.nbytes
    segments = {item.segment_index: item.key for item in reversed(program.named_data)}
    for index, key in segments.items():
        if key not in pooled or program.segments[index].data not in once:
            yield f"data {key[:_KEY_LENGTH]!r} of delegates", len(program.segments[index].data)


def section_parts(file: Path) -> Parts:
    """Return the sizes in bytes of a file's sections. External weights are not included."""
    return Parts(tuple(file_sections(read(file), file).parts().items()))


def copy_parts(plan: m.ExecutionPlan) -> Parts:
    """Return the sizes of a method's copies between the host and devices. A copy in a loop counts once."""
    return Parts(tuple(_copies(plan)))


def _copies(plan: m.ExecutionPlan) -> Iterator[tuple[str, int]]:
    for item in transfers(plan):
        tensor = plan.values[item.value]
        assert isinstance(tensor, m.Tensor)
        way = f"to {item.device}" if item.to_device else f"back from {item.device}"
        yield f"{dtype_name(tensor.scalar_type)} {list(tensor.sizes)} {way}", item.nbytes


def undelegated_parts(methods: Sequence[MethodResult]) -> Parts:
    """Count the ops outside of delegates, by kind of op."""
    ops: Iterable[tuple[str, int]] = (
        (item.op.removesuffix(".default"), item.count) for method in methods for item in method.undelegated
    )
    return Parts(tuple(ops), unit="")


def _times(number: int) -> str:
    return f" x{number}" if number > 1 else ""
