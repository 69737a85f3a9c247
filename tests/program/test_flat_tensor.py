"""The ``.ptd`` file: a round trip, here and by ExecuTorch, and errors (E2)."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.errors import ProgramError
from etdev.program import Blob, flat_tensor
from etdev.program.flat_tensor import FlatTensor, NamedData, TensorLayout
from etdev.program.flat_tensor.header import Header, parse_header
from etdev.program.flat_tensor.schema import FLAT_TENSOR
from etdev.program.model import MAX_RANK, ScalarType, Segment
from program.flatc_json import schema_folder

_KEYS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)


@st.composite
def layouts(draw: st.DrawFn, room: int) -> TensorLayout:
    """Draw the layout of a tensor that fits into so many bytes."""
    kind = draw(st.sampled_from([kind for kind in ScalarType if kind.itemsize <= max(room, 1)]))
    shape = draw(st.lists(st.integers(0, 3), max_size=draw(st.sampled_from([3, MAX_RANK]))))
    if prod(shape) * kind.itemsize > room:
        shape = [*shape, 0][:MAX_RANK] if len(shape) < MAX_RANK else [0, *shape[1:]]
    return TensorLayout(kind, tuple(shape), tuple(draw(st.permutations(range(len(shape))))))


@st.composite
def flat_tensors(draw: st.DrawFn) -> FlatTensor:
    """Draw data that keep every rule of ``check``."""
    end, segments = 0, []
    for gap, content in draw(st.lists(st.tuples(st.integers(0, 40), st.binary(max_size=40)), max_size=4)):
        segments.append(Segment(end + gap, Blob(content)))
        end += gap + len(content)
    named = []
    for key in draw(st.lists(_KEYS, unique=True, max_size=4)) if segments else []:
        index = draw(st.integers(0, len(segments) - 1))
        named.append(NamedData(key, index, draw(st.none() | layouts(len(segments[index].data)))))
    return FlatTensor(tuple(segments), tuple(named), segment_alignment=draw(st.sampled_from([1, 16, 128, 4096])))


def small() -> FlatTensor:
    """Build a tensor under two names, and data that a delegate looks up."""
    layout = TensorLayout(ScalarType.FLOAT, (2, 3), (1, 0))
    segments = (Segment(0, Blob(bytes(range(24)))), Segment(128, Blob(b"for a delegate")))
    return FlatTensor(segments, (NamedData("a", 0, layout), NamedData("b", 0, layout), NamedData("c", 1)))


@settings(max_examples=80, deadline=None)
@given(data=flat_tensors())
def test_read_gives_what_was_written(data: FlatTensor) -> None:
    content = flat_tensor.serialize(data)
    again = flat_tensor.parse(Blob(content))
    assert again == data
    assert flat_tensor.serialize(replace(again, segment_alignment=data.segment_alignment)) == content


def test_a_file_is_what_is_serialized(tmp_path: Path) -> None:
    flat_tensor.write(small(), tmp_path / "a.ptd")
    assert (tmp_path / "a.ptd").read_bytes() == flat_tensor.serialize(small())
    assert flat_tensor.read(tmp_path / "a.ptd") == small()


def test_the_wheel_reads_what_is_written() -> None:
    pytest.importorskip("executorch", reason="its serializer reads the file")
    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    payload = FlatTensorSerializer().deserialize(Cord(flat_tensor.serialize(small())))
    assert [bytes(buffer) for buffer in payload.buffers] == [bytes(segment.data) for segment in small().segments]
    assert {key: entry.buffer_index for key, entry in payload.named_data.items()} == {"a": 0, "b": 0, "c": 1}
    layout = payload.named_data["b"].tensor_layout
    assert layout is not None
    assert (layout.scalar_type.value, layout.sizes, layout.dim_order) == (ScalarType.FLOAT, [2, 3], [1, 0])
    assert payload.named_data["c"].tensor_layout is None


def test_what_the_wheel_writes_is_read() -> None:
    pytest.importorskip("executorch", reason="its serializer writes the file")
    from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
    from executorch.exir.scalar_type import ScalarType as Theirs
    from executorch.exir.tensor_layout import TensorLayout as TheirLayout
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    layout = TheirLayout(Theirs.FLOAT, [2, 3], [1, 0])
    entries = {"a": DataEntry(0, 1, layout), "b": DataEntry(0, 1, layout), "c": DataEntry(1, 1, None)}
    content = bytes(FlatTensorSerializer().serialize(DataPayload([bytes(range(24)), b"for a delegate"], entries)))
    assert flat_tensor.parse(Blob(content)) == small()
    assert flat_tensor.serialize(small()) == flat_tensor.serialize(flat_tensor.parse(Blob(content)))


_DEFINITION = re.compile(r"\btable\s+(\w+)[^{]*\{([^}]*)\}")


def test_the_schema_is_that_of_the_wheel() -> None:
    package = pytest.importorskip("executorch.extension.flat_tensor.serialize", reason="the schema is in its wheel")
    text = re.sub(r"//.*", "", (Path(package.__path__[0]) / "flat_tensor.fbs").read_text())
    upstream = {name: re.findall(r"(\w+)\s*:", body) for name, body in _DEFINITION.findall(text)}
    assert 'file_identifier "FT01"' in text
    tables = {table.name: table for table in (FLAT_TENSOR, *_inner())}  # type: ignore[attr-defined]
    assert {name: [field.name for field in table.fields] for name, table in tables.items()} == upstream  # type: ignore[attr-defined]
    for table in tables.values():
        assert [field.number for field in table.fields] == list(range(len(table.fields)))  # type: ignore[attr-defined]
    scalars = (Path(package.__path__[0]) / "scalar_type.fbs").read_text()
    assert scalars.split("enum")[1] == (schema_folder() / "scalar_type.fbs").read_text().split("enum")[1]


def _inner() -> list[object]:
    from etdev.program.flat_tensor.schema import NAMED_DATA, TENSOR_LAYOUT
    from etdev.program.schema import EXTENT

    return [NAMED_DATA, TENSOR_LAYOUT, EXTENT]


# Errors


def _with_header(**changes: int) -> bytes:
    content = bytearray(flat_tensor.serialize(small()))
    header = replace(parse_header(memoryview(content)), **changes)
    content[8:48] = header.pack()
    return bytes(content)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 39}, "header.length: expected a number from 40"),
        ({"length": 1 << 20}, "header.length: expected a number from 40"),
        ({"flatbuffer_size": 1 << 40}, "header.flatbuffer_size: the flatbuffer ends at"),
        ({"flatbuffer_offset": 1 << 40}, "header.flatbuffer_size: the flatbuffer ends at"),
        (
            {"segment_base_offset": 16},
            "header.segment_base_offset: the first segment is at byte 16, but the flatbuffer ends",
        ),
        ({"segment_base_offset": 1 << 40}, "header.segment_base_offset"),
        ({"segment_base_offset": 0}, "header.segment_data_size: 142 bytes that start at byte 0"),
        ({"segment_data_size": 1 << 40}, "header.segment_data_size"),
        (
            {"segment_data_size": 141},
            "header.segment_data_size: the header states 141 bytes, but the last segment ends at 142",
        ),
        (
            {"segment_data_size": 0},
            "header.segment_data_size: the header states 0 bytes, but the last segment ends at 142",
        ),
    ],
)
def test_wrong_headers(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(message)):
        flat_tensor.parse(Blob(_with_header(**changes)))


_LAYOUT = TensorLayout(ScalarType.FLOAT, (2,), (0,))
_EIGHT = (Segment(0, Blob(bytes(8))),)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            FlatTensor(_EIGHT, (NamedData("a", 1),)),
            "named_data[0].segment_index: 1 is not an index into the 1 segments",
        ),
        (FlatTensor(_EIGHT, (NamedData("a", 0), NamedData("a", 0))), "named_data: 2 items have the key 'a'"),
        (FlatTensor(_EIGHT, (NamedData("", 0),)), "named_data[0].key: a name is empty"),
        (FlatTensor(_EIGHT, (NamedData("a\0b", 0),)), "named_data[0].key: the name 'a\\x00b' contains a zero byte"),
        (
            FlatTensor((*_EIGHT, Segment(4, Blob(b"x")))),
            "segments[1]: the segment begins at 4, but the previous segment ends at 8",
        ),
        (FlatTensor(_EIGHT, version=1), "version: expected 0, the only version that the runtime supports"),
        (
            FlatTensor(_EIGHT, (NamedData("a", 0, replace(_LAYOUT, sizes=(3,))),)),
            "named_data[0].tensor_layout.sizes: the tensor has 12 bytes, but its segment has 8",
        ),
        (
            FlatTensor(_EIGHT, (NamedData("a", 0, replace(_LAYOUT, sizes=(-2,))),)),
            "named_data[0].tensor_layout.sizes: expected sizes of 0 or more, found [-2]",
        ),
        (
            FlatTensor(_EIGHT, (NamedData("a", 0, replace(_LAYOUT, dim_order=(1,))),)),
            "named_data[0].tensor_layout.dim_order: expected each of 1 dimensions once, found [1]",
        ),
    ],
)
def test_what_is_wrong_is_neither_written_nor_read(
    data: FlatTensor, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProgramError, match=re.escape(message)):
        flat_tensor.serialize(data)
    with monkeypatch.context() as patch:
        patch.setattr("etdev.program.flat_tensor.writer.check_flat_tensor", lambda data: None)
        content = flat_tensor.serialize(data)
    with pytest.raises(ProgramError, match=re.escape(message)):
        flat_tensor.parse(Blob(content))


@pytest.mark.parametrize("alignment", [-16, 0, 24])
def test_an_alignment_that_is_no_power_of_two(alignment: int) -> None:
    """A file does not state its alignment."""
    message = f"segment_alignment: expected a power of two, found {alignment}"
    with pytest.raises(ProgramError, match=re.escape(message)):
        flat_tensor.serialize(FlatTensor(_EIGHT, segment_alignment=alignment))


def test_what_is_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "a.ptd").write_bytes(b"\0\0\0\0ET12" + bytes(60))
    with pytest.raises(ProgramError, match=r"no FT01 at byte 4") as error:
        flat_tensor.read(tmp_path / "a.ptd")
    assert error.value.where == str(tmp_path / "a.ptd")
    assert "copy or build the file again" in (error.value.hint or "")
    with pytest.raises(ProgramError, match="cannot read the external data: there is no such file"):
        flat_tensor.read(tmp_path / "none.ptd")


def test_what_this_version_would_lose_is_not_written() -> None:
    content = flat_tensor.serialize(small()) + b"more"
    found = flat_tensor.parse(Blob(content))
    assert found.unknown_fields == ("4 bytes after the last segment",)
    with pytest.raises(ProgramError, match="would lose: 4 bytes after the last segment"):
        flat_tensor.serialize(found)


def test_damaged_files_are_refused_or_read() -> None:
    content, chance, refused = flat_tensor.serialize(small()), random.Random(0), 0
    end = Header(*_numbers(content)).program_size
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(end)] = chance.randrange(256)
        if chance.random() < 0.2:
            del damaged[chance.randrange(len(damaged)) :]
        try:
            flat_tensor.parse(Blob(bytes(damaged)))
        except ProgramError:
            refused += 1
    assert refused > 200


def _numbers(content: bytes) -> tuple[int, int, int, int, int]:
    found = parse_header(memoryview(content))
    return (
        found.length,
        found.flatbuffer_offset,
        found.flatbuffer_size,
        found.segment_base_offset,
        found.segment_data_size,
    )
