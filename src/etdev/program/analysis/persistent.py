"""Persistent maps from small integers to values.

A map is a tree, and each node covers a range of integers. A node is one value for all of these integers, or a tuple of
nodes for equal parts of the range. Nodes never change. A new version of a map shares nodes with the old version. Only
the nodes on the path to the change are new. So a copy takes no time, and a change takes O(log n) for n integers. A
comparison or a join visits only nodes that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

Node: TypeAlias = Any
"""Node of a map: a value that is not a tuple, or a tuple of :data:`PARTS` nodes that are not all equal."""
PARTS = 16
"""Number of equal parts into which a tuple node divides its range."""


def room(count: int) -> int:
    """Return the smallest size of a map that has room for ``count`` integers."""
    size = PARTS
    while size < count:
        size *= PARTS
    return size


def assigned(node: Node, size: int, start: int, end: int, value: Node) -> Node:
    """Return the map with ``value`` assigned to all integers from ``start`` (inclusive) to ``end`` (exclusive)."""
    if not start and end == size:
        return value
    parts = list(_parts(node))
    size //= PARTS
    (first, begin), (last, rest) = divmod(start, size), divmod(end, size)
    if first == last:
        parts[first] = assigned(parts[first], size, begin, rest, value)
        return _of(node, parts)
    if begin:
        parts[first] = assigned(parts[first], size, begin, size, value)
        first += 1
    parts[first:last] = [value] * (last - first)
    if rest:
        parts[last] = assigned(parts[last], size, 0, rest, value)
    return _of(node, parts)


def updated(node: Node, size: int, start: int, end: int, change: Callable[[Node], Node]) -> Node:
    """Return a map with ``change`` applied to the values from ``start`` (inclusive) to ``end`` (exclusive)."""
    if type(node) is not tuple and not start and end == size:
        return change(node)
    parts = list(_parts(node))
    size //= PARTS
    for index in range(start // size, (end - 1) // size + 1):
        at = index * size
        parts[index] = updated(parts[index], size, max(start - at, 0), min(end - at, size), change)
    return _of(node, parts)


def joined(one: Node, other: Node, join: Callable[[Node, Node], Node]) -> Node:
    """Join two maps value by value. ``join`` is not called for nodes that both maps share."""
    if one is other:
        return one
    if type(one) is not tuple and type(other) is not tuple:
        return join(one, other)
    mine, theirs = _parts(one), _parts(other)
    parts = [a if a is b else joined(a, b, join) for a, b in zip(mine, theirs, strict=True)]
    found = _of(one, parts)
    return found if found is one else _of(other, parts)


def united(one: Node, other: Node) -> Node:
    """Return the union of two sets. A set is a map from integers to truth values."""
    if one is other or one is True or other is False:
        return one
    if other is True or one is False:
        return other
    parts = [a if a is b else united(a, b) for a, b in zip(one, other, strict=True)]
    found = _of(one, parts)
    return found if found is one else _of(other, parts)


def with_members(node: Node, size: int, members: Iterable[int], value: bool) -> Node:
    """Return the set with ``members`` added if ``value`` is true, or with ``members`` removed otherwise."""
    for member in members:
        node = with_value(node, size, member, value)
    return node


def with_value(node: Node, size: int, index: int, value: Node) -> Node:
    """Return the map with ``value`` assigned to the integer ``index``. This is faster than :func:`assigned`."""
    path: list[tuple[Node, int]] = []
    at = node
    while size > 1:
        if type(at) is not tuple and at is value:
            return node
        size //= PARTS
        part, index = divmod(index, size)
        path.append((at, part))
        if type(at) is tuple:
            at = at[part]
    if at is value or at == value:
        return node
    for old, part in reversed(path):
        parts = list(_parts(old))
        parts[part] = value
        value = value if type(value) is not tuple and parts.count(value) == PARTS else tuple(parts)
    return value


def value_at(node: Node, size: int, index: int) -> Node:
    """Return the value of one integer."""
    while type(node) is tuple:
        size //= PARTS
        node = node[index // size]
        index %= size
    return node


def values(node: Node, size: int, start: int, end: int) -> Iterator[Node]:
    """Yield the values of the integers from ``start`` (inclusive) to ``end`` (exclusive), in order.

    The function may yield a value only once for several neighboring integers with this value.
    """
    if type(node) is not tuple:
        yield node
        return
    size //= PARTS
    for index in range(start // size, (end - 1) // size + 1):
        at = index * size
        yield from values(node[index], size, max(start - at, 0), min(end - at, size))


def members(node: Node, size: int, start: int, end: int) -> list[int]:
    """Return the integers of a set from ``start`` (inclusive) to ``end`` (exclusive), in order."""
    found: list[int] = []
    _collect(node, size, start, end, 0, found)
    return found


def _collect(node: Node, size: int, start: int, end: int, at: int, found: list[int]) -> None:
    """Append to ``found`` the set's members from ``at + start`` to ``at + end`` (exclusive).

    The first integer that ``node`` covers is ``at``.
    """
    if type(node) is not tuple:
        if node:
            found.extend(range(at + start, at + end))
        return
    size //= PARTS
    for index in range(start // size, (end - 1) // size + 1):
        if node[index] is not False:
            first = index * size
            _collect(node[index], size, max(start - first, 0), min(end - first, size), at + first, found)


def differences(one: Node, other: Node, size: int) -> list[int]:
    """Return the integers that have different values in the two maps, in order."""
    found: list[int] = []
    _compare(one, other, size, 0, found)
    return found


def _compare(one: Node, other: Node, size: int, at: int, found: list[int]) -> None:
    """Append to ``found`` the integers that have different values in two maps.

    The first integer that ``one`` and ``other`` cover is ``at``.
    """
    if type(one) is not tuple and type(other) is not tuple:
        if one != other:
            found.extend(range(at, at + size))
        return
    size //= PARTS
    for mine, theirs in zip(_parts(one), _parts(other), strict=True):
        if mine is not theirs:
            _compare(mine, theirs, size, at, found)
        at += size


def _parts(node: Node) -> Sequence[Node]:
    return node if type(node) is tuple else (node,) * PARTS


def _of(old: Node, parts: list[Node]) -> Node:
    """Return a node that consists of ``parts``. If ``old`` has the same content, return ``old`` itself."""
    first = parts[0]
    if type(first) is not tuple and parts.count(first) == PARTS:
        return old if old == first else first
    found = tuple(parts)
    return old if old == found else found
