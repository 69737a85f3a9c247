"""Breakdown of a program's figures: tensors in use, constants, sections of the file, copies and ops.

The largest parts explain a missed limit. New parts explain growth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from etdev.inspection.inspect import file_sections
from etdev.inspection.measure import nested_programs
from etdev.inspection.naming import dtype_name, instruction_name
from etdev.inspection.peaks import Peak, TensorInUse
from etdev.inspection.planned_memory import MemoryUse, memory_use, method_memories
from etdev.pipeline.results.result import MethodResult
from etdev.pipeline.stages.nested import device_memory
from etdev.program import Program, read
from etdev.program import model as m
from etdev.program.devices import D2H_COPY, H2D_COPY

_LISTED = 3
_KEY_LENGTH = 16
"""Maximum number of characters shown of a data name that delegates look up; most are digests."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one figure, in any order."""

    items: tuple[tuple[str, int], ...]
    """Name and amount of each part: bytes, or a number of ops. Several parts may have the same name."""
    when: str = ""
    """Instant of the peak, for memory."""
    unit: str = " bytes"

    def largest(self) -> str:
        """Return the largest parts: ``float32 [8, 8] of aten::mm.out x2 512 bytes, … and 4 more``, or nothing."""
        return self._listed(self._totals(), "")

    def grown_since(self, before: Parts) -> str:
        """Return the parts that are new or have grown; empty if there are none."""
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


def memory_parts(program: Program, device: str) -> Parts:
    """Return the tensors in use at the peak of each buffer on a device, in the method that needs most of it."""
    found: list[tuple[str, int]] = []
    highest: Peak | None = None
    where = ""
    uses = memory_use(program, method_memories(program))
    for index, method in _largest_buffers(program, device):
        peak = next((peak for peak in uses[method].peaks if peak.buffer == index), None)
        found += _in_use(uses[method], index, peak)
        if peak is not None and (highest is None or peak.nbytes > highest.nbytes):
            highest, where = peak, f" of {program.execution_plan[method].name!r}"
    nested = device_memory(program).get(device, (0, 0))[1]
    if nested:
        found.append(("programs in delegates", nested))
    return Parts(tuple(found), _moment(highest, where))


def _largest_buffers(program: Program, device: str) -> Iterator[tuple[int, int]]:
    """Return each buffer on a device, with the index of the method that gives it the largest size."""
    sizes: dict[int, tuple[int, int]] = {}
    for method, plan in enumerate(program.execution_plan):
        for index, size in enumerate(plan.non_const_buffer_sizes):
            if index and str(plan.buffer_device(index)) == device and size > sizes.get(index, (0, 0))[0]:
                sizes[index] = size, method
    return ((index, method) for index, (_, method) in sorted(sizes.items()))


def _in_use(use: MemoryUse, buffer: int, peak: Peak | None) -> list[tuple[str, int]]:
    if peak is not None:
        return [(_tensor(tensor), tensor.nbytes) for tensor in peak.tensors]
    return [(f"state {state.name}", state.size) for state in use.state if state.buffer == buffer]


def _tensor(tensor: TensorInUse) -> str:
    return tensor.name or f"{tensor.dtype} {list(tensor.shape)} of {tensor.origin}"


def _moment(peak: Peak | None, method: str) -> str:
    if peak is None:
        return ""
    return (
        f"while {peak.during}{method}: "
        if peak.instruction is None
        else (f"at instruction {peak.instruction}{method} ({peak.during}): ")
    )


def weight_parts(program: Program) -> Parts:
    """Return a program's constants, each with the first op that uses it, and the data that delegates look up by name.

    Those of programs in its reference delegates are included.
    """
    return Parts(tuple(part for each in (program, *nested_programs(program)) for part in _weights(each)))


def _weights(program: Program) -> Iterator[tuple[str, int]]:
    found: dict[int, tuple[str, int]] = {}
    for plan in program.execution_plan:
        readers = _readers(plan)
        for index, tensor in plan.tensors():
            if tensor.is_constant and not tensor.is_external:
                size = max(tensor.nbytes, found.get(tensor.data_buffer_idx, ("", 0))[1])
                found[tensor.data_buffer_idx] = _constant(tensor, readers.get(index)), size
    yield from found.values()
    segments = {item.segment_index: item.key for item in reversed(program.named_data)}
    for index, key in segments.items():
        yield f"data {key[:_KEY_LENGTH]!r} of delegates", len(program.segments[index].data)


def _readers(plan: m.ExecutionPlan) -> dict[int, str]:
    found: dict[int, str] = {}
    for chain in plan.chains:
        for call in chain.instructions:
            if isinstance(call, m.KernelCall | m.DelegateCall):
                for value in call.args:
                    found.setdefault(value, instruction_name(plan, call))
    return found


def _constant(tensor: m.Tensor, reader: str | None) -> str:
    info = tensor.extra_tensor_info
    if info is not None and info.fully_qualified_name:
        return info.fully_qualified_name
    user = f" for {reader}" if reader else ""
    return f"{dtype_name(tensor.scalar_type)} {list(tensor.sizes)}{user}"


def section_parts(file: Path) -> Parts:
    """Return the sections of a file with their sizes in bytes, without external weights."""
    sections = asdict(file_sections(read(file), file))
    return Parts(tuple((name.replace("_", " "), size) for name, size in sections.items() if size))


def copy_parts(plan: m.ExecutionPlan) -> Parts:
    """Return the copies between the host and devices in a method, each once."""
    return Parts(tuple(_copies(plan)))


def _copies(plan: m.ExecutionPlan) -> Iterator[tuple[str, int]]:
    for chain in plan.chains:
        for call in chain.instructions:
            name = plan.operators[call.op_index].name if isinstance(call, m.KernelCall) else ""
            if not isinstance(call, m.KernelCall) or name not in (H2D_COPY, D2H_COPY):
                continue
            source, made = plan.values[call.args[0]], plan.values[call.args[-1]]
            if isinstance(source, m.Tensor) and isinstance(made, m.Tensor):
                way = f"to {made.device}" if name == H2D_COPY else f"back from {source.device}"
                yield f"{dtype_name(made.scalar_type)} {list(made.sizes)} {way}", made.nbytes


def undelegated_parts(methods: Sequence[MethodResult]) -> Parts:
    """Return the ops that no delegate took."""
    ops: Iterable[tuple[str, int]] = (
        (item.op.removesuffix(".default"), item.count) for method in methods for item in method.undelegated
    )
    return Parts(tuple(ops), unit="")


def _times(number: int) -> str:
    return f" x{number}" if number > 1 else ""
