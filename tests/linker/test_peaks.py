"""A tree of bytes in use has the peaks of a list of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etdev.linker.elide.peaks import Peaks


@given(in_use=st.lists(st.integers(0, 50), min_size=1, max_size=40), data=st.data())
def test_peaks(in_use: list[int], data: st.DataObject) -> None:
    peaks = Peaks(in_use)
    for _ in range(data.draw(st.integers(0, 12))):
        start = data.draw(st.integers(0, len(in_use) - 1))
        end = data.draw(st.integers(start + 1, len(in_use)))
        by = data.draw(st.integers(-20, 20))
        peaks.add(start, end, by)
        in_use[start:end] = [size + by for size in in_use[start:end]]

        assert peaks.peak(start, end) == max(in_use[start:end])
        assert peaks.peak(0, len(in_use)) == max(in_use)
