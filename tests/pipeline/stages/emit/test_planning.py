"""Virtual addresses as a law: whatever the sizes, tensors lie apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etdev.pipeline.stages.emit.virtual_addresses import ALIGNMENT, GAP, next_address


@given(st.integers(0, 1 << 40).map(lambda number: number * ALIGNMENT), st.integers(0, 1 << 45))
def test_neighbours_are_aligned_and_apart_and_no_further(address: int, size: int) -> None:
    following = next_address(address, size)

    assert following % ALIGNMENT == 0
    assert 0 <= following - (address + size + GAP) < ALIGNMENT


def test_empty_tensors_have_addresses_of_their_own() -> None:
    assert next_address(0, 0) > 0
