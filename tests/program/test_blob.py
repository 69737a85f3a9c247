"""Blobs of one piece and of several are the same to whoever looks at their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.program import Blob

_pieces = st.lists(st.binary(max_size=12), max_size=6)


@given(pieces=_pieces, start=st.integers(0, 20), size=st.integers(0, 40))
def test_several_pieces(pieces: list[bytes], start: int, size: int) -> None:
    whole = b"".join(pieces)
    joined, plain = Blob.joined(map(Blob, pieces)), Blob(whole)
    assert len(joined) == len(whole)
    assert bytes(joined) == bytes(joined.view) == b"".join(joined.views) == whole
    assert joined == plain
    assert hash(joined) == hash(plain)
    assert joined.is_zero() == plain.is_zero()
    if start + size <= len(whole):
        assert bytes(joined.cut(start, size)) == whole[start : start + size]
        assert joined.cut(start, size) == plain.cut(start, size)
    else:
        with pytest.raises(ValueError, match="of a blob of"):
            joined.cut(start, size)


def test_joining_copies_nothing() -> None:
    data = bytes(8)
    assert Blob.joined([Blob(data), Blob(b"more")]).views[0].obj is data


@given(one=_pieces, other=_pieces)
def test_equality_is_that_of_the_bytes(one: list[bytes], other: list[bytes]) -> None:
    same = b"".join(one) == b"".join(other)
    assert (Blob.joined(map(Blob, one)) == Blob.joined(map(Blob, other))) is same
