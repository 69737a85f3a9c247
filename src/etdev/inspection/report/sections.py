"""The sections of a program and of its data files, with the largest items in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from etdev.errors import ProgramError
from etdev.inspection.inspect import ProgramInfo
from etdev.inspection.naming import dtype_name, instruction_name
from etdev.inspection.report.provenance import Provenance
from etdev.page.model import FilePage, Section
from etdev.program import Program, flat_tensor, read
from etdev.program import model as m
from etdev.program.analysis.effects import tensors
from etdev.program.blob import Blob
from etdev.program.constants import constant_data
from etdev.program.sidecar import Source

_NAMES = {
    "flatbuffer": "program",
    "constants": "constants",
    "initial_state": "initial state",
    "delegates": "delegates",
    "named_data": "named data",
    "other": "padding and unused",
}
_LISTED = 200
"""Maximum number of items listed per section, the largest ones."""


@dataclass(frozen=True, slots=True)
class _Weight:
    """Data of a constant or of an initial value."""

    name: str
    size: int
    """Bytes."""
    details: str


def sections(program: Program, info: ProgramInfo, known: Provenance) -> tuple[Section, ...]:
    """Return the sections that a file has, in the order of ``etdev inspect``."""
    constants, initial = _weights(program, known)
    items = {
        "constants": [(item.name, item.size, item.details) for item in constants],
        "initial_state": [(item.name, item.size, item.details) for item in initial],
        "delegates": _blobs(info),
        "named_data": [(item.key, item.size, "looked up by delegates") for item in info.named_data],
    }
    return tuple(
        Section(_NAMES[name], size, _largest(items.get(name, ())))
        for name, size in asdict(info.sections).items()
        if size
    )


def data_page(program: Program, file: Path, known: Provenance) -> FilePage:
    """Return the sections of one of a program's data files. Raises :class:`~etdev.errors.ProgramError`."""
    data, users = flat_tensor.read(file), _external_weights(program, known)
    looked_up = {name for notes in known.notes.values() for name in notes.data_names} - users.keys()
    found: dict[int, list[flat_tensor.NamedData]] = {}
    for item in data.named_data:
        found.setdefault(item.segment_index, []).append(item)
    items: dict[str, list[tuple[str, int, str]]] = {"constants": [], "named data": []}
    for index, (first, *others) in found.items():
        kind = "named data" if first.tensor_layout is None or first.key in looked_up else "constants"
        what = users.get(first.key, "looked up by delegates" if kind == "named data" else "of no tensor of the program")
        also = f", the same bytes as {', '.join(other.key for other in others)}" if others else ""
        items[kind].append((first.key, len(data.segments[index].data), f"{what}{also}"))
    sizes = {kind: sum(size for _, size, _ in of_kind) for kind, of_kind in items.items()}
    size = file.stat().st_size
    found_sections = [Section(kind, sizes[kind], _largest(of_kind)) for kind, of_kind in items.items() if of_kind]
    return FilePage(file.name, size, (*found_sections, Section("names and padding", size - sum(sizes.values()), ())))


def _largest(items: Iterable[tuple[str, int, str]]) -> tuple[tuple[str, int, str], ...]:
    return tuple(sorted(items, key=lambda item: (-item[1], item[0]))[:_LISTED])


def _blobs(info: ProgramInfo) -> Iterator[tuple[str, int, str]]:
    """Yield each blob once, even if several delegates share it."""
    seen: set[int | None] = set()
    for method in info.methods:
        for index, delegate in enumerate(method.delegates):
            if delegate.segment is None or delegate.segment in seen:
                continue
            seen.add(delegate.segment)
            yield f"{delegate.id} {index}", delegate.blob_bytes, _called(delegate.calls, method.name)


def _called(calls: int, method: str) -> str:
    return f"called {calls:,} time{'s' * (calls != 1)} in {method}"


def _weights(program: Program, known: Provenance) -> tuple[list[_Weight], list[_Weight]]:
    """Return constants and initial values, each once, with their first use."""
    found: dict[tuple[bool, int], _Weight] = {}
    named = _parameters(known)
    for plan in program.execution_plan:
        users = _first_users(plan)
        sources = known.notes[plan.name].sources if plan.name in known.notes else {}
        for value, tensor in plan.tensors():
            if tensor.is_external or tensor.data_buffer_idx == 0:
                continue
            key = tensor.allocation_info is not None, tensor.data_buffer_idx
            user = users.get(value)
            before = found.get(key)
            if before is None or before.size < tensor.nbytes:
                parameter, data = named.get(tensor.data_buffer_idx, ("", None))
                same = data is not None and data == constant_data(program, tensor)
                name = parameter if parameter and same else _name(tensor, *key)
                found[key] = _Weight(name, tensor.nbytes, _use(plan, tensor, user, sources))
    constants = [weight for (initial, _), weight in found.items() if not initial]
    return constants, [weight for (initial, _), weight in found.items() if initial]


def _parameters(known: Provenance) -> dict[int, tuple[str, Blob | None]]:
    """Return the model's name and the bytes of each constant of the object program, by its index.

    The link drops the names and keeps the indices. It may add other constants, and the object program may be of another
    build, so a name counts only for the same bytes.
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


def _external_weights(program: Program, known: Provenance) -> dict[str, str]:
    """Return descriptions of the tensors of each name in another file, with their first use."""
    used: dict[str, str] = {}
    unused: dict[str, str] = {}
    for plan in program.execution_plan:
        users = _first_users(plan)
        sources = known.notes[plan.name].sources if plan.name in known.notes else {}
        for value, tensor in plan.tensors():
            info = tensor.extra_tensor_info
            if tensor.is_external and info is not None:
                found = used if value in users else unused
                found.setdefault(info.fully_qualified_name or "", _use(plan, tensor, users.get(value), sources))
    return {**unused, **used}


def _use(
    plan: m.ExecutionPlan,
    tensor: m.Tensor,
    user: tuple[int, m.Instruction] | None,
    sources: Mapping[int, Source],
) -> str:
    """Return the tensor's type and first use: ``float32 [4], for aten::add.out at model.py:7``."""
    if user is None:
        return _shape(tensor)
    line = sources.get(user[0])
    return f"{_shape(tensor)}, for {instruction_name(plan, user[1])}{'' if line is None else f' at {line}'}"


def _name(tensor: m.Tensor, initial: bool, index: int) -> str:
    info = tensor.extra_tensor_info
    if info is not None and info.fully_qualified_name:
        return info.fully_qualified_name
    return f"{'initial value' if initial else 'constant'} {index}"


def _shape(tensor: m.Tensor) -> str:
    return f"{dtype_name(tensor.scalar_type)} [{', '.join(map(str, tensor.sizes))}]"


def _first_users(plan: m.ExecutionPlan) -> dict[int, tuple[int, m.Instruction]]:
    """Return per tensor the first instruction that has it as an argument, with its position."""
    found: dict[int, tuple[int, m.Instruction]] = {}
    for position, call in enumerate(plan.instructions):
        if isinstance(call, m.KernelCall | m.DelegateCall):
            for value in tensors(plan, call.args):
                found.setdefault(value, (position, call))
    return found
