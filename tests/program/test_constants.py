"""Data of constants, and adding data to a program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from etdev.program import Blob, Program
from etdev.program.check import check_program
from etdev.program.constants import Run, constant_count, constant_data, constants_size, with_constants
from etdev.program.model import Chain, ExecutionPlan, Segment, SubsegmentOffsets
from program.hand import again, tensor

DATA = bytes(range(256))


def program(*data: tuple[int, int], offsets: tuple[int, ...] = (0, 0, 64, 128)) -> Program:
    """Build float constants, each with its ``data_buffer_idx`` and its number of elements."""
    values = tuple(tensor(size, data=index) for index, size in data)
    plan = ExecutionPlan("forward", values, (), tuple(range(len(values))), (Chain(()),), (), (), (0,))
    return Program(
        (plan,),
        segments=(Segment(0, Blob(DATA)), Segment(256, Blob(b"delegate"))),
        constant_segment=SubsegmentOffsets(0, offsets),
    )


def contents(found: Program) -> list[bytes]:
    check_program(found)
    return [bytes(data) for _, value in found.execution_plan[0].tensors() if (data := constant_data(found, value))]


def with_tensors(found: Program, *data: tuple[int, int]) -> Program:
    more = program(*data).execution_plan[0]
    plan = found.execution_plan[0]
    values = (*plan.values, *more.values)
    return replace(found, execution_plan=(replace(plan, values=values, outputs=tuple(range(len(values)))),))


def test_what_is_added_follows_what_is_there(tmp_path: Path) -> None:
    before = program((1, 8), (2, 8))
    count = constant_count(before)
    after = with_constants(with_tensors(before, (count, 2)), [Blob(b"new data")])
    assert contents(after) == [DATA[:32], DATA[64:96], b"new data"]
    assert contents(again(after, tmp_path)) == contents(after)
    assert after.segments[1].data == Blob(b"delegate")
    assert after.segments[1].offset % 128 == 0


def test_what_no_tensor_is_goes() -> None:
    after = with_constants(program((2, 4)), [])
    assert contents(after) == [DATA[64:80]]
    assert len(after.segments[0].data) == constants_size(after) == 16


def test_a_run_lies_in_what_it_is_a_part_of() -> None:
    before = program((1, 16))
    after = with_constants(with_tensors(before, (4, 4)), [Run(1, 16, 16)])
    assert contents(after) == [DATA[:64], DATA[16:32]]
    assert len(after.segments[0].data) == 64


def test_a_run_of_what_no_tensor_is_any_more() -> None:
    after = with_constants(program((4, 4)), [Run(3, 8, 16)])
    assert contents(after) == [DATA[136:152]]
    assert len(after.segments[0].data) == 16


def test_constants_in_the_same_place_stay_there() -> None:
    before = program((1, 8), (2, 4), offsets=(0, 32, 48, 0))
    after = with_constants(with_tensors(before, (4, 2)), [Blob(b"new data")])
    assert contents(after) == [DATA[32:64], DATA[48:64], b"new data"]
    assert constants_size(after) == 40


_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=6)


@given(sizes=_sizes, used=st.sets(st.integers(0, 5)), added=st.lists(st.binary(min_size=1, max_size=40), max_size=4))
def test_all_that_is_used_keeps_its_bytes(sizes: list[int], used: set[int], added: list[bytes]) -> None:
    offsets = [0]
    for size in sizes:
        offsets.append((offsets[-1] + 4 * size + 15) // 16 * 16 if len(offsets) > 1 else 0)
    data = [
        (index + 1, size) for index, size in enumerate(sizes) if index in used and offsets[index + 1] + 4 * size <= 256
    ]
    before = program(*data, offsets=tuple(offsets))
    new = [(len(offsets) + number, (len(blob) + 3) // 4) for number, blob in enumerate(added)]
    blobs = [Blob(blob.ljust((len(blob) + 3) // 4 * 4)) for blob in added]
    after = with_constants(with_tensors(before, *new), blobs)
    assert contents(after) == contents(before) + [bytes(blob) for blob in blobs]
    assert with_constants(after, []) == after
