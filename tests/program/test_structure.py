"""Files with wrong bytes: each kind of number changed, and files that try to exhaust the reader."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.errors import ProgramError
from etdev.program import Blob, parse, read
from etdev.program import model as m
from program import hand
from program.sites import Site, header_sites, sites
from support.speed import action_time, usual_seconds


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a file with everything in it."""
    return hand.content(hand.everything(), tmp_path_factory.mktemp("whole"))


def _refused(content: bytes | bytearray) -> ProgramError:
    with pytest.raises(ProgramError) as refused:
        parse(Blob(bytes(content)), where="some.pte")
    assert refused.value.where == "some.pte"
    return refused.value


V = "execution_plan[0].values"
# Site, kind, new value (a number, or a difference to the old one); path and message of the error.
TAMPERED: list[tuple[str, str, int | str, str, str]] = [
    ("root", "offset", 1 << 31, "", "points to byte 2147483648"),
    ("root", "offset", 0, "", "which is not a valid position"),
    ("root", "offset", 12, "", "inside the header of 40 bytes"),
    ("root", "offset", "+1", "", "which is not a valid position"),
    ("", "vtable", 1 << 31, "", "not a valid position for a vtable"),
    ("", "vtable", (1 << 31) - 1, "", "not a valid position for a vtable"),
    ("", "vtable", "+1", "", "not a valid position for a vtable"),
    ("", "entry", 2, "", "cannot have 2 bytes"),
    ("", "entry", 0xFFFE, "", "cannot have 65534 bytes"),
    ("version", "entry", 0xFFFF, "version", "byte 65535 of the table, which is not aligned"),
    ("version", "entry", 2, "version", "byte 2 of the table, inside the offset that leads to the vtable"),
    ("version", "entry", 0xFFFC, "", "reaches past the end"),
    ("version", "entry", "+1", "version", "not aligned"),
    ("execution_plan", "entry", 0, "execution_plan", "missing"),
    ("execution_plan", "offset", 0xFFFFFFFF, "execution_plan", "points to byte"),
    ("execution_plan", "length", 0xFFFFFFFF, "execution_plan", "4294967295 elements of 4 bytes"),
    ("execution_plan[0]", "offset", 0, "execution_plan[0]", "which is not a valid position"),
    ("execution_plan[0].name", "length", 0x7FFFFFFF, "execution_plan[0].name", "extend past the end"),
    ("execution_plan[0].name", "length", "-1", "execution_plan[0].name", "does not end with a zero byte"),
    (V, "length", "+4", f"{V}[15]", ""),
    (f"{V}[6]", "tag", 0, f"{V}[6]", "0 is not a valid tag of this union"),
    (f"{V}[6]", "tag", 12, f"{V}[6]", "12 is not a valid tag of this union"),
    (f"{V}[6]", "offset", 0xFFFFFFFC, f"{V}[6]", "points to byte"),
    (f"{V}[6]", "entry", 0, f"{V}[0]", "cannot have 0 bytes"),
    (f"{V}[7].bool.bool_val", "number", 2, f"{V}[7].bool.bool_val", "expected a bool (0 or 1), found 2"),
    (f"{V}[12].bool_list.items[1]", "number", 7, f"{V}[12].bool_list.items", "expected a bool (0 or 1), found 7"),
    (f"{V}[0].tensor.scalar_type", "number", 8, f"{V}[0].tensor.scalar_type", "expected a ScalarType, found 8"),
    (f"{V}[4].tensor.sizes", "length", 17, f"{V}[4].tensor.sizes", "expected at most 16 elements, found 17"),
    (f"{V}[4].tensor.sizes", "length", 2, f"{V}[4].tensor.dim_order", "expected each of 2 dimensions once"),
    (f"{V}[4].tensor.sizes[1]", "number", -1, f"{V}[4].tensor.sizes[1]", "found -1"),
    (f"{V}[0].tensor.shape_dynamism", "number", 3, f"{V}[0].tensor.shape_dynamism", "a TensorShapeDynamism, found 3"),
    (f"{V}[0].tensor.allocation_info", "offset", 2, f"{V}[0].tensor.allocation_info", "which is not a valid position"),
    (
        f"{V}[0].tensor.allocation_info.memory_offset_high",
        "number",
        2,
        f"{V}[0].tensor.allocation_info",
        "16 bytes at offset 8589934608 do not fit in buffer 1",
    ),
    (
        f"{V}[2].tensor.extra_tensor_info.device_type",
        "number",
        2,
        f"{V}[2].tensor.extra_tensor_info.device_type",
        "expected a DeviceType, found 2",
    ),
    (
        "segments[2].size",
        "number",
        1 << 63,
        "segments[2]",
        "9223372036854775808 bytes at offset 256 reach past the end of the file; 264",
    ),
    ("segments[2].offset", "number", (1 << 64) - 1, "segments[2]", "at offset 18446744073709551615 reach"),
    ("header.length", "number", 23, "header.length", "expected 24, or a number of 32 or more, found 23"),
    ("header.length", "number", 28, "header.length", "found 28"),
    ("header.program_size", "number", 1 << 62, "header.program_size", "found 4611686018427387904"),
    ("header.program_size", "number", 16, "header.program_size", "found 16"),
    ("header.program_size", "number", 96, "execution_plan", "points to byte"),
    ("header.segment_base_offset", "number", 1 << 63, "header.segment_base_offset", "byte 9223372036854775808"),
    ("header.segment_base_offset", "number", 64, "header.segment_base_offset", "the flatbuffer ends at"),
    ("header.segment_base_offset", "number", 0, "segments[0]", "; 0 bytes are"),
    ("header.segment_data_size", "number", 1 << 63, "header.segment_data_size", "past the end of the file"),
    ("header.segment_data_size", "number", 200, "header.segment_data_size", "the last segment ends at 264"),
]


def _site(content: bytes, path: str, kind: str) -> Site:
    return next(site for site in [*header_sites(content), *sites(content)] if (site.path, site.kind) == (path, kind))


@pytest.mark.parametrize(
    ("site", "kind", "number", "path", "message"), TAMPERED, ids=lambda part: str(part) if part != "" else "-"
)
def test_tampered(whole: bytes, site: str, kind: str, number: int | str, path: str, message: str) -> None:
    content, found = bytearray(whole), _site(whole, site, kind)
    found.write(content, found.read(whole) + int(number) if isinstance(number, str) else number)
    error = _refused(content)
    assert error.path == path
    assert message in error.message


def test_a_string_that_is_not_utf_8(whole: bytes) -> None:
    error = _refused(whole.replace(b"forward", b"forw\xffrd", 1))
    assert error.path.startswith("execution_plan[0].")
    assert "is not UTF-8 (invalid start byte)" in error.message


def test_two_fields_at_one_place(whole: bytes) -> None:
    content = bytearray(whole)
    low = _site(whole, f"{V}[0].tensor.allocation_info.memory_offset_low", "entry")
    _site(whole, f"{V}[0].tensor.allocation_info.memory_offset_high", "entry").write(content, low.read(whole))
    error = _refused(content)
    assert error.path == f"{V}[0].tensor.allocation_info.memory_offset_high"
    assert "another field" in error.message


def test_a_segment_that_begins_before_the_one_before_it_ends(whole: bytes) -> None:
    content = bytearray(whole)
    _site(whole, "segments[1].offset", "number").write(content, 8)
    assert str(_refused(content)).startswith("some.pte: segments[1]: the segment begins at 8, but")


def test_the_size_of_a_table_in_its_vtable_says_nothing(whole: bytes) -> None:
    """Python's flatbuffers before 25.12, which executorch used, writes wrong ones; the runtime ignores it."""
    for size in (0, 4, 5, 0xFFFF):
        content = bytearray(whole)
        for site in sites(whole):
            if site.kind == "size":
                site.write(content, size)
        assert parse(Blob(bytes(content))) == hand.everything()


def test_a_null_needs_no_content(tmp_path: Path) -> None:
    plan = replace(hand.loop().execution_plan[0], values=(m.Null(),), inputs=(), outputs=(), chains=(m.Chain(()),))
    program = replace(hand.loop(), execution_plan=(plan,))
    content = bytearray(hand.content(program, tmp_path))
    tag_entry = [site for site in sites(bytes(content)) if (site.path, site.kind) == (f"{V}[0]", "entry")][1]
    struct.pack_into("<H", content, tag_entry.position + 2, 0)
    assert parse(Blob(bytes(content))) == program


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file has 0 bytes, too few for a program"),
        (b"\x08\0\0\0ET1", "the file has 7 bytes"),
        (b"\x08\0\0\0ET12", "points to byte 8, but the flatbuffer ends at byte 8"),
        (b"\x08\0\0\0ET13" + bytes(56), "the file's schema is ET13; this version of etdev reads ET12"),
        (b"PK\x03\x04" + bytes(60), "not an ExecuTorch program"),
        (b"\x08\0\0\0ET12eh00\x20\0\0\0", "ends inside the extended header"),
    ],
)
def test_files_that_are_no_programs(content: bytes, message: str) -> None:
    assert message in _refused(content).message


def test_places_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, message in [
        (tmp_path / "nothing.pte", "there is no such file"),
        (tmp_path, "this is a folder"),
        (tmp_path / "pipe", "this is a pipe, a device or a socket"),
        (Path("/dev/zero"), "this is a pipe, a device or a socket"),
    ]:
        with pytest.raises(ProgramError, match=message) as refused:
            read(place)
        assert refused.value.where == str(place)


def test_truncations(whole: bytes) -> None:
    for size in range(len(whole)):
        _refused(whole[:size])


# Files that try to exhaust their reader


def _within_limits(action: Callable[[], object]) -> None:
    """Check for a refusal within a second and 100 MB. Memory is measured separately, since that slows the process."""

    def refused() -> None:
        with pytest.raises(ProgramError):
            action()

    assert usual_seconds(lambda: action_time(refused), 1, most=3) < 1
    tracemalloc.start()
    try:
        refused()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20


@pytest.mark.parametrize("field", ["[9].string.string_val", "[12].bool_list.items", "[11].double_list.items"])
@pytest.mark.sampled(1)
def test_a_vector_of_gigabytes(whole: bytes, tmp_path: Path, field: str) -> None:
    """The file is sparse: its size costs nothing, and every length fits."""
    file, content, size = tmp_path / "huge.pte", bytearray(whole), 3 << 30
    for name, number in [("program_size", size), ("segment_base_offset", size), ("segment_data_size", 0)]:
        _site(whole, f"header.{name}", "number").write(content, number)
    for index in range(3):
        _site(whole, f"segments[{index}].size", "number").write(content, 0)
    _site(whole, f"{V}{field}", "length").write(content, (1 << 28) - 1)
    file.write_bytes(content)
    os.truncate(file, size + 1024)
    _within_limits(lambda: read(file))


def _sharing(tables: int, offsets: int) -> bytes:
    """Build a file whose ``mutable_data_segments`` repeat one table with a long vector."""
    root_vtable = struct.pack("<10H", 20, 12, 0, 4, 0, 0, 0, 0, 8, 0)
    vtable = struct.pack("<4H", 8, 8, 0, 4)
    head = struct.pack("<I4s", 36, b"ET12") + root_vtable + vtable + struct.pack("<iIII", 36 - 8, 8, 8, 0)
    pointers = len(head)
    table = pointers + 4 + 4 * tables
    table += -(table + 12) % 8  # Aligns the elements of the vector in it.
    vector = struct.pack(f"<I{tables}I", tables, *(table - pointers - 4 - 4 * index for index in range(tables)))
    content = (head + vector).ljust(table, b"\0") + struct.pack("<iI", table - 28, 4)
    return content + struct.pack(f"<I{offsets}Q", offsets, *[0] * offsets)


def test_tables_that_are_all_laid_out_differently() -> None:
    """Facts about a layout take memory; a file could have one layout for every few of its bytes."""
    count = 20_000
    # They differ in the place of an unknown field.
    vtables = b"".join(struct.pack("<6H", 12, 4, 0, 0, number, 0) for number in range(count))
    root_vtable = struct.pack("<10H", 20, 12, 0, 4, 0, 0, 0, 0, 8, 0)
    root = 28 + len(vtables)
    table = root + 20 + 4 * count
    content = struct.pack("<I4s", root, b"ET12") + root_vtable + vtables + struct.pack("<iIII", root - 8, 8, 8, 0)
    content += struct.pack(f"<I{count}I", count, *([table - root - 20] * count))
    content += b"".join(struct.pack("<i", table - 28 - 8 * number) for number in range(count))
    assert "have more than 4096 different layouts" in _refused(content).message
    _within_limits(lambda: parse(Blob(content)))


def test_tables_that_share_their_bytes() -> None:
    assert "mutable_data_segments[0].segment_index" in str(_refused(_sharing(1, 4))), "it is no nonsense otherwise"
    _within_limits(lambda: parse(Blob(_sharing(1000, 1000))))
    error = _refused(_sharing(20_000, 20_000))
    assert error.path.startswith("mutable_data_segments[")
    assert "share bytes" in error.message
