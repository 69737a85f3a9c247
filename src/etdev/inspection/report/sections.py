"""Sections of a program's file and of its data files, with the largest items in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from etdev.errors import ProgramError
from etdev.inspection.provenance import Provenance
from etdev.page.model import FilePage, Section
from etdev.program import Program, flat_tensor, read
from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.constants import constant_data
from etdev.program.info import ConstantInfo, ConstantKind, ProgramInfo

_Item: TypeAlias = tuple[str, int, str]
"""An item of a section: its name, its size in bytes, and other facts as text."""
_LISTED = 200
"""Maximum number of items listed for each section, the largest first."""


def sections(program: Program, info: ProgramInfo, known: Provenance) -> tuple[Section, ...]:
    """Return the sections of a program's file, in the same order as ``etdev inspect``."""
    items: dict[str, Iterable[_Item]] = {
        "constants": _weights(program, info, known, "constant"),
        "initial state": _weights(program, info, known, "initial value"),
        "delegates": _blobs(info),
        "named data": [(item.key, item.size, "looked up by delegates") for item in info.named_data],
    }
    return tuple(Section(name, size, _largest(items.get(name, ()))) for name, size in info.sections.parts().items())


def data_page(info: ProgramInfo, file: Path, known: Provenance) -> FilePage:
    """Return the part of the page that describes a data file. Raises :class:`~etdev.errors.ProgramError`."""
    data = flat_tensor.read(file)
    users = {item.name or "": _use(item, known) for item in info.constants if item.kind == "external"}
    looked_up = {name for notes in known.notes.values() for name in notes.data_names} - users.keys()
    found: dict[int, list[flat_tensor.NamedData]] = {}
    for item in data.named_data:
        found.setdefault(item.segment_index, []).append(item)
    items: dict[str, list[_Item]] = {"constants": [], "named data": []}
    for index, (first, *others) in found.items():
        kind = "named data" if first.tensor_layout is None or first.key in looked_up else "constants"
        what = users.get(first.key, "looked up by delegates" if kind == "named data" else "used by no tensor")
        also = f", the same bytes as {', '.join(other.key for other in others)}" if others else ""
        items[kind].append((first.key, len(data.segments[index].data), f"{what}{also}"))
    sizes = {kind: sum(size for _, size, _ in of_kind) for kind, of_kind in items.items()}
    size = file.stat().st_size
    found_sections = [Section(kind, sizes[kind], _largest(of_kind)) for kind, of_kind in items.items() if of_kind]
    return FilePage(file.name, size, (*found_sections, Section("names and padding", size - sum(sizes.values()), ())))


def _largest(items: Iterable[_Item]) -> tuple[_Item, ...]:
    return tuple(sorted(items, key=lambda item: (-item[1], item[0]))[:_LISTED])


def _blobs(info: ProgramInfo) -> Iterator[_Item]:
    """Yield an item for each delegate blob; several delegates may share a blob."""
    seen: set[int | None] = set()
    for method in info.methods:
        for index, delegate in enumerate(method.delegates):
            if delegate.segment is None or delegate.segment in seen:
                continue
            seen.add(delegate.segment)
            yield f"{delegate.id} {index}", delegate.blob_bytes, _called(delegate.calls, method.name)


def _called(calls: int, method: str) -> str:
    return f"called {calls:,} time{'s' * (calls != 1)} in {method}"


def _weights(program: Program, info: ProgramInfo, known: Provenance, kind: ConstantKind) -> Iterator[_Item]:
    """Yield the items of the program's constants, or of its initial values, depending on ``kind``."""
    for name, _, item in named_constants(program, info, known, kind):
        yield name, item.nbytes, _use(item, known)


def named_constants(
    program: Program, info: ProgramInfo, known: Provenance, kind: ConstantKind
) -> Iterator[tuple[str, bool, ConstantInfo]]:
    """Yield ``(name, named, constant)`` for each constant or each initial value of a program.

    ``named`` is False if the name only states the index. ``kind`` selects constants or initial values.
    """
    named = _parameters(known)
    for item in info.constants:
        if item.kind == kind:
            parameter, data = named.get(item.index, ("", None))
            tensor = program.method(item.method).values[item.value]
            same = isinstance(tensor, m.Tensor) and data is not None and data == constant_data(program, tensor)
            name = parameter if same and parameter else item.name
            yield name or f"{kind} {item.index}", bool(name), item


def _parameters(known: Provenance) -> dict[int, tuple[str, Blob | None]]:
    """Map the index of each constant in the object program to a pair: the constant's name in the model, and its bytes.

    The linked file has the same indices but no names. The linked file may have additional constants, or the object
    program may be from another build. Therefore, use a name only if the constant of the linked file has the same bytes.
    """
    if known.objects is None:
        return {}
    try:
        program = read(known.objects)
    except (OSError, ProgramError):
        return {}
    return {
        tensor.data_buffer_idx: (tensor.extra_tensor_info.fully_qualified_name or "", constant_data(program, tensor))
        for plan in program.execution_plan
        for _, tensor in plan.tensors()
        if tensor.is_constant and tensor.extra_tensor_info is not None
    }


def _use(item: ConstantInfo, known: Provenance) -> str:
    """Return a text with a constant's type and first use, such as ``float32 [4], for aten::add.out at model.py:7``."""
    text = f"{item.dtype} [{', '.join(map(str, item.shape))}]"
    if item.instruction is None:
        return text
    sources = known.notes[item.method].sources if item.method in known.notes else {}
    line = sources.get(item.instruction)
    return f"{text}, for {item.operator}{'' if line is None else f' at {line}'}"
