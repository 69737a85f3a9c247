"""``etdev config explain KEY``: the meaning of a key, its valid values, and the origin of its value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from etdev.config.describe.grammar import (
    Key,
    MapOf,
    Node,
    OneOf,
    TableOf,
    children,
    entries_of,
    find,
    grammar_of,
    key_names,
    tables,
)
from etdev.config.describe.notation import literal, plain, short
from etdev.config.keys import KeyPath, format_key, nearest, parse_dotted
from etdev.config.layers import lookup
from etdev.config.loader import LoadedConfig
from etdev.config.models import Config
from etdev.errors import UsageError

_STEP = re.compile(r"""\.?(?:(?P<any>\*)|\[(?P<index>\d+|\*)\]|(?P<name>[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*'))""")
ANY = "*"


def parse_key(text: str) -> KeyPath:
    """Parse a key such as ``targets.*.partitioners[0].backend``. Raises :class:`~etdev.errors.UsageError`."""
    path: KeyPath = ()
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None or (position == 0) == step.group().startswith((".", "[")):
            break
        if step["index"]:
            path = (*path, ANY if step["index"] == ANY else int(step["index"]))
        else:
            path = (*path, ANY if step["any"] else (parse_dotted(step["name"]) or ("",))[0])
        position = step.end()
    if position < len(text) or not path:
        raise UsageError(f"{literal(text)} is not a key", hint="write names separated by dots: targets.cpu.budget.file")
    return path


def explain(text: str, loaded: LoadedConfig | None = None) -> str:
    """Return the explanation of a key. Raises :class:`~etdev.errors.UsageError` for an unknown key.

    A part that is a user-chosen name may be ``*`` or any name. The first parts of the key may be omitted if only one
    key ends with the remaining parts.
    """
    root = grammar_of(Config)
    path = _whole(root, parse_key(text))
    nodes = find(root, path)
    keys = _keys(root, path)
    lines = [format_key(path)]
    lines += [f"  {text}" for text in dict.fromkeys(key.description for key in keys if key.description)]
    lines += ["", f"  type     {OneOf(tuple(nodes)).expected}"]
    if keys:
        lines.append(f"  default  {_default_text(keys[0])}")
    lines += _table_lines(nodes)
    if loaded is not None:
        lines += _value_lines(path, loaded)
    return "\n".join(lines) + "\n"


def _whole(root: TableOf, path: KeyPath) -> KeyPath:
    """Return the full key for a shortened key, such as ``targets.*.budget.file`` for ``budget.file``."""
    if find(root, path):
        return path
    longer = [key for home, table in tables(root) for name in table.keys if len(key := (*home, name)) > len(path)]
    fixed = [key for key in longer if all(map(_is_written, key[-len(path) :], path))]
    named = [key for key in longer if all(map(_stands_for, key[-len(path) :], path))]
    ending = dict.fromkeys((*key[: -len(path)], *path) for key in fixed or named)
    if len(ending) > 1:
        several = ", ".join(f"`{format_key(key)}`" for key in ending)
        raise UsageError(f"several keys end with `{format_key(path)}`", hint=f"write one of {several}")
    if not ending:
        raise _unknown(root, path)
    return next(iter(ending))


def _is_written(part: str | int, given: str | int) -> bool:
    """Return True if ``given`` equals ``part``, a part of a key in the grammar.

    If ``part`` is an index, ``given`` may be any index or ``*``.
    """
    return part == given or (isinstance(part, int) and (isinstance(given, int) or given == ANY))


def _stands_for(part: str | int, given: str | int) -> bool:
    """Return True if ``given`` matches ``part``, a part of a key in the grammar. The part ``*`` matches any name."""
    return part == ANY or _is_written(part, given)


def _keys(root: Node, path: KeyPath) -> list[Key]:
    """Return the descriptions of a key. If its table is a union, each alternative may describe the key."""
    around = find(root, path[:-1])
    forms = [form for node in around for form in (node.options if isinstance(node, OneOf) else (node,))]
    return [form.keys[str(path[-1])] for form in forms if isinstance(form, TableOf) and path[-1] in form.keys]


def _default_text(key: Key) -> str:
    if key.required:
        return "none: the key is required"
    if key.default is None:
        return "not set"
    return "an empty table" if isinstance(key.default, BaseModel) or key.default == {} else literal(key.default)


def _table_lines(nodes: list[Node]) -> list[str]:
    forms = [form for node in nodes for form in (node.options if isinstance(node, OneOf) else (node,))]
    keys = {name: key for form in forms if isinstance(form, TableOf) for name, key in form.keys.items()}
    if not keys:
        return [f"  names    {form.name.expected}" for form in forms if isinstance(form, MapOf)]
    width = max(map(len, keys))
    return ["", "  keys", *(f"    {name:<{width}}  {key.description}" for name, key in keys.items())]


def _value_lines(path: KeyPath, loaded: LoadedConfig) -> list[str]:
    concrete = list(_matching(loaded.config, path))
    lines: list[str] = []
    for key, value in concrete:
        label = "value" if key == path else format_key(key)
        lines += ["", f"  {label}  {short_value(value)}"]
        chain = [(layer.marks[key].origin, lookup(layer.data, key)[1]) for layer in loaded.layers if key in layer.marks]
        for index, (origin, stated) in enumerate(reversed(chain)):
            profile = f" (profile {loaded.profile})" if origin.layer == "profile" else ""
            verb = "set by" if index == 0 else "over"
            lines.append(f"    {verb:<7}{origin.place}{profile}: {short(stated)}")
        if not chain:
            lines.append("    the default; no layer sets it")
    return lines or ["", f"  {loaded.name} does not have this table or list element"]


def short_value(value: Any) -> str:
    """Return an effective value as text on one line."""
    if value is None:
        return "not set"
    data = plain(value.model_dump() if isinstance(value, BaseModel) else value)
    return short(data) if isinstance(data, Mapping) else literal(data)


def _matching(value: Any, path: KeyPath, done: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield each key of the effective config that matches ``path``, with its value. A part ``*`` matches any name."""
    if not path:
        yield done, value
        return
    for name, item in entries_of(value).items():
        if path[0] in (ANY, name):
            yield from _matching(item, path[1:], (*done, name))


def _unknown(root: TableOf, path: KeyPath) -> UsageError:
    nodes: list[Node] = [root]
    length = 0
    while below := [child for node in nodes for child in children(node, path[length])]:
        nodes, length = below, length + 1
    name, outer = str(path[length]), path[:length]
    valid = [key for node in nodes for key in key_names(node)]
    homes = [home for home, table in tables(root) if name in table.keys]
    if near := nearest(name, valid):
        hint = f"did you mean `{format_key((*outer, near))}`?"
    elif homes:
        hint = f"did you mean `{format_key((*homes[0], name))}`?"
    else:
        hint = f"the keys are: {', '.join(valid)}" if valid else f"`{format_key(outer)}` has no keys"
    return UsageError(f"there is no key `{format_key(path)}`", hint=hint)
