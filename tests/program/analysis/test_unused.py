"""Bytes that go out of use."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from etdev.program.analysis.storage import Storage
from etdev.program.analysis.unused import unused_in_turn, unused_ranges

LAST = 6


@st.composite
def storages(draw: st.DrawFn) -> Storage:
    start, length = draw(st.integers(0, LAST)), draw(st.integers(0, LAST))
    persistent = draw(st.sampled_from([False, False, False, True]))
    return Storage(
        (0,),
        draw(st.integers(1, 2)),
        draw(st.integers(0, 12)),
        draw(st.integers(1, 6)),
        start,
        start + length,
        persistent,
        (),
    )


@given(found=st.lists(storages(), max_size=8))
def test_ranges_of_all_instants_are_those_of_each_instant(found: list[Storage]) -> None:
    in_turn = unused_in_turn(found)
    for instant in range(1, 2 * LAST + 2):
        assert Counter(in_turn.get(instant, ())) == Counter(unused_ranges(found, instant - 1, instant))
    assert 0 not in in_turn
