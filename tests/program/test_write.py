"""The written file, and the resources for writing it."""

from __future__ import annotations

import gc
import mmap
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.errors import ProgramError, WriteError
from etdev.program import Blob, Program, parse, read, write
from etdev.program import model as m
from etdev.program.encode import encode
from etdev.program.header import IDENTIFIER
from etdev.program.schema import PROGRAM, Field, Scalar
from program import hand
from program.flatc_json import schema_folder
from program.sites import header_sites, sites
from support.speed import action_time, usual_seconds

GOLDEN = Path(__file__).parent / "data"
"""Files that ``write`` made; written again only if their content changes."""


@pytest.mark.parametrize("make", [hand.loop, hand.unbounded, hand.everything], ids=lambda make: make.__name__)
def test_golden_files(make: Callable[[], Program], tmp_path: Path) -> None:
    file = GOLDEN / f"{make.__name__}.pte"
    assert read(file) == make()
    assert hand.content(make(), tmp_path) == file.read_bytes()


def test_a_file_that_another_library_wrote(tmp_path: Path) -> None:
    """The library is flatc, which is written in C++ and arranges tables in another way."""
    flatc = pytest.importorskip("executorch.data.bin").__path__[0] + "/flatc"
    (tmp_path / "loop.json").write_text(_LOOP_JSON)
    schema = schema_folder() / "program.fbs"
    subprocess.run([flatc, "--binary", "-o", tmp_path, schema, tmp_path / "loop.json"], check=True, timeout=60)
    # flatc names the file by the schema's extension.
    assert read(tmp_path / "loop.pte") == hand.loop(times=5)


_LOOP_JSON = """{
  "execution_plan": [{
    "name": "forward",
    "values": [
      {"val_type": "Tensor", "val": {"scalar_type": "FLOAT", "sizes": [4], "dim_order": [0],
                                     "allocation_info": {"memory_id": 1}}},
      {"val_type": "Tensor", "val": {"scalar_type": "FLOAT", "sizes": [4], "dim_order": [0],
                                     "allocation_info": {"memory_id": 1, "memory_offset_low": 16}}},
      {"val_type": "Int", "val": {"int_val": 1}},
      {"val_type": "Int", "val": {}},
      {"val_type": "Int", "val": {"int_val": 5}},
      {"val_type": "Bool", "val": {}}
    ],
    "inputs": [0], "outputs": [1],
    "chains": [{"instructions": [
      {"instr_args_type": "KernelCall", "instr_args": {"args": [0, 0, 2, 1, 1]}},
      {"instr_args_type": "KernelCall", "instr_args": {"args": [1, 1, 2, 1, 1]}},
      {"instr_args_type": "KernelCall", "instr_args": {"op_index": 1, "args": [3, 2, 3]}},
      {"instr_args_type": "KernelCall", "instr_args": {"op_index": 2, "args": [3, 4, 5]}},
      {"instr_args_type": "JumpFalseCall", "instr_args": {"cond_value_index": 5, "destination_instruction": 1}}
    ]}],
    "operators": [{"name": "aten::add", "overload": "out"}, {"name": "executorch_prim::add", "overload": "Scalar"},
                  {"name": "executorch_prim::ge", "overload": "Scalar"}],
    "delegates": [],
    "non_const_buffer_sizes": [0, 32]
  }],
  "segments": [{}],
  "constant_segment": {"offsets": [0]}
}"""


@pytest.mark.parametrize("length", [24, 32])
def test_header(length: int, tmp_path: Path) -> None:
    content = hand.content(replace(hand.everything(), header_length=length), tmp_path)
    header = {site.path.removeprefix("header."): site.read(content) for site in header_sites(content)}
    assert content[4:12] == b"ET12eh00"
    assert header["length"] == length
    assert header["segment_base_offset"] % 128 == 0
    assert 0 <= header["segment_base_offset"] - header["program_size"] < 128
    assert header.get("segment_data_size") == (264 if length == 32 else None)
    assert len(content) == header["segment_base_offset"] + 264
    assert content[header["segment_base_offset"] :][256:] == b"delegate"
    assert parse(Blob(content)).header_length == length


def test_no_header_without_segments(tmp_path: Path) -> None:
    content = hand.content(hand.loop(), tmp_path)
    assert header_sites(content) == []
    assert parse(Blob(content)) == hand.loop()


def test_a_header_without_segments(tmp_path: Path) -> None:
    program = replace(hand.loop(), header_length=32)
    content = hand.content(program, tmp_path)
    assert [site.read(content) for site in header_sites(content)] == [32, len(content), 0, 0]
    assert parse(Blob(content)) == program


def test_numbers_are_aligned(tmp_path: Path) -> None:
    content = hand.content(hand.everything(), tmp_path)
    widths = {"b": 1, "B": 1, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "d": 8}
    assert not [site for site in [*sites(content), *header_sites(content)] if site.position % widths[site.code]]


def test_defaults_and_empty_vectors(tmp_path: Path) -> None:
    """Vectors that the runtime reads without a test for null are always present; others are not if empty."""
    paths = {site.path for site in sites(hand.content(hand.loop(), tmp_path))}
    plan, chain = "execution_plan[0]", "execution_plan[0].chains[0]"
    assert {f"{plan}.delegates", f"{chain}.inputs", "backend_delegate_data", "segments"} <= paths
    assert not {f"{plan}.non_const_buffer_device", f"{chain}.stacktrace", "named_data", "mutable_data_segments"} & paths
    assert f"{plan}.values[0].tensor.requires_grad" not in paths


def test_unknown_fields_are_reported_and_not_lost_silently(tmp_path: Path) -> None:
    newer = replace(PROGRAM, fields=(*PROGRAM.fields, Field(9, "later", Scalar("I"))), split=lambda value: value)
    values = (0, (), (), (), (), None, (), (), 7)
    content, _ = encode(newer, values, identifier=IDENTIFIER, inline_alignment=16)
    program = parse(Blob(bytes(content)))
    assert program.unknown_fields == ("Program: field 9",)
    with pytest.raises(ProgramError, match="would lose: Program: field 9"):
        write(program, tmp_path / "a.pte")
    assert not list(tmp_path.iterdir())


def test_what_is_behind_the_last_segment_is_unknown(tmp_path: Path) -> None:
    content = hand.content(hand.everything(), tmp_path)
    assert parse(Blob(content + bytes(100))).unknown_fields == ()
    assert parse(Blob(content + b"more")).unknown_fields == ("4 bytes after the last segment",)


def test_a_longer_header_is_unknown(tmp_path: Path) -> None:
    """Its fields are located in the padding of our files."""
    content = bytearray(hand.content(replace(hand.everything(), inline_alignment=64), tmp_path))
    header_sites(content)[0].write(content, 40)
    assert parse(Blob(bytes(content))).unknown_fields == ("header: 8 more bytes",)


def test_the_file_that_was_read_may_be_replaced(tmp_path: Path) -> None:
    file, program = tmp_path / "a.pte", hand.everything()
    write(program, file)
    mapped = read(file)
    write(replace(mapped, version=2), file)
    write(replace(mapped, version=3), file)
    assert read(file) == replace(program, version=3)
    assert mapped == program


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "a.pte"
    write(hand.loop(), file)
    with pytest.raises(ProgramError):
        write(replace(hand.everything(), header_length=None), file)
    with pytest.raises(WriteError, match="this is a folder"):
        write(hand.everything(), tmp_path)
    assert read(file) == hand.loop()
    assert list(tmp_path.iterdir()) == [file]


def test_into_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        write(hand.everything(), tmp_path / "pipe")
        assert reader.stdout is not None
        assert parse(Blob(reader.stdout.read())) == hand.everything()


def test_blobs() -> None:
    blob = Blob(b"0123456789")
    assert (len(blob), bytes(blob.cut(2, 3)), repr(blob)) == (10, b"234", "Blob(10 bytes)")
    assert blob.cut(2, 3) == Blob(b"234")
    assert blob != Blob(b"0123456780")
    assert blob != b"0123456789"
    assert hash(blob.cut(1, 2)) == hash(Blob(b"12"))
    assert Blob(bytes(3 << 20)).is_zero()
    assert not Blob(bytes(3 << 20) + b"\1").is_zero()
    for start, size in [(-1, 2), (9, 2), (0, 11), (3, -1)]:
        with pytest.raises(ValueError, match="outside a blob of 10"):
            blob.cut(start, size)


# Large files


def _large(size: int, folder: Path) -> Path:
    """Build a file with a segment of that size, in which all mebibytes differ."""
    raw = folder / "raw"
    with raw.open("wb") as file:
        for number in range(size >> 20):
            file.write(number.to_bytes(4, "little") * (1 << 18))
    with raw.open("rb") as file:
        data = Blob(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    program = hand.everything()
    write(replace(program, segments=(*program.segments[:2], m.Segment(256, data))), folder / "large.pte")
    raw.unlink()
    return folder / "large.pte"


def test_weights_take_no_memory(tmp_path: Path) -> None:
    file = _large(64 << 20, tmp_path)
    write(read(file), tmp_path / "warm.pte")
    gc.collect()
    tracemalloc.start()
    try:
        write(read(file), tmp_path / "again.pte")
        _, peak = tracemalloc.get_traced_memory()
        assert read(file) == read(tmp_path / "again.pte")
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


_LIMITED = """
import resource, sys
from etdev.program import read, write
resource.setrlimit(resource.RLIMIT_DATA, (128 << 20, 128 << 20))
write(read(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's own memory apart from mapped files")
def test_a_gibibyte_in_a_process_that_may_have_an_eighth(tmp_path: Path) -> None:
    file = _large(1 << 30, tmp_path)
    subprocess.run([sys.executable, "-c", _LIMITED, file, tmp_path / "again.pte"], check=True, timeout=300)
    assert read(file) == read(tmp_path / "again.pte")


@pytest.mark.slow
def test_a_gibibyte_as_fast_as_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processor seconds exclude the disk. Both run without fsync."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    file, pairs = _large(1 << 30, tmp_path), []
    for _ in range(5):
        start = time.process_time()
        write(read(file), tmp_path / "ours")
        middle = time.process_time()
        with file.open("rb") as source, (tmp_path / "copy").open("wb") as target:
            while chunk := source.read(8 << 20):
                target.write(chunk)
        pairs.append((middle - start) / (time.process_time() - middle))
        (tmp_path / "ours").unlink()
        (tmp_path / "copy").unlink()
    assert statistics.median(pairs) < 1.5


# Many instructions


def _long(count: int) -> Program:
    """Build a method of that many instructions, each with its own output, as executorch emits them."""
    places = (m.AllocationDetails(1, 16 * (index % 2)) for index in range(count + 1))
    tensors = tuple(replace(hand.tensor(2, 2), allocation_info=place) for place in places)
    calls = tuple(m.KernelCall(0, (index, index, count + 1, index + 1, index + 1)) for index in range(count))
    plan = replace(
        hand.loop().execution_plan[0],
        values=(*tensors, m.Int(1)),
        outputs=(count,),
        chains=(m.Chain(calls),),
    )
    return replace(hand.loop(), execution_plan=(plan,))


@pytest.mark.nightly
def test_four_thousand_instructions(tmp_path: Path) -> None:
    """On a usual machine: 0.05 s to read, 0.20 s to write. The limits are three times that."""
    program, file = _long(4000), tmp_path / "long.pte"
    assert usual_seconds(lambda: action_time(lambda: write(program, file)), 0.6) < 0.6
    assert usual_seconds(lambda: action_time(lambda: read(file)), 0.15) < 0.15
    assert read(file) == program


def test_reading_needs_neither_flatbuffers_nor_numpy(tmp_path: Path) -> None:
    write(hand.everything(), tmp_path / "a.pte")
    script = "import sys; from etdev.program import read; read(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "a.pte"], capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"numpy", "flatbuffers", "torch", "executorch"} & set(done.stdout.split())
