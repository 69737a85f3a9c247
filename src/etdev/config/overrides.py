"""Config layers that are not files: the variables ``ETDEV__SECTION__KEY``, and ``--set key=value``.

Each value is parsed as TOML. A value that is not valid TOML becomes plain text, as in ``--set model.entry=model:make``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etdev.config.describe.grammar import ListOf, Node, children, key_names
from etdev.config.describe.notation import without_password
from etdev.config.keys import KeyPath, folded, format_key, parse_dotted, split_assignment
from etdev.config.layers import Layer, LayerName, Mark, Origin, lookup, single_value_layer
from etdev.config.names import override_issues
from etdev.config.parsing.document import MAX_DEPTH
from etdev.config.problems import problem_of
from etdev.config.raw import Raw
from etdev.errors import Problem

PREFIX = "ETDEV__"
_NOT_OVERRIDABLE = {"extends": "add it to the config file", "profiles": "add it to the config file"}
"""Keys that cannot be overridden, because they are read before overrides are applied. Each key maps to a hint."""


@dataclass(frozen=True, slots=True)
class Override:
    """One key and its value, from an environment variable or a ``--set``."""

    path: KeyPath
    value: Any
    mark: Mark


def parse_value(text: str) -> tuple[Any, bool]:
    """Parse a text as a TOML value.

    Return the value and False, or the unchanged text and True if the text is not valid TOML.
    """
    if max(text.count("["), text.count("{")) <= MAX_DEPTH:
        try:
            table = tomllib.loads(f"value = {text}")
        except (ValueError, RecursionError):
            return text, True
        if table.keys() == {"value"}:
            return table["value"], False
    return text, True


def from_command_line(texts: Sequence[str], base: Path) -> tuple[list[Override], list[Problem]]:
    """Return the overrides from the arguments of ``--set`` in order, and a problem for each invalid argument."""
    overrides: list[Override] = []
    problems: list[Problem] = []
    for text in texts:
        source = f"--set {short_text(text)}"
        parts = split_assignment(text)
        path = parse_dotted(parts[0]) if parts else None
        if parts is None or path is None:
            problems.append(_malformed_set(text, source))
            continue
        value, as_text = parse_value(parts[1].strip())
        overrides.append(Override(path, value, _mark("command line", source, base, as_text)))
    return overrides, problems


def from_environment(
    environ: Mapping[str, str], base: Path, root: Node, data: Mapping[str, Any]
) -> tuple[list[Override], list[Problem]]:
    """Return the overrides from the variables ``ETDEV__SECTION__KEY``, and a problem for each invalid variable.

    Overrides of shorter keys come first. Each part of a variable's name is matched with the keys of the models and of
    ``data``. The match ignores case and treats ``-`` as ``_``. A part that matches no key is converted to lower case.
    """
    overrides: list[Override] = []
    problems: list[Problem] = []
    stated: dict[KeyPath, str] = {}
    names = [name for name in environ if name.startswith(PREFIX)]
    for name in sorted(names, key=lambda name: (name.count("__"), name)):
        source = f"environment variable {name}"
        parts = name.removeprefix(PREFIX).split("__")
        if not all(parts):
            message = "the name does not contain a key to set"
            problems.append(
                _problem(source, (), message, "write ETDEV__SECTION__KEY, with two underscores between names")
            )
            continue
        path, clash = _match(parts, root, data)
        if clash is None and path in stated:
            clash = f"this sets `{format_key(path)}`, and so does {stated[path]}"
        if clash is not None:
            problems.append(_problem(source, path, clash, "set this key with --set or in the config file"))
            continue
        stated[path] = name
        value, as_text = parse_value(environ[name].strip())
        overrides.append(Override(path, value, _mark("environment", source, base, as_text)))
    return overrides, problems


def override_layers(
    overrides: Iterable[Override], data: Mapping[str, Any], root: Node, profiles: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Layer], list[Problem], set[KeyPath]]:
    """Return a layer for each valid override, all problems, and the keys of undefined entries.

    An entry, such as a target, is undefined if no layer below the overrides defines its name. ``data`` is the merge of
    these layers. ``profiles`` maps the name of each profile to its data, for hints.
    """
    layers: list[Layer] = []
    problems: list[Problem] = []
    unknown: set[KeyPath] = set()
    for override in overrides:
        source, path = override.mark.origin.source, override.path
        if remedy := _NOT_OVERRIDABLE.get(str(path[0])):
            message = f"`{path[0]}` cannot be set here, because it is read before overrides are applied"
            problems.append(_problem(source, path, message, remedy))
        elif (outer := _list_on_the_way(path, data, root)) is not None:
            name = format_key(outer)
            message = f"`{format_key(path)}` is in the list `{name}`, whose elements cannot be set one by one"
            problems.append(_problem(source, path, message, f"set the whole list: --set '{name}=[…]'"))
        else:
            layers.append(single_value_layer(path, override.value, override.mark))
            for issue in override_issues(path, override.value, Raw(data), profiles):
                problems.append(problem_of(issue, layers[-1].marks))
                unknown.add(issue.key)
    return layers, problems, unknown


def short_text(text: str, limit: int = 60) -> str:
    """Return the text on one line, without passwords, and shortened if it is long."""
    line = without_password(" ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _match(parts: Sequence[str], root: Node, data: object) -> tuple[KeyPath, str | None]:
    """Find the key that matches the parts of a variable's name. Return the tuple (key, message).

    If a part matches several keys, the message describes the ambiguity, and the key contains only the parts before this
    part. Otherwise, the message is None.
    """
    path: KeyPath = ()
    nodes: list[Node] = [root]
    for part in parts:
        names = [name for node in nodes for name in key_names(node)]
        if isinstance(data, Mapping):
            names += [name for name in data if name not in names]
        fitting = list(dict.fromkeys(name for name in names if folded(name) == folded(part)))
        if len(fitting) > 1:
            keys = " and ".join(f"`{format_key((*path, name))}`" for name in fitting)
            return path, f"the name matches {keys}"
        key = fitting[0] if fitting else part.lower()
        path = (*path, key)
        nodes = [child for node in nodes for child in children(node, key)]
        data = data.get(key) if isinstance(data, Mapping) else None
    return path, None


def _list_on_the_way(path: KeyPath, data: Mapping[str, Any], root: Node) -> KeyPath | None:
    """Return the path of the outermost list that contains the value at ``path``; None if no list contains it.

    An override cannot set a single element of a list.
    """
    nodes: list[Node] = [root]
    for length in range(1, len(path)):
        part = path[length - 1]
        nodes = [child for node in nodes for child in children(node, part)]
        exists, value = lookup(data, path[:length])
        if (exists and isinstance(value, list)) or (nodes and all(isinstance(node, ListOf) for node in nodes)):
            return path[:length]
    return None


def _malformed_set(text: str, source: str) -> Problem:
    key, equals, _ = text.partition("=")
    if not equals:
        return _problem(source, (), "there is no `=`", "write --set key=value, such as --set project.out=dist")
    if "[" in key:
        hint = "set the whole list, because its elements cannot be set one by one"
    else:
        hint = "write names separated by dots; quote a name with characters other than letters, digits, _ and -"
    return _problem(source, (), f"`{short_text(key)}` is not a key", hint)


def _mark(layer: LayerName, source: str, base: Path, as_text: bool) -> Mark:
    return Mark(Origin(layer, source, base), as_text=as_text)


def _problem(source: str, path: KeyPath, message: str, hint: str) -> Problem:
    return Problem(message, format_key(path), source, hint=hint, rule="override")
