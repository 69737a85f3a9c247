"""Names of a method's outputs, from PyTorch's description of how the outputs nest in the model's result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from etdev.program import model as m


def output_names(plan: m.ExecutionPlan) -> Sequence[str | None]:
    """Return the name of each output: ``mask`` for ``{"mask": x}``, and ``boxes.0`` for ``{"boxes": (x, y)}``.

    The name is None for an output without a key, such as an item of a tuple. All names are None if the file does not
    describe the result, or describes another number of outputs.
    """
    described = plan.container_meta_type.encoded_out_str if plan.container_meta_type is not None else ""
    try:
        _, spec = json.loads(described)
        names = list(_leaves(spec, (), named=False))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        names = []
    return names if len(names) == len(plan.outputs) else [None] * len(plan.outputs)


def _leaves(spec: dict[str, Any], path: tuple[str, ...], *, named: bool) -> Iterator[str | None]:
    """Yield the name of each tensor in a nested result, or None if no key leads to it.

    ``path`` contains the keys and positions that lead to ``spec``. ``named`` is True if one of them is a key.
    """
    if spec["type"] is None:
        yield ".".join(path) if named else None
        return
    keys = json.loads(spec["context"])
    children = spec["children_spec"]
    has_keys = isinstance(keys, list) and len(keys) == len(children)
    for number, child in enumerate(children):
        key = str(keys[number]) if has_keys else str(number)
        yield from _leaves(child, (*path, key), named=named or has_keys)
