"""Sizes of the model's modules in a method: weights in the file, bytes that are written, bytes at the peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from etdev.inspection.provenance import Provenance
from etdev.inspection.report.dataflow import DataFlow, Operands
from etdev.linker.state import state_name
from etdev.page.model import NONE, Modules, Texts
from etdev.program import Program
from etdev.program import model as m
from etdev.program.data_files.lookups import delegate_lookups
from etdev.program.delegates import arguments_of
from etdev.program.info import Peak
from etdev.program.sidecar import MethodNotes

_MODEL = ""
"""Path of the model itself. All other modules are parts of it."""
_UNKNOWN = None
"""Key, instead of a path, for instructions and bytes that belong to no known module."""


@dataclass(slots=True)
class _Sizes:
    """Bytes and instructions of each module, by path. A module's numbers do not include its submodules."""

    weights: Counter[str | None] = field(default_factory=Counter)
    written: Counter[str | None] = field(default_factory=Counter)
    peak: Counter[str | None] = field(default_factory=Counter)
    instructions: Counter[str | None] = field(default_factory=Counter)

    def counters(self) -> tuple[Counter[str | None], ...]:
        return self.weights, self.written, self.peak, self.instructions


def module_paths(plan: m.ExecutionPlan, operands: Sequence[Operands], known: Provenance) -> dict[int, str]:
    """Map positions of instructions to paths of the model's modules.

    The paths come from the build's notes. Without notes, an instruction belongs to the smallest module that
    contains all named constants that the instruction reads. In this case, most instructions have no known module.
    """
    notes = known.notes.get(plan.name)
    if notes is not None and notes.modules:
        return dict(notes.modules)
    found = ((position, _module_of_constants(plan, one)) for position, one in enumerate(operands))
    return {position: path for position, path in found if path is not None}


def _module_of_constants(plan: m.ExecutionPlan, operands: Operands) -> str | None:
    """Return the smallest module that contains all named constants of an instruction; None if there are none."""
    names = (state_name(plan, (value,)) for value in operands.reads if _is_constant(plan, value))
    modules = [name.split(".")[:-1] for name in names if name is not None]
    return _common(modules) if modules else None


def _common(paths: Sequence[Sequence[str]]) -> str:
    same = takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
    return ".".join(level[0] for level in same)


def _is_constant(plan: m.ExecutionPlan, value: int) -> bool:
    tensor = plan.values[value]
    return isinstance(tensor, m.Tensor) and tensor.is_constant


def modules(
    program: Program,
    plan: m.ExecutionPlan,
    found: DataFlow,
    paths: Mapping[int, str],
    notes: MethodNotes,
    peaks: Iterable[Peak],
    texts: Texts,
) -> Modules | None:
    """Return the sizes of a method's modules, each with its submodules; None if no module is known.

    ``paths`` is the result of :func:`module_paths`. ``notes`` name the modules in delegates, and may be empty.

    A weight belongs to the module whose instruction uses it first, and counts once. Blobs of delegates count as
    weights. Named data in the file also counts as a weight if a delegate looks it up.
    """
    if not paths:
        return None
    own = _Sizes()
    for position, one in enumerate(found.operands):
        path = paths.get(position, _UNKNOWN)
        own.instructions[path] += 1
        inside = notes.outputs_of(position, arguments_of(found.flow.instructions[position]))
        for value in one.writes:
            known = inside[value].module if value in inside else None
            own.written[path if known is None else known] += _nbytes(plan, value)
    for position, size in _weights(program, plan, found):
        own.weights[paths.get(position, _UNKNOWN)] += size
    for peak in peaks:
        for tensor in peak.tensors:
            path = _UNKNOWN if tensor.instruction is None else paths.get(tensor.instruction, _UNKNOWN)
            own.peak[path if tensor.module is None else tensor.module] += tensor.nbytes
    total = _Sizes(*map(_with_submodules, own.counters()))
    every = {path for counter in total.counters() for path in counter if path is not None}
    rows = sorted(every, key=lambda path: path.split("."))
    keys: list[str | None] = [*rows]
    if any(counter[_UNKNOWN] for counter in own.counters()):
        keys.append(_UNKNOWN)
    return Modules(
        path=tuple(NONE if key is None else texts.number(key) for key in keys),
        instructions=tuple(total.instructions[key] for key in keys),
        weights=tuple(total.weights[key] for key in keys),
        written=tuple(total.written[key] for key in keys),
        peak=tuple(total.peak[key] for key in keys),
    )


def _with_submodules(own: Counter[str | None]) -> Counter[str | None]:
    total: Counter[str | None] = Counter()
    for path, amount in own.items():
        if path is None:
            total[None] += amount
            continue
        parts = path.split(".") if path else []
        for length in range(len(parts) + 1):
            total[".".join(parts[:length]) or _MODEL] += amount
    return total


def _weights(program: Program, plan: m.ExecutionPlan, found: DataFlow) -> Iterator[tuple[int, int]]:
    """Yield ``(position of first use, size in bytes)`` for each constant and each delegate."""
    seen: set[tuple[str, int | str]] = set()
    named = {item.key: item.segment_index for item in program.named_data}
    for position, (call, one) in enumerate(zip(found.flow.instructions, found.operands, strict=True)):
        if isinstance(call, m.DelegateCall):
            delegate = plan.delegates[call.delegate_index]
            key: tuple[str, int | str] = delegate.processed.location.name, delegate.processed.index
            if key not in seen:
                seen.add(key)
                yield position, len(program.delegate_data(delegate))
            for name in delegate_lookups(program, delegate) or ():
                key = "named data", named.get(name, name)
                if name in named and key not in seen:
                    seen.add(key)
                    yield position, len(program.segments[named[name]].data)
        for value in one.reads:
            tensor = plan.values[value]
            if isinstance(tensor, m.Tensor) and tensor.is_constant:
                key = "constant", (state_name(plan, (value,)) or "") if tensor.is_external else tensor.data_buffer_idx
                if key not in seen:
                    seen.add(key)
                    yield position, tensor.nbytes


def _nbytes(plan: m.ExecutionPlan, value: int) -> int:
    tensor = plan.values[value]
    unbounded = m.TensorShapeDynamism.DYNAMIC_UNBOUND
    return tensor.nbytes if isinstance(tensor, m.Tensor) and tensor.shape_dynamism is not unbounded else 0
