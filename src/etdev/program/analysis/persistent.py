"""Persistent maps from small integers to values.

A map is a node: a value that all of its integers have, or a tuple of nodes for equal parts of them. Nodes never change.
A new version of a map shares all nodes with the old one except those on the path to the change. So a copy takes no time
and a change takes O(log n). A comparison or a join only visits parts that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

Node: TypeAlias = Any
"""A tuple of nodes, or a value that is not a tuple. No tuple has equal values for all parts."""
_PARTS = 16


def room(count: int) -> int:
    """Return the size of a map for at least ``count`` integers."""
    size = _PARTS
    while size < count:
        size *= _PARTS
    return size


def assigned(node: Node, size: int, start: int, end: int, value: Node) -> Node:
    """Set the integers from ``start`` (inclusive) to ``end`` (exclusive) to a value."""
    if not start and end == size:
        return value
    parts = list(_parts(node))
    size //= _PARTS
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
    """Apply ``change`` to the values of the integers from ``start`` (inclusive) to ``end`` (exclusive)."""
    if type(node) is not tuple and not start and end == size:
        return change(node)
    parts = list(_parts(node))
    size //= _PARTS
    for index in range(start // size, (end - 1) // size + 1):
        at = index * size
        parts[index] = updated(parts[index], size, max(start - at, 0), min(end - at, size), change)
    return _of(node, parts)


def joined(one: Node, other: Node, join: Callable[[Node, Node], Node]) -> Node:
    """Join two maps value by value. ``join`` is not called for parts that both share."""
    if one is other:
        return one
    if type(one) is not tuple and type(other) is not tuple:
        return join(one, other)
    mine, theirs = _parts(one), _parts(other)
    parts = [a if a is b else joined(a, b, join) for a, b in zip(mine, theirs, strict=True)]
    found = _of(one, parts)
    return found if found is one else _of(other, parts)


def united(one: Node, other: Node) -> Node:
    """Return the union of two sets. A set is a map to truth values."""
    if one is other or one is True or other is False:
        return one
    if other is True or one is False:
        return other
    parts = [a if a is b else united(a, b) for a, b in zip(one, other, strict=True)]
    found = _of(one, parts)
    return found if found is one else _of(other, parts)


def with_members(node: Node, size: int, members: Iterable[int], value: bool) -> Node:
    """Add integers to a set if ``value`` is true; remove them otherwise."""
    for member in members:
        if value_at(node, size, member) is not value:
            node = assigned(node, size, member, member + 1, value)
    return node


def value_at(node: Node, size: int, index: int) -> Node:
    """Return the value of one integer."""
    while type(node) is tuple:
        size //= _PARTS
        node = node[index // size]
        index %= size
    return node


def values(node: Node, size: int, start: int, end: int) -> Iterator[Node]:
    """Yield the values of the integers from ``start`` (inclusive) to ``end`` (exclusive); neighbors may share one."""
    if type(node) is not tuple:
        yield node
        return
    size //= _PARTS
    for index in range(start // size, (end - 1) // size + 1):
        at = index * size
        yield from values(node[index], size, max(start - at, 0), min(end - at, size))


def differences(one: Node, other: Node, size: int, at: int = 0) -> Iterator[int]:
    """Yield the integers whose values differ, in order. ``at`` is the first integer of the map."""
    if type(one) is not tuple and type(other) is not tuple:
        if one != other:
            yield from range(at, at + size)
        return
    size //= _PARTS
    for index, (mine, theirs) in enumerate(zip(_parts(one), _parts(other), strict=True)):
        if mine is not theirs:
            yield from differences(mine, theirs, size, at + index * size)


def _parts(node: Node) -> Sequence[Node]:
    return node if type(node) is tuple else (node,) * _PARTS


def _of(old: Node, parts: list[Node]) -> Node:
    """Return a node of these parts: the old one if it equals them."""
    first = parts[0]
    if type(first) is not tuple and parts.count(first) == _PARTS:
        return old if old == first else first
    found = tuple(parts)
    return old if old == found else found
