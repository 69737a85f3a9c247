"""Programs of one method each are merged into one program (E2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etdev.program import Blob, Program, read, write
from etdev.program import model as m
from etdev.program.merge import merge_methods
from program.hand import tensor
from support.files import method, sin

ONES, TWOS, THREES = (Blob(bytes([value]) * 16) for value in (1, 2, 3))


def part(
    name: str,
    constants: tuple[Blob, ...] = (),
    initial: tuple[Blob, ...] = (),
    blobs: tuple[Blob, ...] = (),
    named: tuple[tuple[str, Blob], ...] = (),
) -> Program:
    """Build one method that names each of these data once, all of 16 bytes, and a constant method."""
    values = [
        tensor(4),
        *(replace(tensor(4), data_buffer_idx=index) for index in range(1, len(constants) + 1)),
        *(replace(tensor(4, at=16 * index), data_buffer_idx=index) for index in range(1, len(initial) + 1)),
        tensor(4, at=256),
    ]
    segments = [Blob.joined(constants)]
    mutable: tuple[m.SubsegmentOffsets, ...] = ()
    if initial:
        mutable = (m.SubsegmentOffsets(1, (0, *range(0, 16 * len(initial), 16))),)
        segments.append(Blob.joined(initial))
    delegates = tuple(
        m.BackendDelegate("B", m.BackendDelegateDataReference(m.DataLocation.SEGMENT, len(segments) + index))
        for index in range(len(blobs))
    )
    segments += [*blobs, *(data for _, data in named)]
    first = len(segments) - len(named)
    constant = m.ExecutionPlan("get_size", (m.Int(4),), (), (0,), (m.Chain(()),), (), (), (0,))
    return Program(
        (method(values, [sin(0, len(values) - 1)], name=name, delegates=delegates), constant),
        segments=tuple(m.Segment(256 * index, data) for index, data in enumerate(segments)),
        constant_segment=m.SubsegmentOffsets(0, (0, *range(0, 16 * len(constants), 16))),
        mutable_data_segments=mutable,
        named_data=tuple(m.NamedData(key, first + index) for index, (key, _) in enumerate(named)),
    )


def data_of(program: Program, name: str) -> list[Blob]:
    """Return the data of the tensors and the delegates of a method, in order."""
    found = []
    for _, one in program.method(name).tensors():
        if one.data_buffer_idx:
            pool = program.constant_segment if one.allocation_info is None else program.mutable_data_segments[0]
            assert pool is not None
            found.append(program.segments[pool.segment_index].data.cut(pool.offsets[one.data_buffer_idx], 16))
    found += [program.segments[one.processed.index].data for one in program.method(name).delegates]
    return found


def test_what_they_hold_is_there_once(tmp_path: Path) -> None:
    parts = {
        "b": part("b", (ONES, TWOS), (THREES,), (ONES,), (("k", TWOS),)),
        "a": part("a", (TWOS, THREES), (THREES, ONES), (ONES, TWOS), (("k", TWOS), ("l", TWOS))),
    }
    merged = merge_methods(parts)
    assert [plan.name for plan in merged.execution_plan] == ["a", "b", "get_size"]
    for name, one in parts.items():
        assert data_of(merged, name) == data_of(one, name)
    assert merged.constant_segment == m.SubsegmentOffsets(0, (0, 0, 16, 32))
    assert bytes(merged.segments[0].data) == bytes(TWOS) + bytes(THREES) + bytes(ONES)
    assert bytes(merged.segments[1].data) == bytes(THREES) + bytes(ONES)
    assert [segment.data for segment in merged.segments[2:]] == [ONES, TWOS, TWOS]
    assert merged.named_data == (m.NamedData("k", 4), m.NamedData("l", 4))
    write(merged, tmp_path / "a.pte")
    assert read(tmp_path / "a.pte") == merged


def test_one_part_stays_what_it_is() -> None:
    alone = part("a", (ONES, TWOS), (THREES,), (ONES,), (("k", TWOS),))
    merged = merge_methods({"a": alone})
    assert replace(merged, segments=()) == replace(alone, segments=())
    assert [segment.data for segment in merged.segments] == [segment.data for segment in alone.segments]


def test_a_program_without_any_data() -> None:
    merged = merge_methods({"a": part("a"), "b": part("b")})
    assert merged.constant_segment == m.SubsegmentOffsets(0, (0,))
    assert (merged.mutable_data_segments, merged.named_data, len(merged.segments)) == ((), (), 1)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([part("a", named=(("k", ONES),)), part("b", named=(("k", TWOS),))], "different data under the name 'k'"),
        ([replace(part("a"), backend_delegate_data=(ONES,))], "method 'a' has data inside the flatbuffer"),
    ],
    ids=["a name twice", "data inside"],
)
def test_what_is_not_emitted_so(parts: list[Program], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merge_methods({one.execution_plan[0].name: one for one in parts})
