"""Blobs of one piece and of several pieces look the same to a reader of their bytes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.program import Blob
from etdev.program.blob import CHUNK
from etdev.program.mapped import map_file

_pieces = st.lists(st.binary(max_size=12), max_size=6)


@given(pieces=_pieces, start=st.integers(0, 20), size=st.integers(0, 40))
def test_several_pieces(pieces: list[bytes], start: int, size: int) -> None:
    whole = b"".join(pieces)
    joined, plain = Blob.joined(map(Blob, pieces)), Blob(whole)
    assert len(joined) == len(whole)
    assert bytes(joined) == bytes(joined.view) == b"".join(joined.pieces()) == whole
    assert joined == plain
    assert hash(joined) == hash(plain)
    assert joined.is_zero() == plain.is_zero()
    if start + size <= len(whole):
        assert bytes(joined.cut(start, size)) == whole[start : start + size]
        assert joined.cut(start, size) == plain.cut(start, size)
    else:
        with pytest.raises(ValueError, match="outside a blob of"):
            joined.cut(start, size)


def test_joining_copies_nothing() -> None:
    data = bytes(8)
    assert Blob.joined([Blob(data), Blob(b"more")]).cut(2, 4).view.obj is data


@given(one=_pieces, other=_pieces)
def test_equality_is_that_of_the_bytes(one: list[bytes], other: list[bytes]) -> None:
    same = b"".join(one) == b"".join(other)
    assert (Blob.joined(map(Blob, one)) == Blob.joined(map(Blob, other))) is same


def test_pieces_end_at_multiples_of_a_chunk() -> None:
    blob = Blob.joined([Blob(bytes(10)), Blob(bytes(CHUNK)), Blob(bytes(5))])
    assert [len(piece) for piece in blob.pieces(CHUNK - 4)] == [4, 6, CHUNK - 6, 6, 5]


def test_pages_that_were_returned_are_read_again(tmp_path: Path) -> None:
    content = random.Random(0).randbytes(2 * CHUNK + 5000)
    (tmp_path / "a").write_bytes(content)
    mapped = map_file(tmp_path / "a")
    for start, size in ((0, len(content)), (1, CHUNK), (4095, 2 * CHUNK), (CHUNK, CHUNK + 5000), (7, 9)):
        slice_ = mapped.cut(1, len(content) - 1).cut(start - 1, size) if start else mapped
        for _ in range(2):
            assert b"".join(map(bytes, slice_.pieces())) == content[start : start + size]
            assert slice_ == Blob(content[start : start + size])
            assert not slice_.is_zero()
