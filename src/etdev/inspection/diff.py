"""Comparison of two ``.pte`` files, for ``etdev diff``; works without torch and executorch, and runs no code of them.

The dataclasses here are the JSON that the command writes, field by field.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from itertools import zip_longest
from pathlib import Path
from typing import Generic, TypeVar

from etdev import program as pte
from etdev.devices import DeviceNameError
from etdev.files import open_file
from etdev.inspection.inspect import Argument, MethodInfo, ProgramInfo, Sections, describe
from etdev.linker.edit import without_unused
from etdev.pipeline.results.result_parts import Copies
from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.program.devices import delegate_device

FORMAT = 1

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pair(Generic[_T]):
    """One item in both files."""

    a: _T
    b: _T

    @property
    def differs(self) -> bool:
        """True if the two differ."""
        return self.a != self.b


@dataclass(frozen=True, slots=True)
class ArgumentDiff:
    """An input or output that differs between the files; None for a position that a file does not have."""

    position: int
    a: Argument | None
    b: Argument | None


@dataclass(frozen=True, slots=True)
class BufferDiff:
    """A planned buffer of a method; its size is 0 in a file without it."""

    index: int
    device: str
    size: Pair[int]
    """Bytes."""
    lower_bound: Pair[int | None]
    """Bytes; None if unknown."""


@dataclass(frozen=True, slots=True)
class DelegateDiff:
    """All parts of a method that run on one backend, together."""

    id: str
    calls: Pair[int]
    devices: Pair[tuple[str, ...]]
    """Devices of its parts, from their compile specs; ``?`` for one that cannot be read."""
    blob_bytes: Pair[int]
    same_data: bool
    """True if every part has the same data and compile specs in both files."""


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """Differences in the addresses of a method."""

    same_code: bool
    """True if the methods are equal except for addresses, sizes of buffers, and unused content."""
    tensors: int | None
    """Number of tensors in planned memory; None if the code differs, so that tensors cannot be matched."""
    moved: int | None
    """Number of them with another address."""


@dataclass(frozen=True, slots=True)
class MethodDiff:
    """A method that both files have."""

    name: str
    same: bool
    """True if nothing differs except the content of constants."""
    instructions: Pair[int]
    inputs: tuple[ArgumentDiff, ...]
    outputs: tuple[ArgumentDiff, ...]
    buffers: tuple[BufferDiff, ...]
    operators: dict[str, Pair[int | None]]
    """Operators with another number of calls; None if the file does not name the operator."""
    copied_bytes: Pair[int]
    """Bytes that one pass over the instructions copies between tensors in the same memory, at the largest sizes."""
    tensors: dict[str, Pair[int]]
    """Number of tensors per device, if either file has any on a device other than the host."""
    transfers: Pair[Copies]
    """Largest number of bytes that one call copies between the host and devices."""
    inplace: Pair[int | None]
    """Number of outputs written over an operand; None if unknown."""
    delegates: tuple[DelegateDiff, ...]
    """Delegates that differ."""
    plan: PlanDiff


@dataclass(frozen=True, slots=True)
class ProgramDiff:
    """Differences between two ``.pte`` files."""

    format: int
    files: Pair[str]
    identical: bool
    """True if the files are equal byte for byte."""
    same_program: bool
    """True if they hold the same program, in any file layout."""
    size: Pair[int]
    """Bytes."""
    schema_version: Pair[int]
    header_bytes: Pair[int | None]
    sections: dict[str, Pair[int]]
    """Bytes of each part of the file."""
    memory: dict[str, Pair[int]]
    """Planned bytes per device."""
    weights_bytes: Pair[int]
    same_weights: bool
    """True if the constants are equal byte for byte."""
    methods_only_in_a: tuple[str, ...]
    methods_only_in_b: tuple[str, ...]
    methods: tuple[MethodDiff, ...]
    named_data: dict[str, Pair[int | None]]
    """Named data of another size or content; None in a file without that name."""
    external_only_in_a: tuple[str, ...]
    external_only_in_b: tuple[str, ...]

    def to_json(self) -> str:
        """Return the versioned document of ``etdev diff --output json``."""
        return json.dumps(asdict(self), indent=2)


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> ProgramDiff:
    """Compare two ``.pte`` files from any toolchain.

    Raises :class:`~etdev.errors.ProgramError` if one of them cannot be read or is malformed.
    """
    programs = Pair(pte.read(a), pte.read(b))
    found = Pair(describe(programs.a, Path(a)), describe(programs.b, Path(b)))
    names = Pair([method.name for method in found.a.methods], [method.name for method in found.b.methods])
    external = Pair(set(found.a.external_data), set(found.b.external_data))
    return ProgramDiff(
        format=FORMAT,
        files=Pair(found.a.file, found.b.file),
        identical=_same_bytes(Path(a), Path(b)),
        same_program=programs.a == programs.b,
        size=Pair(found.a.size, found.b.size),
        schema_version=Pair(found.a.schema_version, found.b.schema_version),
        header_bytes=Pair(found.a.header_bytes, found.b.header_bytes),
        sections={
            field.name: Pair(getattr(found.a.sections, field.name), getattr(found.b.sections, field.name))
            for field in fields(Sections)
        },
        memory={
            device: Pair(found.a.memory.get(device, 0), found.b.memory.get(device, 0))
            for device in dict.fromkeys((*found.a.memory, *found.b.memory))
        },
        weights_bytes=Pair(found.a.weights_bytes, found.b.weights_bytes),
        same_weights=_constants(programs.a) == _constants(programs.b),
        methods_only_in_a=tuple(name for name in names.a if name not in names.b),
        methods_only_in_b=tuple(name for name in names.b if name not in names.a),
        methods=tuple(_method_diff(name, programs, found) for name in names.a if name in names.b),
        named_data=_named_data_diff(programs),
        external_only_in_a=tuple(sorted(external.a - external.b)),
        external_only_in_b=tuple(sorted(external.b - external.a)),
    )


def _method_diff(name: str, programs: Pair[Program], found: Pair[ProgramInfo]) -> MethodDiff:
    plans = Pair(programs.a.method(name), programs.b.method(name))
    methods = Pair(_method(found.a, name), _method(found.b, name))
    calls = Pair(methods.a.operators, methods.b.operators)
    operators = {name: Pair(calls.a.get(name), calls.b.get(name)) for name in dict.fromkeys((*calls.a, *calls.b))}
    changed = {operator: pair for operator, pair in operators.items() if pair.differs}
    delegates = _delegate_diffs(programs, plans)
    buffers = _buffer_diffs(methods)
    plan = _plan_diff(plans)
    return MethodDiff(
        name=name,
        same=plan.same_code
        and not (plan.moved or delegates or changed)
        and not any(buffer.size.differs for buffer in buffers),
        instructions=Pair(methods.a.instructions, methods.b.instructions),
        inputs=_argument_diffs(methods.a.inputs, methods.b.inputs),
        outputs=_argument_diffs(methods.a.outputs, methods.b.outputs),
        buffers=buffers,
        operators=changed,
        copied_bytes=Pair(*(sum(copy.nbytes for copy in method.copying) for method in (methods.a, methods.b))),
        tensors=_tensor_diffs(plans),
        transfers=Pair(methods.a.copies, methods.b.copies),
        inplace=Pair(*(_outputs_in_place(method) for method in (methods.a, methods.b))),
        delegates=delegates,
        plan=plan,
    )


def _method(found: ProgramInfo, name: str) -> MethodInfo:
    return next(method for method in found.methods if method.name == name)


def _outputs_in_place(method: MethodInfo) -> int | None:
    return len(method.inplace) if method.memory_unknown is None else None


def _argument_diffs(a: Iterable[Argument], b: Iterable[Argument]) -> tuple[ArgumentDiff, ...]:
    return tuple(
        ArgumentDiff(position, first, second)
        for position, (first, second) in enumerate(zip_longest(a, b))
        if first != second
    )


def _buffer_diffs(methods: Pair[MethodInfo]) -> tuple[BufferDiff, ...]:
    """Return all buffers, since an equal buffer is informative too."""
    a, b = ({(buffer.index, buffer.device): buffer for buffer in method.buffers} for method in (methods.a, methods.b))
    return tuple(
        BufferDiff(
            index=key[0],
            device=key[1],
            size=Pair(a[key].size if key in a else 0, b[key].size if key in b else 0),
            lower_bound=Pair(a[key].lower_bound if key in a else 0, b[key].lower_bound if key in b else 0),
        )
        for key in sorted({*a, *b})
    )


def _delegate_diffs(programs: Pair[Program], plans: Pair[m.ExecutionPlan]) -> tuple[DelegateDiff, ...]:
    ids = sorted({delegate.id for plan in (plans.a, plans.b) for delegate in plan.delegates})
    found = []
    for name in ids:
        parts = Pair(_parts(programs.a, plans.a, name), _parts(programs.b, plans.b, name))
        calls = Pair(_calls(plans.a, name), _calls(plans.b, name))
        devices = Pair(_devices(plans.a, name), _devices(plans.b, name))
        if parts.differs or calls.differs or devices.differs:
            blobs = Pair(sum(len(blob) for blob, _ in parts.a), sum(len(blob) for blob, _ in parts.b))
            found.append(DelegateDiff(name, calls, devices, blobs, not parts.differs))
    return tuple(found)


def _parts(program: Program, plan: m.ExecutionPlan, name: str) -> list[tuple[Blob, tuple[m.CompileSpec, ...]]]:
    found = []
    for delegate in plan.delegates:
        if delegate.id == name:
            at = delegate.processed
            in_segment = at.location is m.DataLocation.SEGMENT
            blob = program.segments[at.index].data if in_segment else program.backend_delegate_data[at.index]
            found.append((blob, delegate.compile_specs))
    return found


def _devices(plan: m.ExecutionPlan, name: str) -> tuple[str, ...]:
    return tuple(sorted({_device(item) for item in plan.delegates if item.id == name}))


def _device(delegate: m.BackendDelegate) -> str:
    try:
        return str(delegate_device(delegate))
    except DeviceNameError:
        return "?"


def _tensor_diffs(plans: Pair[m.ExecutionPlan]) -> dict[str, Pair[int]]:
    a, b = (Counter(tensor.device for _, tensor in plan.tensors()) for plan in (plans.a, plans.b))
    devices = sorted({*a, *b})
    if all(device.is_host for device in devices):
        return {}
    return {str(device): Pair(a[device], b[device]) for device in devices}


def _calls(plan: m.ExecutionPlan, name: str) -> int:
    return sum(
        isinstance(call, m.DelegateCall) and plan.delegates[call.delegate_index].id == name
        for call in plan.instructions
    )


def _plan_diff(plans: Pair[m.ExecutionPlan]) -> PlanDiff:
    plans = Pair(without_unused(plans.a), without_unused(plans.b))
    if _without_addresses(plans.a) != _without_addresses(plans.b):
        return PlanDiff(same_code=False, tensors=None, moved=None)
    places = [
        (first.allocation_info, second.allocation_info)
        for (_, first), (_, second) in zip(plans.a.tensors(), plans.b.tensors(), strict=True)
        if first.allocation_info is not None
    ]
    return PlanDiff(same_code=True, tensors=len(places), moved=sum(first != second for first, second in places))


def _without_addresses(plan: m.ExecutionPlan) -> m.ExecutionPlan:
    nowhere = m.AllocationDetails(1, 0)
    values = tuple(
        replace(value, allocation_info=nowhere)
        if isinstance(value, m.Tensor) and value.allocation_info is not None
        else value
        for value in plan.values
    )
    # The place of a delegate's data in the file does not affect what the method does.
    delegates = tuple(
        replace(item, processed=m.BackendDelegateDataReference(m.DataLocation.INLINE, 0)) for item in plan.delegates
    )
    return replace(plan, values=values, delegates=delegates, non_const_buffer_sizes=(), non_const_buffer_device=())


def _constants(program: Program) -> tuple[tuple[Blob, ...], tuple[int, ...], Blob | None]:
    constants = program.constant_segment
    if constants is None or not constants.offsets:
        return program.constant_buffer, (), None
    return program.constant_buffer, constants.offsets, program.segments[constants.segment_index].data


def _named_data_diff(programs: Pair[Program]) -> dict[str, Pair[int | None]]:
    a, b = (
        {item.key: program.segments[item.segment_index].data for item in program.named_data}
        for program in (programs.a, programs.b)
    )
    return {
        key: Pair(len(a[key]) if key in a else None, len(b[key]) if key in b else None)
        for key in sorted({*a, *b})
        if key not in a or key not in b or a[key] != b[key]
    }


def _same_bytes(a: Path, b: Path) -> bool:
    chunk = 1 << 20
    with open_file(a) as first, open_file(b) as second:
        if os.fstat(first.fileno()).st_size != os.fstat(second.fileno()).st_size:
            return False
        while content := first.read(chunk):
            if content != second.read(chunk):
                return False
    return True
