"""Constants in the constant segment of a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.segments import CONSTANT_ALIGNMENT

_MOST_ALIGNMENT = 4096


def constant_count(program: m.Program) -> int:
    """Return the number of constants in the program, the reserved first constant included."""
    return len(program.constant_segment.offsets) if program.constant_segment else 0


def constant_data(program: m.Program, tensor: m.Tensor) -> Blob | None:
    """Return the bytes of a constant, or None if the bytes are not in the program's constant segment."""
    found = program.constant_segment
    if tensor.is_external or not tensor.is_constant or found is None or program.constant_buffer:
        return None
    data = program.segments[found.segment_index].data
    return data.cut(found.offsets[tensor.data_buffer_idx], tensor.nbytes)


def constants_size(program: m.Program) -> int:
    """Return how many bytes of the constant segment are data of tensors. Shared bytes count once."""
    found = program.constant_segment
    return sum(size for _, size, _ in _together(_used(program, found.offsets, ()))) if found else 0


@dataclass(frozen=True, slots=True)
class Run:
    """A range of bytes inside an existing constant."""

    index: int
    """``data_buffer_idx`` of the constant."""
    offset: int
    """Offset in bytes from the start of the constant."""
    size: int
    """Size in bytes."""


def with_constants(program: m.Program, added: Sequence[Blob | Run]) -> m.Program:
    """Rebuild the constant segment: add constants, and drop data that no tensor uses.

    The indices of the ``added`` constants follow those of the existing constants. All constants keep their order and
    their alignment. Constants that share bytes still share them.
    """
    found = program.constant_segment
    assert found is not None
    data = program.segments[found.segment_index].data
    alignment = _alignment(found.offsets)
    offsets = [*found.offsets, *(0 for _ in added)]
    for index in range(1, len(found.offsets)):
        offsets[index] = 0  # The offset stays 0 for constants that no tensor uses.
    parts: list[Blob] = []
    end = 0

    def put(blob: Blob) -> int:
        nonlocal end
        start = -(-end // alignment) * alignment
        parts.extend((Blob(bytes(start - end)), blob))
        end = start + len(blob)
        return start

    for start, size, members in _together(_used(program, found.offsets, added)):
        base = put(data.cut(start, size))
        for index, inside in members:
            offsets[index] = base + inside - start
    for number, item in enumerate(added, start=len(found.offsets)):
        if isinstance(item, Blob):
            offsets[number] = put(item)
    segments = with_segment(program, found.segment_index, Blob.joined(parts))
    return replace(
        program, segments=segments, constant_segment=m.SubsegmentOffsets(found.segment_index, tuple(offsets))
    )


def _used(program: m.Program, offsets: Sequence[int], added: Sequence[Blob | Run]) -> list[tuple[int, int, int]]:
    """Return the start, size and index of each used constant whose bytes are in the old segment."""
    sizes: dict[int, int] = {}
    for plan in program.execution_plan:
        for _, tensor in plan.tensors():
            if tensor.is_constant and not tensor.is_external and tensor.data_buffer_idx < len(offsets):
                sizes[tensor.data_buffer_idx] = max(sizes.get(tensor.data_buffer_idx, 0), tensor.nbytes)
    found = [(offsets[index], size, index) for index, size in sizes.items()]
    for number, item in enumerate(added, start=len(offsets)):
        if isinstance(item, Run):
            found.append((offsets[item.index] + item.offset, item.size, number))
    return sorted(found)


def _together(used: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Join constants that overlap. Return disjoint ranges of bytes, in order.

    A range is a tuple: start, size, constants. Each of its constants is a pair: index, start. Starts are offsets in the
    segment.
    """
    found: list[tuple[int, int, list[tuple[int, int]]]] = []
    for start, size, index in used:
        if found and start < found[-1][0] + found[-1][1]:
            base, length, members = found[-1]
            found[-1] = base, max(length, start + size - base), [*members, (index, start)]
        else:
            found.append((start, size, [(index, start)]))
    return found


def _alignment(offsets: Sequence[int]) -> int:
    """Return the alignment that all constants share, inferred from their offsets."""
    together = _MOST_ALIGNMENT
    for offset in offsets:
        together |= offset
    return max(CONSTANT_ALIGNMENT, together & -together)


def with_segment(program: m.Program, index: int, data: Blob) -> tuple[m.Segment, ...]:
    """Return the segments of a program, with ``data`` in segment ``index``. Later segments keep their alignment."""
    segments = list(program.segments)
    segments[index] = replace(segments[index], data=data)
    for number in range(index + 1, len(segments)):
        before = segments[number - 1]
        end = before.offset + len(before.data)
        old = program.segments[number].offset
        gap = (old - end) // program.segment_alignment * program.segment_alignment
        segments[number] = replace(segments[number], offset=old - gap)
    return tuple(segments)
