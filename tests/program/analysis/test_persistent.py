"""Persistent maps behave as lists do, and keep old versions unchanged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etdev.program.analysis.persistent import (
    Node,
    assigned,
    differences,
    joined,
    members,
    room,
    united,
    updated,
    value_at,
    values,
    with_members,
    with_value,
)

SIZE = 300
"""Size that needs more than one level of nodes."""


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int]:
    start = draw(st.integers(0, SIZE - 1))
    return start, draw(st.integers(start + 1, SIZE))


def listed(node: Node) -> list[object]:
    return [value_at(node, room(SIZE), index) for index in range(SIZE)]


@st.composite
def maps(draw: st.DrawFn, leaves: st.SearchStrategy[object]) -> tuple[Node, list[object]]:
    """Draw a map, and a list of the same values."""
    node = draw(leaves)
    known = [node] * SIZE
    for (start, end), value in draw(st.lists(st.tuples(ranges(), leaves), max_size=8)):
        node = assigned(node, room(SIZE), start, end, value)
        known[start:end] = [value] * (end - start)
    return node, known


SETS = maps(st.booleans())
WRITES = maps(st.frozensets(st.integers(0, 3)))


@given(found=WRITES, part=ranges())
def test_a_map_has_the_values_that_were_assigned(found: tuple[Node, list[object]], part: tuple[int, int]) -> None:
    node, known = found
    changed = updated(node, room(SIZE), *part, lambda value: value | {9})

    assert listed(node) == known
    assert set(values(node, room(SIZE), *part)) == set(known[slice(*part)])
    assert listed(changed) == [
        known[index] | {9} if part[0] <= index < part[1] else known[index]  # type: ignore[operator]
        for index in range(SIZE)
    ]


@given(found=WRITES, index=st.integers(0, SIZE - 1), value=st.frozensets(st.integers(0, 3)))
def test_one_value_is_set_as_a_range_of_one(
    found: tuple[Node, list[object]], index: int, value: frozenset[int]
) -> None:
    assert with_value(found[0], room(SIZE), index, value) == assigned(found[0], room(SIZE), index, index + 1, value)


@given(found=maps(st.booleans()), part=ranges())
def test_members_of_a_part(found: tuple[Node, list[object]], part: tuple[int, int]) -> None:
    node, known = found

    assert members(node, room(SIZE), *part) == [index for index in range(*part) if known[index]]


@given(one=WRITES, other=WRITES)
def test_maps_are_joined_value_by_value(one: tuple[Node, list[object]], other: tuple[Node, list[object]]) -> None:
    both = joined(one[0], other[0], lambda mine, theirs: mine | theirs)

    assert listed(both) == [mine | theirs for mine, theirs in zip(one[1], other[1], strict=True)]  # type: ignore[operator]


@given(one=SETS, other=SETS, members=st.sets(st.integers(0, SIZE - 1), max_size=5), value=st.booleans())
def test_sets(one: tuple[Node, list[bool]], other: tuple[Node, list[bool]], members: set[int], value: bool) -> None:
    wanted = [value if index in members else known for index, known in enumerate(one[1])]
    found = [index for index in differences(one[0], other[0], room(SIZE)) if index < SIZE]

    assert listed(with_members(one[0], room(SIZE), members, value)) == wanted
    assert listed(united(one[0], other[0])) == [mine or theirs for mine, theirs in zip(one[1], other[1], strict=True)]
    assert found == [index for index in range(SIZE) if one[1][index] is not other[1][index]]


@given(one=WRITES, other=WRITES)
def test_equal_maps_are_equal_nodes(one: tuple[Node, list[object]], other: tuple[Node, list[object]]) -> None:
    """Past the integers in use, both have the values with which they were made."""
    again = one[0]
    for index, value in enumerate(other[1]):
        again = assigned(again, room(SIZE), index, index + 1, value)
    for index, value in enumerate(one[1]):
        again = assigned(again, room(SIZE), index, index + 1, value)

    assert again == one[0]


def test_versions_share_what_they_have_in_common() -> None:
    size = room(5_000)
    node: Node = frozenset()
    for index in range(0, 5_000, 2):
        node = assigned(node, size, index, index + 1, frozenset({index}))
    changed = assigned(node, size, 2_000, 2_001, frozenset({1}))
    asked: list[object] = []

    def join(mine: frozenset[int], theirs: frozenset[int]) -> frozenset[int]:
        asked.append(mine)
        return mine | theirs

    assert joined(node, node, join) is node
    both = joined(node, changed, join)
    assert asked == [frozenset({2_000})]
    assert list(differences(node, both, size)) == [2_000]
    assert joined(both, node, join) is both
    assert assigned(node, size, 2_000, 2_001, frozenset({2_000})) is node
    assert with_members(united(True, False), size, [3], True) is True
