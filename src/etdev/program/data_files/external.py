"""Functions that move constants and named data from a program to a data file, and back.

The runtime finds an external constant by its name and layout. A delegate finds its data by a key. A tensor keeps its
name if no other data has that name. Otherwise, the tensor's name is a digest of its layout and bytes. ExecuTorch's
delegates use such names, too. Tensors with the same layout and bytes share an entry. Tensors with the same bytes share
a segment.

Some data stays in the program:

* initial values of state, which are copied only once, when a method is loaded;
* constants that a method returns, because some loaders replace the bytes of an external constant that is an output;
* data inside the flatbuffer;
* named data in a segment that has other users;
* empty data.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from etdev.errors import ProgramError
from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.constants import constant_data
from etdev.program.flat_tensor.model import FlatTensor, NamedData, TensorLayout
from etdev.program.header import LONG
from etdev.program.segments import CONSTANT_ALIGNMENT, SEGMENT_ALIGNMENT, align, laid_out

_Content: TypeAlias = tuple[TensorLayout, Blob]
_Place: TypeAlias = tuple[int, int]
"""Index of a method, and index of a value in that method."""


def externalize(program: m.Program, reserved: Collection[str] = ()) -> tuple[m.Program, FlatTensor]:
    """Move constants and named data to a data file. Return the remaining program, and the content of the file.

    ``reserved`` contains names of data in other files. No constant gets one of these names. :func:`internalize`
    moves the data back.

    Raises :class:`~etdev.errors.ProgramError` if some of the program's data is already in another file.
    """
    if external_names(program):
        raise ProgramError(
            "some data of the program is already in a data file", hint="join the program and its data file first"
        )
    contents = {place: found for place, found in _constants(program) if not _is_returned(program, place)}
    keys = _keys(program, contents, reserved)
    tensors = {place: _outside(_tensor(program, place), key) for place, key in keys.items()}
    kept = {place: blob for place, (_, blob) in _constants(program) if place not in keys}
    outside = _without_constants(_with_tensors(program, tensors), kept)
    moved = movable_data(outside)
    pool: dict[Blob, int] = {}
    named: dict[str, NamedData] = {}
    for place, key in keys.items():
        layout, blob = contents[place]
        named.setdefault(key, NamedData(key, pool.setdefault(blob, len(pool)), layout))
    for item in moved:
        blob = outside.segments[item.segment_index].data
        named[item.key] = NamedData(item.key, pool.setdefault(blob, len(pool)))
    data = FlatTensor(laid_out(pool, SEGMENT_ALIGNMENT), tuple(named.values()))
    return _without(outside, moved), data


def take_named(program: m.Program, wanted: Mapping[str, TensorLayout | None]) -> tuple[m.Program, FlatTensor]:
    """Move the ``wanted`` named data to a data file. Return the remaining program, and the content of the file.

    ``wanted`` maps each name to the layout for the file. The program does not state a layout for named data.
    """
    moved = [item for item in program.named_data if item.key in wanted]
    pool: dict[Blob, int] = {}
    named = [
        NamedData(item.key, pool.setdefault(program.segments[item.segment_index].data, len(pool)), wanted[item.key])
        for item in moved
    ]
    return _without(program, moved), FlatTensor(laid_out(pool, SEGMENT_ALIGNMENT), tuple(named))


def internalize(program: m.Program, *files: FlatTensor) -> m.Program:
    """Move the data of constants and delegates from ``files`` into a program. Return that program.

    Raises :class:`~etdev.errors.ProgramError` for data that is missing, has another layout, or is in two files. The
    error names the data.
    """
    data = files[0] if len(files) == 1 else _one_file(files)
    known = {item.key: item for item in data.named_data}
    places: dict[_Place, NamedData] = {}
    sizes: dict[int, int] = {}  # Index of a segment → bytes that the largest tensor in it needs.
    for place, tensor in _tensors(program):
        if _is_outside(tensor):
            item = places[place] = _checked_data(program.execution_plan[place[0]].name, place[1], tensor, known)
            sizes[item.segment_index] = max(sizes.get(item.segment_index, 0), tensor.nbytes)
    count = len(program.constant_segment.offsets) or 1 if program.constant_segment else 1
    indices = {segment: index for index, segment in enumerate(sizes, start=count)}
    inside = {place: _inside(_tensor(program, place), indices[item.segment_index]) for place, item in places.items()}
    program = _with_tensors(program, inside)
    if sizes:
        program = _with_constants(program, [data.segments[index].data.cut(0, size) for index, size in sizes.items()])
    taken = {item.key for item in places.values()}
    rest = [item for item in data.named_data if item.key not in taken]
    return _with_named(program, data, rest) if rest and _has_delegates(program) else program


def external_names(program: m.Program) -> tuple[str, ...]:
    """Return the names of the tensors whose data is in another file, sorted."""
    infos = (tensor.extra_tensor_info for _, tensor in _tensors(program) if tensor.is_external)
    return tuple(sorted({info.fully_qualified_name or "" for info in infos if info is not None}))


def without_constant_names(program: m.Program) -> m.Program:
    """Return the program without names for the constants that it contains. No runtime reads these names."""
    tensors = {}
    for place, tensor in _tensors(program):
        info = tensor.extra_tensor_info
        if tensor.is_constant and not tensor.is_external and info is not None and info.fully_qualified_name is not None:
            unnamed = replace(info, fully_qualified_name=None)
            tensors[place] = replace(tensor, extra_tensor_info=None if unnamed == m.ExtraTensorInfo() else unnamed)
    return _with_tensors(program, tensors)


# Used by moves in both directions


def _tensors(program: m.Program) -> Iterator[tuple[_Place, m.Tensor]]:
    for method, plan in enumerate(program.execution_plan):
        for value, tensor in plan.tensors():
            yield (method, value), tensor


def _tensor(program: m.Program, place: _Place) -> m.Tensor:
    method, value = place
    return program.execution_plan[method].tensor(value)


def _with_tensors(program: m.Program, tensors: Mapping[_Place, m.Tensor]) -> m.Program:
    if not tensors:
        return program
    plans = []
    for method, plan in enumerate(program.execution_plan):
        values = tuple(tensors.get((method, index), value) for index, value in enumerate(plan.values))
        plans.append(plan if values == plan.values else replace(plan, values=values))
    return replace(program, execution_plan=tuple(plans))


def _layout(tensor: m.Tensor) -> TensorLayout:
    return TensorLayout(tensor.scalar_type, tensor.sizes, tensor.dim_order)


def _has_delegates(program: m.Program) -> bool:
    return any(plan.delegates for plan in program.execution_plan)


def _users(program: m.Program) -> Counter[int]:
    """Map the index of a segment to the number of references to it. References from named data do not count."""
    found = Counter(item.segment_index for item in program.mutable_data_segments)
    if program.constant_segment is not None and program.constant_segment.offsets:
        found[program.constant_segment.segment_index] += 1
    for plan in program.execution_plan:
        for delegate in plan.delegates:
            if delegate.processed.location is m.DataLocation.SEGMENT:
                found[delegate.processed.index] += 1
    return found


# From the program to a data file


def _constants(program: m.Program) -> Iterator[tuple[_Place, _Content]]:
    """Yield the constants with data outside of the flatbuffer."""
    for place, tensor in _tensors(program):
        data = constant_data(program, tensor)
        if data is not None and len(data):
            yield place, (_layout(tensor), data)


def _is_returned(program: m.Program, place: _Place) -> bool:
    return place[1] in program.execution_plan[place[0]].outputs


def returns_external_constant(program: m.Program) -> bool:
    """Return True if a method returns a constant whose data is in another file."""
    return any(_is_returned(program, place) and _is_outside(tensor) for place, tensor in _tensors(program))


def movable_data(program: m.Program) -> list[m.NamedData]:
    """Return the named data that can be moved to a data file."""
    if not _has_delegates(program):
        return []
    kept = {*_users(program), *(item.segment_index for item in program.named_data if not _is_key(item.key))}
    return [
        item
        for item in program.named_data
        if item.segment_index not in kept and len(program.segments[item.segment_index].data)
    ]


def _is_key(name: str | None) -> bool:
    return bool(name) and "\0" not in (name or "")


def _keys(program: m.Program, contents: Mapping[_Place, _Content], reserved: Collection[str]) -> dict[_Place, str]:
    """Return the data file's key for each constant, in the order of the constants.

    Constants that can keep their names get their keys first. All other constants get digests.
    """
    taken: dict[str, _Content | None] = dict.fromkeys((*reserved, *(item.key for item in program.named_data)))
    by_content: dict[_Content, str] = {}
    keys: dict[_Place, str] = {}
    for place, content in contents.items():
        info = _tensor(program, place).extra_tensor_info
        name = info.fully_qualified_name if info is not None else None
        if name is not None and _is_key(name) and taken.setdefault(name, content) == content:
            keys[place] = name
            by_content.setdefault(content, name)
    for place, content in contents.items():
        if place not in keys:
            keys[place] = by_content.get(content) or by_content.setdefault(content, _digest(*content))
    return {place: keys[place] for place in contents}


def _digest(layout: TensorLayout, blob: Blob) -> str:
    found = hashlib.sha256(f"{layout.scalar_type.name} {layout.sizes} {layout.dim_order} ".encode())
    for piece in blob.pieces():
        found.update(piece)
    return found.hexdigest()


def _outside(tensor: m.Tensor, key: str) -> m.Tensor:
    info = tensor.extra_tensor_info or m.ExtraTensorInfo()
    info = replace(info, fully_qualified_name=key, location=m.TensorDataLocation.EXTERNAL)
    return replace(tensor, data_buffer_idx=0, extra_tensor_info=info)


def _without_constants(program: m.Program, kept: Mapping[_Place, Blob]) -> m.Program:
    """Return the program with a constant segment that contains only the bytes ``kept``.

    Constants that remain in the program and are not in ``kept`` must be empty.
    """
    found = program.constant_segment
    if found is None or not found.offsets or program.constant_buffer:
        return program
    inside = {place: replace(tensor, data_buffer_idx=1) for place, tensor in _tensors(program) if _is_inside(tensor)}
    empty = inside.keys() - kept.keys()
    blobs = [segment.data for segment in program.segments]
    index = found.segment_index
    if _is_shared(program, index):
        index = len(blobs)
        blobs.append(Blob())
    blobs[index] = Blob()
    constants = m.SubsegmentOffsets(index, (0, 0) if empty else (0,))
    segments = laid_out(blobs, SEGMENT_ALIGNMENT)
    pool = {blob: number for number, blob in enumerate(dict.fromkeys(kept.values()), start=len(constants.offsets))}
    inside |= {place: replace(inside[place], data_buffer_idx=pool[blob]) for place, blob in kept.items()}
    made = replace(_with_tensors(program, inside), constant_segment=constants, segments=segments)
    return _with_constants(made, pool) if pool else made


def _is_inside(tensor: m.Tensor) -> bool:
    return tensor.is_constant and not tensor.is_external


def _is_outside(tensor: m.Tensor) -> bool:
    return tensor.is_constant and tensor.is_external


def _is_shared(program: m.Program, constants: int) -> bool:
    """Return whether any data other than constants uses the segment with the index ``constants``."""
    return _users(program)[constants] > 1 or any(item.segment_index == constants for item in program.named_data)


def _without(program: m.Program, moved: Sequence[m.NamedData]) -> m.Program:
    """Return the program without the named data ``moved``, and without segments that nothing else uses."""
    keys = {item.key for item in moved}
    used = {*_users(program), *(item.segment_index for item in program.named_data if item.key not in keys)}
    gone = {item.segment_index for item in moved} - used
    left = [index for index in range(len(program.segments)) if index not in gone]
    new = {old: index for index, old in enumerate(left)}
    constants = program.constant_segment
    if constants is not None and constants.offsets:
        constants = replace(constants, segment_index=new[constants.segment_index])
    return replace(
        program,
        execution_plan=tuple(_with_segments(plan, new) for plan in program.execution_plan),
        segments=laid_out([program.segments[index].data for index in left], SEGMENT_ALIGNMENT),
        constant_segment=constants,
        mutable_data_segments=tuple(
            replace(item, segment_index=new.get(item.segment_index, item.segment_index))
            for item in program.mutable_data_segments
        ),
        named_data=tuple(
            replace(item, segment_index=new[item.segment_index]) for item in program.named_data if item.key not in keys
        ),
    )


def _with_segments(plan: m.ExecutionPlan, new: Mapping[int, int]) -> m.ExecutionPlan:
    delegates = tuple(
        replace(item, processed=replace(item.processed, index=new[item.processed.index]))
        if item.processed.location is m.DataLocation.SEGMENT
        else item
        for item in plan.delegates
    )
    return plan if delegates == plan.delegates else replace(plan, delegates=delegates)


# From data files to the program


def _one_file(files: Sequence[FlatTensor]) -> FlatTensor:
    """Join several files. Return all their data as one file."""
    segments: list[Blob] = []
    named: dict[str, NamedData] = {}
    for data in files:
        for item in data.named_data:
            if item.key in named:
                raise ProgramError(f"the data {item.key!r} is in two data files")
            named[item.key] = replace(item, segment_index=len(segments) + item.segment_index)
        segments += [segment.data for segment in data.segments]
    return FlatTensor(laid_out(segments, SEGMENT_ALIGNMENT), tuple(named.values()))


def _checked_data(method: str, value: int, tensor: m.Tensor, known: Mapping[str, NamedData]) -> NamedData:
    """Return the data of a constant. Like the runtime, raise an error if the data is missing or has a wrong layout."""
    info = tensor.extra_tensor_info
    key = (info.fully_qualified_name if info is not None else None) or ""
    whose = f"{key!r}, the data of value {value} of method {method!r},"
    if key not in known:
        raise ProgramError(f"{whose} is missing")
    found = known[key].tensor_layout
    if found is None:
        raise ProgramError(f"{whose} exists, but is not a tensor")
    if found != _layout(tensor):
        raise ProgramError(f"{whose} is {_described(found)}, expected {_described(_layout(tensor))}")
    return known[key]


def _inside(tensor: m.Tensor, index: int) -> m.Tensor:
    info = replace(tensor.extra_tensor_info or m.ExtraTensorInfo(), location=m.TensorDataLocation.SEGMENT)
    return replace(tensor, data_buffer_idx=index, extra_tensor_info=info)


def _described(layout: TensorLayout) -> str:
    order = "" if layout.dim_order == tuple(range(len(layout.sizes))) else f" in the order {list(layout.dim_order)}"
    return f"{layout.scalar_type.name.lower()} {list(layout.sizes)}{order}"


def _with_constants(program: m.Program, added: Iterable[Blob]) -> m.Program:
    """Return the program with ``added`` as additional constants. They follow the existing constants."""
    if program.constant_buffer:
        raise ProgramError("constants are both inside the flatbuffer and in another file, which no runtime supports")
    blobs = [segment.data for segment in program.segments]
    found = program.constant_segment
    if found is None or not found.offsets:
        found = m.SubsegmentOffsets(len(blobs), (0,))
        blobs.append(Blob())
    elif _is_shared(program, found.segment_index):
        blobs.append(blobs[found.segment_index])
        found = replace(found, segment_index=len(blobs) - 1)
    parts, offsets = [blobs[found.segment_index]], [*found.offsets]
    end = len(parts[0])
    for blob in added:
        start = align(end, CONSTANT_ALIGNMENT)
        parts += [Blob(bytes(start - end)), blob]
        offsets.append(start)
        end = start + len(blob)
    blobs[found.segment_index] = Blob.joined(parts)
    return replace(
        program,
        segments=laid_out(blobs, SEGMENT_ALIGNMENT),
        constant_segment=m.SubsegmentOffsets(found.segment_index, tuple(offsets)),
        header_length=program.header_length or LONG,
    )


def _with_named(program: m.Program, data: FlatTensor, items: Sequence[NamedData]) -> m.Program:
    """Return the program with ``items`` as additional named data. The bytes of ``items`` are in ``data``."""
    inside = {item.key for item in program.named_data}
    blobs = [segment.data for segment in program.segments]
    new: dict[int, int] = {}
    named = [*program.named_data]
    for item in items:
        if item.key in inside:
            raise ProgramError(f"the data {item.key!r} is both in the program and in the data file")
        if item.segment_index not in new:
            new[item.segment_index] = len(blobs)
            blobs.append(data.segments[item.segment_index].data)
        named.append(m.NamedData(item.key, new[item.segment_index]))
    return replace(
        program,
        segments=laid_out(blobs, SEGMENT_ALIGNMENT),
        named_data=tuple(named),
        header_length=program.header_length or LONG,
    )
