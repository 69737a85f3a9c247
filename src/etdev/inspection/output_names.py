"""Names of a method's outputs, from PyTorch's description of how the outputs nest in the model's result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from etdev.program import model as m

_LONGEST = 200
"""Maximum number of characters of a name, without its dots. An output with a longer name gets the name None."""


def output_names(plan: m.ExecutionPlan) -> Sequence[str | None]:
    """Return the name of each output: ``mask`` for ``{"mask": x}``, and ``boxes.0`` for ``{"boxes": (x, y)}``.

    The name is None for an output without a key, such as an item of a tuple. All names are None if the file does not
    describe the result, or describes another number of outputs.
    """
    described = plan.container_meta_type.encoded_out_str if plan.container_meta_type is not None else ""
    count = len(plan.outputs)
    try:
        _, spec = json.loads(described)
        names = list(islice(_leaves(spec, (), named=False), count + 1))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        names = []
    return names if len(names) == count else [None] * count


def _leaves(spec: dict[str, Any], path: tuple[str, ...], *, named: bool) -> Iterator[str | None]:
    """Yield the name of each tensor in a nested result, or None if no key leads to it.

    ``path`` contains the keys and positions that lead to ``spec``. ``named`` is True if one of them is a key.
    """
    if spec["type"] is None:
        yield ".".join(path) if named and sum(map(len, path)) <= _LONGEST else None
        return
    children = spec["children_spec"]
    keys = _keys(spec["context"], len(children))
    for number, child in enumerate(children):
        key = str(number) if keys is None else keys[number]
        yield from _leaves(child, (*path, key), named=named or keys is not None)


def _keys(context: Any, count: int) -> Sequence[str] | None:
    """Return the keys of a dict's or dataclass's entries; None for other containers.

    The context of a dict is the list of its keys, as JSON text. The context of a dataclass is a pair of lists: the
    fields of the entries, and the fields that are None. The context of a ``defaultdict`` is an object whose
    ``dict_context`` is the list of its keys.
    """
    try:
        found = json.loads(context) if isinstance(context, str) else context
    except (ValueError, RecursionError):  # The context of a namedtuple is its name.
        return None
    if isinstance(found, dict):
        found = found.get("dict_context")
    elif isinstance(found, list) and len(found) == 2 and isinstance(found[0], list):
        found = found[0]
    is_keys = isinstance(found, list) and len(found) == count and all(map(_is_key, found))
    return [str(key) for key in found] if is_keys else None


def _is_key(key: object) -> bool:
    """Return True if the object can be part of an output's name: a number, or text that UTF-8 can encode."""
    if isinstance(key, str):
        return not any("\ud800" <= letter <= "\udfff" for letter in key)
    return isinstance(key, int)
