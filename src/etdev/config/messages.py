"""Translation of pydantic's errors into messages with the key, the expected value and a suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from etdev.config.describe.grammar import (
    Anything,
    Leaf,
    ListOf,
    MapOf,
    Node,
    OneOf,
    TableOf,
    find,
    grammar_of,
    key_names,
    tables,
    with_plugins,
)
from etdev.config.describe.notation import Example, example, kind, literal, short
from etdev.config.issues import MISSING_KEY, UNKNOWN_KEY, WRONG_NAME, WRONG_TYPE, WRONG_VALUE, Issue
from etdev.config.keys import KeyPath, format_key, nearest, nearest_unset
from etdev.config.layers import lookup, paths_of

_MISSING = object()
_KEY_OF_MAP = "[key]"
"""Last part of pydantic's location for an invalid key of a dictionary."""
_TABLE_TYPES = frozenset({"model_type", "model_attributes_type", "dict_type"})


def model_issues(model: type[BaseModel], data: Mapping[str, Any], prefix: KeyPath = ()) -> list[Issue]:
    """Validate raw data against a model and return the issues; ``prefix`` is the key path of the data in the config."""
    try:
        model.model_validate(dict(data))
    except ValidationError as error:
        return translate(error, grammar_of(model), data, prefix)
    return []


def translate(error: ValidationError, root: TableOf, data: Mapping[str, Any], prefix: KeyPath = ()) -> list[Issue]:
    """Return one issue for each invalid value, in pydantic's order."""
    found = [_locate(root, item, data) for item in error.errors(include_url=False)]
    found = [part for item in found for part in _split_tag_errors(item)]
    around = {item.path[:length] for item in found for length in range(len(item.path))}
    issues: dict[KeyPath, Issue] = {}
    for item in found:
        # Pydantic reports an error for every alternative of a union. If one alternative has an error at a deeper key,
        # the user meant that alternative. The errors about the union itself are then dropped.
        if not (item.in_union and item.path in around):
            issues.setdefault(item.path, _issue(item, root, prefix))
    return _without_misspelled(issues, found, prefix)


def null_issues(root: TableOf, data: Mapping[str, Any]) -> Iterator[Issue]:
    """Yield an issue for each null in the data of one file, at any depth.

    The models cannot report nulls, because they accept None for a key that is not set.
    """
    for path in paths_of(data):
        if path and lookup(data, path) == (True, None):
            within = path[2:] if path[0] == "profiles" and len(path) > 2 else path
            forms = [node for node in find(root, within) if not isinstance(node, Anything)]
            node = OneOf(tuple(forms)) if forms else Anything()
            expected = node.expected if forms else "a value"
            yield Issue(path, f"`{format_key(path)}` is null; expected {expected}", WRONG_TYPE, _null_hint(node, path))


@dataclass(frozen=True, slots=True)
class _Found:
    """One of pydantic's errors, with the grammar node for the value."""

    path: KeyPath
    node: Node
    """Grammar node of the expected value; for an unknown key, the node of the table that lacks the key."""
    value: object
    type: str
    text: str
    table: Mapping[str, Any]
    """Raw table that contains the value."""
    in_union: bool


def _locate(root: TableOf, error: Any, data: Mapping[str, Any]) -> _Found:
    node: Node = root
    value: object = data
    around: Mapping[str, Any] = data
    path: KeyPath = ()
    kind_of_error, in_union = error["type"], False
    name: Node | None = None
    for part in error["loc"]:
        if part == _KEY_OF_MAP and name is not None:
            kind_of_error, node = WRONG_NAME, name
            break
        if isinstance(node, OneOf):
            # In a union, pydantic's location includes the name of the tested alternative.
            node, in_union = _form(node, part, value), True
            continue
        if isinstance(node, Leaf | Anything):
            break
        path, around = (*path, part), value if isinstance(value, Mapping) else {}
        name, in_union = node.name if isinstance(node, MapOf) else None, False
        node = _below(node, part)
        value = _item(value, part)
    text = str(error.get("msg", "")).removeprefix("Value error, ")
    return _Found(path, node, value, kind_of_error, text, around, in_union)


def _below(node: Node, part: str | int) -> Node:
    match node:
        case TableOf():
            return node.keys[str(part)].node if part in node.keys else node
        case MapOf():
            return node.value
        case ListOf():
            return node.item
    return Anything()


def _item(value: object, part: str | int) -> object:
    if isinstance(value, Mapping):
        return value.get(part, _MISSING)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and isinstance(part, int):
        return value[part] if part < len(value) else _MISSING
    return _MISSING


def _form(union: OneOf, label: str | int, value: object) -> Node:
    """Return the alternative of a union that the user probably meant when writing ``value``.

    If several alternatives accept this kind of value, return a union of these alternatives. If no alternative accepts
    it, or only a list of choices does, return a union of all alternatives.
    """
    if union.tag is not None:
        for option in union.options:
            if isinstance(option, TableOf) and label in _tag_values(option, union.tag):
                return option
    fitting = tuple(option for option in union.options if kind(value) in _kinds(option))
    if len(fitting) == 1:
        chosen = fitting[0]
        is_choice = isinstance(chosen, Leaf) and chosen.values and all(isinstance(one, Leaf) for one in union.options)
        return union if is_choice else chosen
    return OneOf(fitting or union.options)


def _kinds(node: Node) -> frozenset[str]:
    match node:
        case Leaf():
            return node.kinds
        case ListOf():
            return frozenset({"list"})
        case MapOf() | TableOf():
            return frozenset({"table"})
        case OneOf():
            return frozenset().union(*(_kinds(option) for option in node.options))
    return frozenset()


def _tag_values(table: TableOf, tag: str) -> tuple[object, ...]:
    node = table.keys[tag].node
    return node.values if isinstance(node, Leaf) else ()


def _split_tag_errors(item: _Found) -> Iterator[_Found]:
    """Replace an error about a union's tag with one error for the tag and one for each unknown key.

    A key is unknown if no alternative of the union has it. If the tag is wrong or missing, pydantic does not check the
    other keys. All other errors are yielded unchanged.
    """
    if item.type not in ("union_tag_invalid", "union_tag_not_found") or not isinstance(item.node, OneOf):
        yield item
        return
    tag = item.node.tag or ""
    values = tuple(v for o in item.node.options if isinstance(o, TableOf) for v in _tag_values(o, tag))
    leaf = Leaf(frozenset({"text"}), f"one of {', '.join(literal(value) for value in values)}", values)
    table = item.value if isinstance(item.value, Mapping) else {}
    at_tag = replace(item, path=(*item.path, tag), node=leaf, table=table, value=table.get(tag, _MISSING))
    yield replace(at_tag, type="missing" if tag not in table else "literal_error")
    for name in table:
        if name not in key_names(item.node):
            yield replace(item, path=(*item.path, name), type="extra_forbidden", value=table[name], table=table)


def _issue(item: _Found, root: TableOf, prefix: KeyPath) -> Issue:
    key = (*prefix, *item.path)
    name = format_key(key)
    node = with_plugins(item.node)
    if item.type == "extra_forbidden":
        return Issue(key, f"unknown key `{name}`", UNKNOWN_KEY, _unknown_hint(item, root, prefix))
    if item.type == "missing":
        return Issue(
            key, f"`{name}` is missing; expected {node.expected}", MISSING_KEY, _missing_hint(node, root, item.path)
        )
    if item.type == WRONG_NAME:
        message = f"`{name}`: {literal(item.path[-1])} is not a valid name; expected {node.expected}"
        return Issue(key, message, WRONG_NAME, _choice_hint(node, item.path[-1]))
    if isinstance(node, Anything) and item.value is not _MISSING:
        return Issue(key, f"`{name}` is {short(item.value)}: {item.text}", WRONG_VALUE)
    if isinstance(node, Anything) or (isinstance(node, TableOf) and item.type not in _TABLE_TYPES):
        return Issue(key, f"`{name}` is not valid: {item.text}", WRONG_VALUE)
    fits = kind(item.value) in _kinds(node)
    message = f"`{name}` is {short(item.value)}; expected {node.expected}"
    return Issue(key, message, WRONG_VALUE if fits else WRONG_TYPE, _value_hint(node, item.value, key))


_NOT_PINNED: dict[KeyPath, str] = dict.fromkeys(
    (("memory", "pin", "constants"), ("memory", "pin", "weights")),
    "constants stay in the file, for example in flash, and take no memory of a bank; the keys of `pin` are: inputs, "
    "outputs, state, delegates",
)
"""Maps the end of a key's path to a hint, for keys that users expect although they do not exist."""


def _unknown_hint(item: _Found, root: TableOf, prefix: KeyPath) -> str:
    valid = key_names(item.node)
    name = str(item.path[-1])
    if known := _NOT_PINNED.get(item.path[-3:]):
        return known
    if meant := _meant(item):
        return f"did you mean `{meant}`{', which is set already' if meant in item.table else ''}?"
    home = _home(name, item.path, root)
    if home and home != item.path[:-1]:  # Otherwise it is a key of another kind of this table.
        return f"`{name}` is a key of `{format_key((*prefix, *home))}`"
    return f"the keys are: {', '.join(valid)}" if valid else "this table has no keys"


def _home(name: str, path: KeyPath, root: TableOf) -> KeyPath | None:
    """Return the path of the only table that has a key ``name``.

    Return None if no table or several tables have this key. A ``*`` or an index in the table's path is replaced by the
    part of ``path`` at the same position.
    """
    homes = {home for home, table in tables(root) if name in table.keys and home}
    if len(homes) != 1:
        return None
    home = list(homes.pop())
    for index, part in enumerate(path[: len(home)]):
        if home[index] == "*" or isinstance(home[index], int):
            home[index] = part
        elif home[index] != part:
            break
    return tuple(home)


def _meant(item: _Found) -> str | None:
    return nearest_unset(str(item.path[-1]), key_names(item.node), item.table)


def _without_misspelled(issues: dict[KeyPath, Issue], found: Iterable[_Found], prefix: KeyPath) -> list[Issue]:
    """Return the issues. Omit an issue about a missing key if the data contains this key in a misspelled form."""
    meant = {(*item.path[:-1], _meant(item)) for item in found if item.type == "extra_forbidden"}
    return [issue for path, issue in issues.items() if not (issue.rule == MISSING_KEY and path in meant)]


def _missing_hint(node: Node, root: TableOf, path: KeyPath) -> str | Example | None:
    if isinstance(node, Leaf) and len(node.values) == 1:
        return example("add {}", {str(path[-1]): node.values[0]})
    return _description(root, path)


def _description(root: TableOf, path: KeyPath) -> str | None:
    node: Node = root
    for part in path[:-1]:
        node = _below(node, part)
    options = node.options if isinstance(node, OneOf) else (node,)
    for option in options:
        if isinstance(option, TableOf) and path[-1] in option.keys:
            return option.keys[str(path[-1])].description or None
    return None


def _null_hint(node: Node, path: KeyPath) -> str:
    if isinstance(path[-1], int):
        return "remove the element"
    kinds = _kinds(node)
    if kinds == {"table"}:
        return "remove the key, or write {} for an empty table"
    if kinds == {"list"}:
        return "remove the key, or write [] for an empty list"
    return "write a value, or remove the key"


def _value_hint(node: Node, value: object, path: KeyPath) -> str | Example | None:
    if value is None:
        return _null_hint(node, path)
    if hint := _container_hint(node, value, path) or _choice_hint(node, value):
        return hint
    if isinstance(node, OneOf) and isinstance(value, str):
        hints = (_unquote_hint(option, value) for option in node.options if isinstance(option, Leaf))
        return next(filter(None, hints), None)
    if not isinstance(node, Leaf) or (node.values and isinstance(value, str)):
        return None
    if isinstance(value, str):
        return (node.meant(value) if node.meant else None) or _unquote_hint(node, value)
    if isinstance(value, float) and value.is_integer() and "integer" in node.kinds and "number" not in node.kinds:
        return f"write {int(value)}"
    if node.kinds == {"text"} and kind(value) in ("boolean", "integer", "number", "date") and node.is_free_text:
        return f'text needs quotes: "{short(value)}"'
    return None


def _container_hint(node: Node, value: object, path: KeyPath) -> str | Example | None:
    """Return a hint on how to write a list or table that contains ``value``; None if this is not clear."""
    if isinstance(node, ListOf):
        return _list_hint(node, value, path)
    if isinstance(node, TableOf):
        return _table_hint(node, value, path)
    if isinstance(node, MapOf) and node.name.example and kind(value) in _kinds(node.value):
        return example("write a table: {}", {format_key(path[-1:]): {node.name.example: value}})
    return None


def _list_hint(node: ListOf, value: object, path: KeyPath) -> str | Example | None:
    """Return a hint on how to write a list that contains ``value``; None if this is not clear."""
    if isinstance(value, str) and _NUMBERS.fullmatch(value) and "integer" in _kinds(node.item):
        return f"write a list: [{', '.join(re.findall('[0-9]+', value))}]"
    if kind(value) not in _kinds(node.item):
        return _table_hint(node.item, value, (*path, 0)) if isinstance(node.item, TableOf) else None
    return "write a list of tables: [{ … }]" if isinstance(value, Mapping) else f"write a list: [{short(value)}]"


def _table_hint(node: TableOf, value: object, path: KeyPath) -> str | Example | None:
    """Return a hint for a value where a table is expected; None if the table requires no key.

    If the table requires only one key, and ``value`` fits this key, the hint shows a table with this key and value.
    Otherwise, the hint lists the required keys.
    """
    required = [key for key in node.keys.values() if key.required]
    if len(required) == 1 and kind(value) in _kinds(required[0].node):
        table = {required[0].name: value}
        if isinstance(path[-1], int):
            return example("write a table in the list: [{{ {} }}]", table)
        return example("write a table: {}", {str(path[-1]): table})
    return f"the table needs: {', '.join(key.name for key in required)}" if required else None


def _choice_hint(node: Node, value: object) -> str | None:
    """Return a hint with the valid choice that the user probably meant; None if no choice is similar."""
    leaves = node.options if isinstance(node, OneOf) else (node,)
    choices = [choice for leaf in leaves if isinstance(leaf, Leaf) for choice in leaf.values if isinstance(choice, str)]
    if not isinstance(value, str):
        return None
    meant = known if (known := _MEANT.get(value)) in choices else nearest(value, choices)
    return f"did you mean {literal(meant)}?" if meant else None


_MEANT = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "long": "int64", "short": "int16"}
"""PyTorch's other names for element types. Each name maps to the element type in etdev's notation."""
_NUMBERS = re.compile(r"\s*[0-9]+(\s*[x*,]\s*[0-9]+)+\s*")
"""Pattern of a shape as text, such as ``1x3x96x96``."""
_WHOLE = re.compile(r"[+-]?[0-9][0-9_]*")
_NUMBER = re.compile(r"[+-]?[0-9][0-9_]*(\.[0-9]+)?(e[+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _unquote_hint(node: Leaf, value: str) -> str | None:
    word = value.strip().lower()
    if node.kinds == {"boolean"} and word in _BOOLEANS:
        return f"write {literal(_BOOLEANS[word])}, without quotes"
    number = _WHOLE if "number" not in node.kinds else _NUMBER
    if "integer" in node.kinds and "text" not in node.kinds and number.fullmatch(word):
        return f"write {word}, without quotes"
    return None
