"""Comparison of two ``.pte`` files, for ``etdev diff``.

This module needs neither torch nor executorch, and runs no code of the files. The fields of the dataclasses here are
the fields of the command's JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from etdev import program as pte
from etdev.files import file_sha256
from etdev.inspection.inspect import inspect_program
from etdev.linker.edit import without_unused
from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.program.info import MethodInfo, ProgramInfo

FORMAT = 1


@dataclass(frozen=True, slots=True)
class MethodDiff:
    """Comparison of two methods with the same name, one from each file.

    :class:`ProgramDiff` has the description of each method.
    """

    name: str
    same: bool
    """True if the methods are equal, including addresses and buffer sizes; the content of constants is ignored."""
    same_code: bool
    """True if the instructions and values are equal; addresses, buffer sizes and unused content are ignored."""
    planned: int | None
    """Number of tensors in planned memory; None if the code differs, which prevents a comparison of tensors."""
    moved: int | None
    """Number of planned tensors whose addresses differ between the files; None if the code differs."""
    delegates: tuple[str, ...]
    """Sorted ids of the backends whose delegates differ in their data, compile specs or numbers of calls."""


@dataclass(frozen=True, slots=True)
class ProgramDiff:
    """Comparison of two ``.pte`` files, with the description of each file."""

    format: int
    identical: bool
    """True if the files are equal byte for byte."""
    same_program: bool
    """True if the files contain the same program. The files may still differ in layout."""
    same_weights: bool
    """True if the constants are equal byte for byte."""
    changed_data: tuple[str, ...]
    """Sorted names of the data that is in both files but has different content."""
    methods: tuple[MethodDiff, ...]
    """Comparison of each method that both files have, in the order of the first file."""
    a: ProgramInfo
    b: ProgramInfo

    def to_json(self) -> str:
        """Return the JSON of ``etdev diff --output json``, which includes the format's version."""
        return json.dumps(asdict(self), indent=2)


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> ProgramDiff:
    """Compare two ``.pte`` files from any toolchain.

    Raises :class:`~etdev.errors.ProgramError` if one of the files cannot be read or is malformed.
    """
    first, second = pte.read(a), pte.read(b)
    found = inspect_program(first, Path(a))[0], inspect_program(second, Path(b))[0]
    data = [{item.key: each.segments[item.segment_index].data for item in each.named_data} for each in (first, second)]
    others = {method.name for method in found[1].methods}
    return ProgramDiff(
        format=FORMAT,
        identical=os.path.getsize(a) == os.path.getsize(b) and file_sha256(Path(a)) == file_sha256(Path(b)),
        same_program=first == second,
        same_weights=_constants(first) == _constants(second),
        changed_data=tuple(sorted(key for key in data[0].keys() & data[1].keys() if data[0][key] != data[1][key])),
        methods=tuple(
            _method_diff(first, second, method, found[1].method(method.name))
            for method in found[0].methods
            if method.name in others
        ),
        a=found[0],
        b=found[1],
    )


def _method_diff(a: Program, b: Program, first: MethodInfo, second: MethodInfo) -> MethodDiff:
    plans = a.method(first.name), b.method(first.name)
    delegates = tuple(
        name
        for name in sorted({delegate.id for plan in plans for delegate in plan.delegates})
        if _parts(a, plans[0], name) != _parts(b, plans[1], name) or _calls(first, name) != _calls(second, name)
    )
    planned, moved = _moved(without_unused(plans[0]), without_unused(plans[1]))
    sizes = [[(buffer.index, buffer.device, buffer.size) for buffer in each.buffers] for each in (first, second)]
    return MethodDiff(
        name=first.name,
        same=moved == 0 and not delegates and first.operators == second.operators and sizes[0] == sizes[1],
        same_code=moved is not None,
        planned=planned,
        moved=moved,
        delegates=delegates,
    )


def _parts(program: Program, plan: m.ExecutionPlan, name: str) -> list[tuple[Blob, tuple[m.CompileSpec, ...]]]:
    return [(program.delegate_data(part), part.compile_specs) for part in plan.delegates if part.id == name]


def _calls(method: MethodInfo, name: str) -> int:
    return sum(delegate.calls for delegate in method.delegates if delegate.id == name)


def _moved(a: m.ExecutionPlan, b: m.ExecutionPlan) -> tuple[int, int] | tuple[None, None]:
    """Return the number of planned tensors, and the number of planned tensors whose addresses differ.

    Both numbers are None if the code differs.
    """
    if _without_addresses(a) != _without_addresses(b):
        return None, None
    places = [
        (first.allocation_info, second.allocation_info)
        for (_, first), (_, second) in zip(a.tensors(), b.tensors(), strict=True)
        if first.allocation_info is not None
    ]
    return len(places), sum(first != second for first, second in places)


def _without_addresses(plan: m.ExecutionPlan) -> m.ExecutionPlan:
    nowhere = m.AllocationDetails(1, 0)
    values = tuple(
        replace(value, allocation_info=nowhere)
        if isinstance(value, m.Tensor) and value.allocation_info is not None
        else value
        for value in plan.values
    )
    # The position of a delegate's data in the file does not affect the method.
    delegates = tuple(
        replace(item, processed=m.BackendDelegateDataReference(m.DataLocation.INLINE, 0)) for item in plan.delegates
    )
    return replace(plan, values=values, delegates=delegates, non_const_buffer_sizes=(), non_const_buffer_device=())


def count_copied(method: MethodInfo) -> int:
    """Return the number of bytes that a method's copies copy in a call."""
    return sum(item.nbytes for item in method.copies)


def count_in_place(method: MethodInfo) -> int | None:
    """Return the number of outputs that overwrite an operand; None if unknown."""
    return None if method.memory_unknown else len(method.inplace)


def _constants(program: Program) -> tuple[tuple[Blob, ...], tuple[int, ...], Blob | None]:
    constants = program.constant_segment
    if constants is None or not constants.offsets:
        return program.constant_buffer, (), None
    return program.constant_buffer, constants.offsets, program.segments[constants.segment_index].data
