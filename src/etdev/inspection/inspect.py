"""Derivation of a program's description (:class:`ProgramInfo`) from its file.

This module needs neither torch nor executorch, and runs no code of the program.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from etdev import program as pte
from etdev.devices import DeviceNameError
from etdev.inspection.constants import describe_constants
from etdev.inspection.copies import copy_calls, outputs_in_place
from etdev.inspection.naming import dtype_name
from etdev.inspection.output_names import output_names
from etdev.inspection.peaks import peaks
from etdev.inspection.planned_memory import describe_buffers, describe_state, method_memories
from etdev.inspection.provenance import Provenance, provenance_beside
from etdev.inspection.transfers import transfers_per_call
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.analysis.quantized_ends import QuantizedEnd, describing_methods, quantized_ends
from etdev.program.analysis.runtime_objects import runtime_objects
from etdev.program.analysis.storage import MethodMemory
from etdev.program.data_files.lookups import missing_data
from etdev.program.devices import delegate_device
from etdev.program.footprint import constant_bytes, planned_memory, program_buffers
from etdev.program.header import parse_header
from etdev.program.info import (
    FORMAT,
    Argument,
    BufferInfo,
    CompileSpecInfo,
    DelegateInfo,
    MethodInfo,
    NamedDataInfo,
    ProgramInfo,
    Sections,
    SegmentInfo,
    StateInfo,
)
from etdev.program.sidecar import MethodNotes
from etdev.program.sidecar.notes import noted_inputs


def inspect(file: str | os.PathLike[str]) -> ProgramInfo:
    """Describe a ``.pte`` from any toolchain.

    A program may overwrite a value too early, before the value's last use. In this case,
    :attr:`MethodInfo.memory_unknown` states the problem. Raises :class:`~etdev.errors.ProgramError` if the file cannot
    be read or is malformed.
    """
    return inspect_memory(file)[0]


def inspect_memory(file: str | os.PathLike[str]) -> tuple[ProgramInfo, tuple[MethodMemory | str, ...]]:
    """Return the description of a ``.pte``, as :func:`inspect` does, and each method's use of planned memory.

    The second result has an item for each method. If the use of memory is unknown, the item is the reason, as text.
    """
    return inspect_program(pte.read(file), Path(file))


def inspect_program(program: Program, file: Path) -> tuple[ProgramInfo, tuple[MethodMemory | str, ...]]:
    """Return the results of :func:`inspect_memory` for a program that was read from ``file``."""
    known = provenance_beside(file)
    memories = method_memories(program, noted_inputs(known.notes))
    return describe(program, file, memories, known), memories


def describe(
    program: Program,
    file: Path,
    memories: Sequence[MethodMemory | str],
    known: Provenance,
) -> ProgramInfo:
    """Describe a program that was read from ``file``.

    ``memories`` is the result of :func:`method_memories`. ``known`` contains the facts about the build.
    """
    holds = _holders(program)
    banks = known.target.banks if known.target is not None else None
    named = banks.named if banks is not None else tuple[BufferInfo, ...]
    methods = describe_methods(program, memories, known.notes)
    return ProgramInfo(
        format=FORMAT,
        file=str(file),
        size=file.stat().st_size,
        schema_version=program.version,
        header_bytes=program.header_length,
        methods=tuple(replace(method, buffers=named(method.buffers)) for method in methods),
        memory=planned_memory(program),
        buffers=named(program_buffers(program)),
        weights_bytes=constant_bytes(program),
        constants=describe_constants(program),
        sections=file_sections(program, file),
        segments=tuple(
            SegmentInfo(index, segment.offset, len(segment.data), holds.get(index, ()))
            for index, segment in enumerate(program.segments)
        ),
        named_data=tuple(
            NamedDataInfo(item.key, item.segment_index, len(program.segments[item.segment_index].data))
            for item in program.named_data
        ),
        external_data=tuple(sorted(missing.name for missing in missing_data(program))),
        data_files={place.name: place.stat().st_size for place in known.data},
        unknown_fields=program.unknown_fields,
    )


def describe_methods(
    program: Program, memories: Sequence[MethodMemory | str], notes: Mapping[str, MethodNotes]
) -> tuple[MethodInfo, ...]:
    """Describe the methods of a program. Never raises an error.

    ``memories`` is the result of :func:`method_memories`. ``notes`` has the inputs of each method's delegates, and its
    modules and source lines.
    """
    state = describe_state(program, memories, noted_inputs(notes))
    ends, describing = quantized_ends(program), describing_methods(program)
    return tuple(
        replace(
            _method(program, plan, memory, state.get(number, ()), ends.get(plan.name, ()), notes.get(plan.name)),
            describes_end=plan.name in describing,
        )
        for number, (plan, memory) in enumerate(zip(program.execution_plan, memories, strict=True))
    )


def _method(
    program: Program,
    plan: m.ExecutionPlan,
    memory: MethodMemory | str,
    state: tuple[StateInfo, ...],
    ends: Sequence[QuantizedEnd],
    notes: MethodNotes | None,
) -> MethodInfo:
    calls = plan.instructions
    kernels = Counter(call.op_index for call in calls if isinstance(call, m.KernelCall))
    operators: Counter[str] = Counter()
    for index, operator in enumerate(plan.operators):
        operators[operator_name(operator)] += kernels[index]
    called = Counter(call.delegate_index for call in calls if isinstance(call, m.DelegateCall))
    devices = Counter(tensor.device for _, tensor in plan.tensors())
    set_by_code = _set_by_code(plan)
    quantized = {(end.side, end.position): end for end in ends}
    return MethodInfo(
        name=plan.name,
        inputs=tuple(
            _argument(plan, value, quantized.get(("input", position)), set_by_code=False)
            for position, value in enumerate(plan.inputs)
        ),
        outputs=tuple(
            replace(
                _argument(plan, value, quantized.get(("output", position)), set_by_code=value in set_by_code), name=name
            )
            for position, (value, name) in enumerate(zip(plan.outputs, output_names(plan), strict=True))
        ),
        tensors={str(device): count for device, count in sorted(devices.items())},
        buffers=describe_buffers(plan, memory, several=len(program.execution_plan) > 1),
        state=state,
        peaks=() if isinstance(memory, str) else peaks(plan, memory, notes or MethodNotes()),
        inplace=() if isinstance(memory, str) else outputs_in_place(plan, memory),
        memory_unknown=memory if isinstance(memory, str) else None,
        instructions=len(calls),
        operators=dict(sorted(operators.items())),
        delegates=tuple(_delegate(program, delegate, called[index]) for index, delegate in enumerate(plan.delegates)),
        transfers=transfers_per_call(plan),
        copies=copy_calls(plan),
        objects=runtime_objects(plan, 8),
        objects32=runtime_objects(plan, 4),
    )


def _argument(plan: m.ExecutionPlan, index: int, end: QuantizedEnd | None, *, set_by_code: bool) -> Argument:
    value = plan.values[index]
    if not isinstance(value, m.Tensor):
        return Argument(type=type(value).__name__.lower(), value=_scalar(value))
    unbounded = value.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND
    if value.is_constant:
        memory = "constant"
    elif set_by_code:
        memory = "alias"
    else:
        memory = "caller" if value.allocation_info is None else "planned"
    return Argument(
        type="tensor",
        dtype=dtype_name(value.scalar_type),
        shape=value.sizes,
        dynamism=("static", "bounded", "unbounded")[value.shape_dynamism],
        nbytes=None if unbounded else value.nbytes,
        device=str(value.device),
        memory=memory,
        scale=None if end is None else end.scale,
        zero_point=None if end is None else end.zero_point,
    )


def _scalar(value: m.Value) -> str | None:
    plain = m.plain_value(value)
    if isinstance(plain, bool):
        return str(plain).lower()
    return None if plain is None else str(plain)


def _set_by_code(plan: m.ExecutionPlan) -> set[int]:
    """Return the value indices of the tensors that a move or a view instruction sets.

    These tensors need no memory of their own.
    """
    found = set()
    for call in plan.instructions:
        if isinstance(call, m.MoveCall):
            found.add(call.move_to)
        elif isinstance(call, m.KernelCall) and plan.operators[call.op_index].name == "executorch_prim::et_view":
            found.update(call.args[-1:])
    return {index for index in found if isinstance(plan.values[index], m.Tensor)}


def _delegate(program: Program, delegate: m.BackendDelegate, calls: int) -> DelegateInfo:
    try:
        device = str(delegate_device(delegate))
    except DeviceNameError:
        device = "?"
    at = delegate.processed
    return DelegateInfo(
        id=delegate.id,
        calls=calls,
        device=device,
        blob_bytes=len(program.delegate_data(delegate)),
        segment=at.index if at.location is m.DataLocation.SEGMENT else None,
        compile_specs=tuple(
            CompileSpecInfo(spec.key, len(spec.value), _text(spec.value)) for spec in delegate.compile_specs
        ),
    )


def _text(content: bytes) -> str | None:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _holders(program: Program) -> dict[int, tuple[str, ...]]:
    """Map each segment to the kinds of its content, such as ``constants`` or ``delegates``, in a fixed order."""
    found: dict[int, dict[str, None]] = defaultdict(dict)
    for index, kind in _references(program):
        found[index][kind] = None
    return {index: tuple(kinds) for index, kinds in found.items()}


def _references(program: Program) -> Iterator[tuple[int, str]]:
    if program.constant_segment is not None and program.constant_segment.offsets:
        yield program.constant_segment.segment_index, "constants"
    for item in program.mutable_data_segments:
        yield item.segment_index, "initial_state"
    for plan in program.execution_plan:
        for delegate in plan.delegates:
            if delegate.processed.location is m.DataLocation.SEGMENT:
                yield delegate.processed.index, "delegates"
    for named in program.named_data:
        yield named.segment_index, "named_data"


def file_sections(program: Program, file: Path) -> Sections:
    """Return the size in bytes of each section of the file.

    A segment that belongs to several sections is counted only in the first of them.
    """
    size, flatbuffer = _sizes(file)
    holds = _holders(program)
    spent: Counter[str] = Counter()
    for index, segment in enumerate(program.segments):
        for kind in holds.get(index, ())[:1]:
            spent[kind] += len(segment.data)
    return Sections(
        flatbuffer=flatbuffer,
        constants=spent["constants"],
        initial_state=spent["initial_state"],
        delegates=spent["delegates"],
        named_data=spent["named_data"],
        other=size - flatbuffer - spent.total(),
    )


def _sizes(file: Path) -> tuple[int, int]:
    """Return the size of a file and the size of the flatbuffer at its start, in bytes."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        with memoryview(content) as view:
            header = parse_header(view)
        return len(content), len(content) if header is None else header.program_size
