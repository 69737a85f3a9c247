"""Records of values that moves and views have set find the values in some memory, and those that may be one tensor."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from etdev.program.analysis.persistent import room
from etdev.program.analysis.pointers import ELSEWHERE, Layout, Pointer, Pointers

VALUES = 40
PIECES = 600
"""Number that needs more than two levels of stretches."""

PLACES = st.dictionaries(
    st.integers(0, VALUES - 1),
    st.tuples(st.integers(0, PIECES - 1), st.integers(1, 300)).map(lambda at: (at[0], min(sum(at), PIECES))),
    min_size=1,
)


@st.composite
def changes(draw: st.DrawFn, places: Mapping[int, tuple[int, int]]) -> list[Pointer]:
    """Draw records that replace each other."""
    some = st.sampled_from([ELSEWHERE, *places])
    values = draw(st.lists(st.integers(0, VALUES - 1), max_size=8))
    return [
        Pointer(
            value, dict.fromkeys(draw(st.lists(some, max_size=3))), frozenset({draw(st.integers(0, VALUES - 1)), value})
        )
        for value in values
    ]


def check(found: Pointers, known: Mapping[int, Pointer], places: Mapping[int, tuple[int, int]]) -> None:
    """Check that all questions are answered as by a look at each record."""
    assert list(found) == [known[value] for value in sorted(known)]
    for first in range(0, PIECES, 7):
        last = min(first + 1 + first % 50, PIECES)
        over = {
            value
            for value, pointer in known.items()
            for place in pointer.targets
            if place != ELSEWHERE and places[place][0] < last and first < places[place][1]
        }
        assert found.over((first, last)) == sorted(over)
    for tensor in range(VALUES):
        others = {value for value, pointer in known.items() if tensor in pointer.tensors and value != tensor}
        assert found.same([tensor]) == others


@given(data=st.data(), places=PLACES)
def test_records_are_found_after_changes_and_joins(data: st.DataObject, places: dict[int, tuple[int, int]]) -> None:
    layout = Layout(places, room(PIECES), room(VALUES), views=True)
    common = Pointers(layout)
    known: dict[int, Pointer] = {}
    for pointer in data.draw(changes(places)):
        common.put(pointer)
        known[pointer.value] = pointer
    ways = []
    for _ in range(2):
        way, here = common.copy(), dict(known)
        for pointer in data.draw(changes(places)):
            way.put(pointer)
            here[pointer.value] = pointer
        gone = data.draw(st.sets(st.sampled_from([*here, 0])))
        way.keep(lambda value, gone=gone: value not in gone, gone)  # type: ignore[misc]
        here = {value: pointer for value, pointer in here.items() if value not in gone}
        check(way, here, places)
        ways.append((way, here))

    def join(one: Pointer | None, other: Pointer | None) -> Pointer:
        some = one or other
        assert some is not None
        one, other = one or Pointer(some.value, {}, frozenset({some.value})), other or some
        return Pointer(some.value, {**one.targets, **other.targets}, one.tensors | other.tensors)

    (one, mine), (other, theirs) = ways
    both = {
        value: mine[value] if mine.get(value) is theirs.get(value) else join(mine.get(value), theirs.get(value))
        for value in mine.keys() | theirs.keys()
    }
    check(one.joined(other, join), both, places)
    check(common, known, places)
