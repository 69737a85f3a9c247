"""Description of a ``.pte``, for ``etdev inspect``; works without torch and executorch, and runs no code of the file.

The dataclasses here are the JSON that the command writes, field by field. Fields may be added. Existing ones keep their
names and meanings as long as ``format`` is 1.
"""

from __future__ import annotations

import json
import mmap
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from etdev import program as pte
from etdev.inspection.copies import CopyCalls, OutputInPlace, copy_calls
from etdev.inspection.naming import dtype_name
from etdev.inspection.peaks import Peak
from etdev.inspection.planned_memory import BufferUse, MemoryUse, StateUse, memory_use, method_memories
from etdev.inspection.transfers import copies_per_call
from etdev.pipeline.results.result_parts import Copies
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.analysis.storage import MethodMemory
from etdev.program.data_files.lookups import missing_data
from etdev.program.footprint import constant_bytes, planned_memory
from etdev.program.header import parse_header

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or an output of a method. Fields that do not apply to its type are None."""

    type: str
    """``tensor``, or ``int``, ``bool``, ``double``, ``string``, ``null``, …"""
    dtype: str | None = None
    """Element type, such as ``float32``."""
    shape: tuple[int, ...] | None = None
    """Shape in elements. Upper bounds if bounded, without meaning if unbounded."""
    dynamism: str | None = None
    """``static``, ``bounded`` or ``unbounded``."""
    nbytes: int | None = None
    """Bytes at the largest size; None for an unbounded tensor too."""
    device: str | None = None
    """Device such as ``cpu`` or ``cuda:0``."""
    memory: str | None = None
    """``planned``; ``caller``, if the caller provides it; ``constant``; or ``alias`` of memory known only at run time.
    """
    value: str | None = None
    """Value in the file of a number, a truth value or a string, as text."""

    def __str__(self) -> str:
        if self.type != "tensor":
            return self.type if self.value is None else f"{self.type} {self.value}"
        sizes = ", ".join(map(str, self.shape or ()))
        bound = {"static": "", "bounded": " at most", "unbounded": " without limit"}[self.dynamism or "static"]
        return f"{self.dtype} [{sizes}]{bound}"


@dataclass(frozen=True, slots=True)
class CompileSpecInfo:
    """A setting that a delegate was compiled with."""

    key: str
    size: int
    """Bytes of the value."""
    text: str | None
    """The value if it is printable UTF-8 text."""


@dataclass(frozen=True, slots=True)
class DelegateInfo:
    """A part of a method that a backend runs."""

    id: str
    """Name of the backend."""
    calls: int
    """Number of instructions that call it."""
    blob_bytes: int
    """Bytes of the backend's data."""
    segment: int | None
    """Segment of that data; None if it is inside the flatbuffer."""
    compile_specs: tuple[CompileSpecInfo, ...]


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """A method of a program."""

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    buffers: tuple[BufferUse, ...]
    state: tuple[StateUse, ...]
    peaks: tuple[Peak, ...]
    """Peak of each buffer that holds more than state."""
    inplace: tuple[OutputInPlace, ...]
    """Outputs written over an operand."""
    memory_unknown: str | None
    """Reason why lower bounds, state, peaks and outputs in place are unknown; None if they are known."""
    instructions: int
    operators: dict[str, int]
    """Operator such as ``aten::add.out`` → number of instructions that call it, sorted by name.

    The runtime must have an operator even if no instruction calls it.
    """
    delegates: tuple[DelegateInfo, ...]
    copies: Copies
    """Bytes copied between the host and devices."""
    copying: tuple[CopyCalls, ...]
    """Copies between tensors in the same memory, those with the most bytes first."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Data after the flatbuffer."""

    index: int
    offset: int
    """Offset in bytes from the first segment."""
    size: int
    """Bytes."""
    holds: tuple[str, ...]
    """Users: ``constants``, ``initial_state``, ``delegates``, ``named_data``; empty if nothing refers to it."""


@dataclass(frozen=True, slots=True)
class NamedDataInfo:
    """Data that delegates look up by name."""

    key: str
    segment: int
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Sections:
    """Bytes of a file by purpose; their sum is the file's size."""

    flatbuffer: int
    """Bytes of the flatbuffer, including the header and inline data."""
    constants: int
    initial_state: int
    delegates: int
    named_data: int
    other: int
    """Padding, and segments that nothing refers to."""


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """A ``.pte`` file."""

    format: int
    file: str
    size: int
    """Bytes."""
    schema_version: int
    header_bytes: int | None
    """Length of the extended header; None in a file without one."""
    methods: tuple[MethodInfo, ...]
    memory: dict[str, int]
    """Planned bytes per device: the sum over buffers of the largest size in any method."""
    weights_bytes: int
    """Bytes of tensors' constants, in segments and in the flatbuffer; excludes delegates and other files."""
    sections: Sections
    segments: tuple[SegmentInfo, ...]
    named_data: tuple[NamedDataInfo, ...]
    external_data: tuple[str, ...]
    """Names of data in another file (``.ptd``): of tensors, and of delegates whose blobs tell what they look up."""
    unknown_fields: tuple[str, ...]
    """Fields of the file that this version of etdev does not know."""

    def to_json(self) -> str:
        """Return the versioned document of ``etdev inspect --output json``."""
        return json.dumps(asdict(self), indent=2)


def inspect(file: str | os.PathLike[str]) -> ProgramInfo:
    """Describe a ``.pte`` from any toolchain.

    Raises :class:`~etdev.errors.ProgramError` if it cannot be read or is malformed. A program that overwrites its own
    values is described too; :attr:`MethodInfo.memory_unknown` states the problem.
    """
    return inspect_memory(file)[0]


def inspect_memory(file: str | os.PathLike[str]) -> tuple[ProgramInfo, tuple[MethodMemory | str, ...]]:
    """Describe a ``.pte`` as :func:`inspect` does; also return each method's planned memory, or why it is unknown."""
    program = pte.read(file)
    memories = method_memories(program)
    return describe(program, Path(file), memories), memories


def describe(program: Program, file: Path, memories: Sequence[MethodMemory | str] | None = None) -> ProgramInfo:
    """Describe the program that was read from a file.

    ``memories`` are the methods' uses of planned memory, if they are known already.
    """
    memories = method_memories(program) if memories is None else memories
    holds = _holders(program)
    return ProgramInfo(
        format=FORMAT,
        file=str(file),
        size=file.stat().st_size,
        schema_version=program.version,
        header_bytes=program.header_length,
        methods=tuple(
            _method(program, plan, memory)
            for plan, memory in zip(program.execution_plan, memory_use(program, memories), strict=True)
        ),
        memory=planned_memory(program),
        weights_bytes=constant_bytes(program),
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
        unknown_fields=program.unknown_fields,
    )


def _method(program: Program, plan: m.ExecutionPlan, memory: MemoryUse) -> MethodInfo:
    calls = plan.instructions
    kernels = Counter(call.op_index for call in calls if isinstance(call, m.KernelCall))
    operators: Counter[str] = Counter()
    for index, operator in enumerate(plan.operators):
        operators[operator_name(operator)] += kernels[index]
    set_by_code = _set_by_code(plan, calls)
    return MethodInfo(
        name=plan.name,
        inputs=tuple(_argument(plan, value, set_by_code=False) for value in plan.inputs),
        outputs=tuple(_argument(plan, value, set_by_code=value in set_by_code) for value in plan.outputs),
        buffers=memory.buffers,
        state=memory.state,
        peaks=memory.peaks,
        inplace=memory.inplace,
        memory_unknown=memory.unknown,
        instructions=len(calls),
        operators=dict(sorted(operators.items())),
        delegates=_delegates(program, plan, calls),
        copies=copies_per_call(plan),
        copying=copy_calls(plan, calls),
    )


def _argument(plan: m.ExecutionPlan, index: int, *, set_by_code: bool) -> Argument:
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
    )


def _scalar(value: m.Value) -> str | None:
    match value:
        case m.Int():
            return str(value.int_val)
        case m.Bool():
            return str(value.bool_val).lower()
        case m.Double():
            return repr(value.double_val)
        case m.String():
            return value.string_val
        case _:
            return None


def _set_by_code(plan: m.ExecutionPlan, calls: Iterable[m.Instruction]) -> set[int]:
    """Return tensors without memory of their own that an instruction sets to another tensor, or to an alias of one."""
    found = set()
    for call in calls:
        if isinstance(call, m.MoveCall):
            found.add(call.move_to)
        elif isinstance(call, m.KernelCall) and plan.operators[call.op_index].name == "executorch_prim::et_view":
            found.update(call.args[-1:])
    return {index for index in found if isinstance(plan.values[index], m.Tensor)}


def _delegates(program: Program, plan: m.ExecutionPlan, calls: Iterable[m.Instruction]) -> tuple[DelegateInfo, ...]:
    times = Counter(call.delegate_index for call in calls if isinstance(call, m.DelegateCall))
    found = []
    for index, delegate in enumerate(plan.delegates):
        at = delegate.processed
        in_segment = at.location is m.DataLocation.SEGMENT
        blob = program.segments[at.index].data if in_segment else program.backend_delegate_data[at.index]
        specs = tuple(CompileSpecInfo(spec.key, len(spec.value), _text(spec.value)) for spec in delegate.compile_specs)
        found.append(DelegateInfo(delegate.id, times[index], len(blob), at.index if in_segment else None, specs))
    return tuple(found)


def _text(content: bytes) -> str | None:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _holders(program: Program) -> dict[int, tuple[str, ...]]:
    """Return the users of each segment, in a fixed order."""
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
    """Return the bytes of the file by purpose; a segment with several users counts for the first."""
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
    """Return the bytes of the file, and of the flatbuffer at its start."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        with memoryview(content) as view:
            header = parse_header(view)
        return len(content), len(content) if header is None else header.program_size
