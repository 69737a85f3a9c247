"""Grammar of a config, derived from the models: the valid keys and values at each position.

Messages, overrides, ``explain``, the reference and the tests use this grammar.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import annotated_types as at
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from etdev import plugins
from etdev.config.describe.notation import literal
from etdev.config.keys import KeyPath
from etdev.config.registered import Registered
from etdev.config.types import Expected
from etdev.plugins import Group


@dataclass(frozen=True, slots=True)
class Leaf:
    """Grammar node for a single value, such as a number or a text."""

    kinds: frozenset[str]
    """Accepted kinds of raw value, as returned by :func:`etdev.config.describe.notation.kind`."""
    expected: str
    """Text that completes "expected …"."""
    values: tuple[object, ...] = ()
    """All valid values, if the type has a list of values."""
    example: str | None = None
    """A valid value that messages may show as an example; None for no example."""
    meant: Callable[[str], str | None] | None = None
    """Function that takes an invalid text and returns a hint with its probable meaning."""
    group: Group | None = None
    """Extension point; its registered names are also valid. :func:`with_plugins` adds these names to ``values``."""

    @property
    def is_free_text(self) -> bool:
        """Return True if any short text is valid, such as a number in quotes."""
        return not self.values and self.expected.startswith(("text", "a name of letters, digits, `.`"))


@dataclass(frozen=True, slots=True)
class Anything:
    """Grammar node for a value that the models do not check."""

    expected = "any value"


@dataclass(frozen=True, slots=True)
class ListOf:
    """Grammar node for a list."""

    item: Node
    phrase: str = ""
    """Text that completes "expected …", if the list itself has constraints; otherwise empty."""

    @property
    def expected(self) -> str:
        if self.phrase:
            return self.phrase
        return "a list" if isinstance(self.item, Anything) else f"a list, each element {self.item.expected}"


@dataclass(frozen=True, slots=True)
class MapOf:
    """Grammar node for a table whose keys are names that the user chooses."""

    name: Leaf
    value: Node
    min_entries: int = 0

    @property
    def expected(self) -> str:
        if self.min_entries:
            return f"a table with at least {self.min_entries} entry"
        names = self.name.expected if self.name.example else "name"
        return f"a table from {names} to {self.value.expected}" if isinstance(self.value, Leaf) else "a table"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table."""

    name: str
    node: Node
    required: bool
    default: object
    """Default value; None if the key is required or has no default."""
    description: str
    attribute: str
    """Name of the model's attribute for this key; differs from the key's name if that name is a Python keyword."""


@dataclass(frozen=True, slots=True)
class TableOf:
    """Grammar node for a table with fixed keys."""

    model: type[BaseModel]
    keys: dict[str, Key]
    expected = "a table"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Grammar node for a union: a value that matches one of several alternatives.

    If the alternatives are tables, ``tag`` may name the key whose value selects the alternative.
    """

    options: tuple[Node, ...]
    tag: str | None = None

    @property
    def expected(self) -> str:
        *most, last = dict.fromkeys(option.expected for option in self.options)
        return f"{', '.join(most)}{',' * (len(most) > 1)} or {last}" if most else last


Node = Leaf | Anything | ListOf | MapOf | TableOf | OneOf


@cache
def grammar_of(model: type[BaseModel]) -> TableOf:
    """Return the grammar node for the table that a model describes."""
    keys = {}
    for name, info in model.model_fields.items():
        node = _node(info.annotation, tuple(info.metadata), info.discriminator)
        key = info.alias or name
        keys[key] = Key(key, node, info.is_required(), _default(info), info.description or "", name)
    return TableOf(model, keys)


def children(node: Node, part: str | int) -> Iterator[Node]:
    """Yield the nodes one step below a node. For a union, yield the nodes below all alternatives."""
    match node:
        case TableOf():
            if part in node.keys:
                yield node.keys[str(part)].node
        case MapOf():
            yield node.value
        case ListOf():
            yield node.item
        case Anything():
            yield node
        case OneOf():
            for option in node.options:
                yield from children(option, part)


def find(root: Node, path: KeyPath) -> list[Node]:
    """Return the nodes for the value at a path.

    A union has several nodes. The list is empty if the key does not exist.
    """
    nodes = [root]
    for part in path:
        nodes = [child for node in nodes for child in children(node, part)]
    return nodes


def key_names(node: Node) -> list[str]:
    """Return the fixed keys of a table. For a union, return the fixed keys of all alternatives."""
    if isinstance(node, OneOf):
        return list(dict.fromkeys(name for option in node.options for name in key_names(option)))
    return list(node.keys) if isinstance(node, TableOf) else []


def tables(node: Node, path: KeyPath = ()) -> Iterator[tuple[KeyPath, TableOf]]:
    """Yield every table with fixed keys at or below a node, each with its path.

    In a path, ``*`` represents a name that the user chooses, and 0 represents any list element.
    """
    match node:
        case TableOf():
            yield path, node
            for key in node.keys.values():
                yield from tables(key.node, (*path, key.name))
        case MapOf():
            yield from tables(node.value, (*path, "*"))
        case ListOf():
            yield from tables(node.item, (*path, 0))
        case OneOf():
            for option in node.options:
                yield from tables(option, path)


def entries_of(value: object) -> Mapping[str | int, Any]:
    """Return the entries of a table, mapping or list. The key of each entry is its name or its index."""
    if isinstance(value, BaseModel):
        return {name: getattr(value, key.attribute) for name, key in grammar_of(type(value)).keys.items()}
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    return value if isinstance(value, Mapping) else {}


def _default(info: FieldInfo) -> object:
    value = info.get_default(call_default_factory=True, validated_data={})
    return None if value is PydanticUndefined else value


_KINDS: dict[object, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer",),
    float: ("integer", "number"),
    str: ("text",),
    bytes: ("bytes",),
}
_PHRASES: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    bytes: "bytes",
}


def _node(annotation: Any, metadata: tuple[Any, ...] = (), tag: object = None) -> Node:
    metadata = _flat(metadata)
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *more = typing.get_args(annotation)
        found = next((item.discriminator for item in more if isinstance(item, FieldInfo) and item.discriminator), tag)
        return _node(inner, (*more, *metadata), found)
    if origin in (typing.Union, types.UnionType):
        return _union(typing.get_args(annotation), metadata, tag)
    if origin is typing.Literal:
        return _choice(typing.get_args(annotation))
    arguments = typing.get_args(annotation)
    if origin in (tuple, list, frozenset, set) and arguments:
        phrase = next((item.phrase for item in metadata if isinstance(item, Expected)), "")
        return ListOf(_node(arguments[0]), phrase)
    if origin is dict:
        name = _node(arguments[0])
        least = next((item.min_length for item in metadata if isinstance(item, at.MinLen)), 0)
        return MapOf(name if isinstance(name, Leaf) else _leaf(str, ()), _node(arguments[1]), least)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return grammar_of(annotation)
    return _leaf(annotation, metadata) if annotation in _KINDS else Anything()


def with_plugins(node: Node) -> Node:
    """Return a copy of a node that also accepts the names that installed packages register.

    Messages about the copy also list these names.
    """
    if isinstance(node, OneOf):
        return replace(node, options=tuple(map(with_plugins, node.options)))
    if isinstance(node, Leaf) and node.group is not None:
        return _choice(plugins.names(node.group), node.group)
    return node


def _choice(values: tuple[object, ...], group: Group | None = None) -> Leaf:
    """Return the node for a choice of values. ``Leaf.expected`` lists the values: ``one of "a", "b"``."""
    shown = ", ".join(literal(value) for value in values)
    phrase = f"one of {shown}" if len(values) > 1 else shown
    return Leaf(frozenset(kind for value in values for kind in _KINDS[type(value)]), phrase, values, group=group)


def _union(arguments: tuple[Any, ...], metadata: tuple[Any, ...], tag: object) -> Node:
    options = tuple(_node(argument) for argument in arguments if argument is not type(None))
    expected = next((item for item in metadata if isinstance(item, Expected)), None)
    if expected is not None:
        kinds = [option.kinds for option in options if isinstance(option, Leaf)]
        return Leaf(frozenset().union(*kinds) | expected.also, expected.phrase, meant=expected.meant)
    if len(options) == 1:
        return _node(next(a for a in arguments if a is not type(None)), metadata)
    return OneOf(options, tag if isinstance(tag, str) else None)


def _leaf(annotation: Any, metadata: tuple[Any, ...]) -> Leaf:
    group = next((item.group for item in metadata if isinstance(item, Registered)), None)
    if group is not None:
        return _choice(group.built_in, group)
    expected = next((item for item in metadata if isinstance(item, Expected)), None)
    kinds = frozenset(_KINDS[annotation]) | (expected.also if expected else frozenset())
    phrase = expected.phrase if expected else _PHRASES[annotation]
    if expected is None or annotation is float:
        phrase += _bounds(metadata)
    if expected is None:
        return Leaf(kinds, phrase)
    return Leaf(kinds, phrase, example=expected.example, meant=expected.meant)


def _bounds(metadata: tuple[Any, ...]) -> str:
    limits = {name: getattr(item, name) for item in metadata for name in _LIMITS if hasattr(item, name)}
    if "ge" in limits and "le" in limits:
        limits["between"] = f"{limits.pop('ge')} to {limits.pop('le')}"
    return ",".join(f" {_LIMITS[name]} {limit}" for name, limit in limits.items())


_LIMITS = {
    "between": "from",
    "ge": "of at least",
    "gt": "greater than",
    "le": "of at most",
    "lt": "less than",
    "multiple_of": "in multiples of",
    "min_length": "of length at least",
    "max_length": "of length at most",
}
"""Maps the attribute of a constraint in ``annotated_types``, such as ``ge``, to words for messages."""


def _flat(metadata: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the constraints as a flat tuple. Pydantic stores those of ``Field(ge=1)`` in a nested list."""
    flat: list[Any] = []
    for item in metadata:
        flat.extend(item.metadata if isinstance(item, FieldInfo) else (item,))
    return tuple(flat)
