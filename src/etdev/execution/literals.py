"""Inputs that the user writes as numbers or lists, such as ``token=3`` and ``token=[3, 5, 7]``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.errors import UsageError
from etdev.execution.arrays import FORMATS, WHERE
from etdev.execution.fit import wanted
from etdev.inspection.naming import dtype_name
from etdev.program import model as m
from etdev.runtime.interpreter.layout import torch_dtype

if TYPE_CHECKING:
    import torch

_SUFFIXES = frozenset(FORMATS.replace(" or ", ", ").split(", "))
BOOLEANS = {"true": True, "false": False}
"""Texts that users write for booleans, in lower case."""


def literal_value(text: str) -> Any:
    """Return the number, boolean or list that a text denotes; None if the text may be the path of a file.

    A text that begins with ``[`` and does not end like a file of arrays is a list. If it is not valid JSON, return the
    text.
    """
    text = text.strip()
    if text.startswith("["):
        if Path(text).suffix.lower() in _SUFFIXES:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if text.lower() in BOOLEANS:
        return BOOLEANS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return None


def literal_tensor(declared: m.Tensor, value: Any, label: str) -> torch.Tensor:
    """Return a value of :func:`literal_value` as a tensor of the declared element type.

    A number takes the shape of the input, which must have one element. ``label`` describes the input in messages.
    Raises :class:`~etdev.errors.UsageError` for a value that is not a rectangular list of numbers of this type.
    """
    import torch

    sizes = _sizes_of_list(declared, value, label) if isinstance(value, list) else _one(declared, value, label)
    numbers = [_element(declared.scalar_type, item, label) for item in _elements(value)]
    return torch.tensor(numbers, dtype=torch_dtype(declared.scalar_type)).reshape(sizes)


def _one(declared: m.Tensor, value: Any, label: str) -> Sequence[int]:
    """Return the sizes of an input for one number. Raises :class:`UsageError` if it has several elements."""
    if isinstance(value, str):
        message = f"{label}: {value!r} is not a list of numbers"
        raise UsageError(message, where=WHERE, hint="write a list such as '[3, 5, 7]', in quotes for the shell")
    if math.prod(declared.sizes) != 1:
        message = f"{label} is {wanted(declared)}, but the value is one number"
        form = "[]" if 0 in declared.sizes else "a list of numbers with this shape"
        raise UsageError(message, where=WHERE, hint=f"write {form}, or use {FORMATS}")
    return declared.sizes


def _sizes(value: Any) -> tuple[int, ...]:
    """Return the shape of nested lists. Raise :class:`ValueError` if they are not rectangular."""
    if not isinstance(value, list):
        return ()
    found = {_sizes(item) for item in value}
    if len(found) > 1:
        raise ValueError("the lists have different lengths")
    return (len(value), *(found.pop() if found else ()))


def _elements(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _elements(item)
    else:
        yield value


def _sizes_of_list(declared: m.Tensor, value: list[Any], label: str) -> Sequence[int]:
    """Return the shape of nested lists, which must have the axes of the input, or one more for a data set."""
    try:
        sizes = _sizes(value)
    except ValueError:
        message = f"{label}: the lists have different lengths or depths"
        hint = "write lists of equal lengths, such as [[1, 2], [3, 4]]"
        raise UsageError(message, where=WHERE, hint=hint) from None
    except RecursionError:
        hint = "write a list with the axes of the input"
        raise UsageError(f"{label}: the list is nested too deeply", where=WHERE, hint=hint) from None
    axes = len(declared.sizes)
    if 0 in sizes and 0 in declared.sizes:  # Brackets cannot express the sizes of a tensor without elements.
        return declared.sizes
    if len(sizes) in (axes, axes + 1):
        return sizes
    message = f"{label} is {wanted(declared)}, but the list has {len(sizes)} {'axis' if len(sizes) == 1 else 'axes'}"
    shape = "[" * axes + "…" + "]" * axes
    hint = f"write as many brackets as the input has axes: {shape}" if axes else "write a number"
    raise UsageError(message, where=WHERE, hint=hint)


def _element(scalar_type: m.ScalarType, item: Any, label: str) -> Any:
    """Return an element as a number of the element type. Raises :class:`UsageError` if the type cannot hold it."""
    import torch

    name, dtype = dtype_name(scalar_type), torch_dtype(scalar_type)
    if dtype == torch.bool:
        if item in (0, 1):
            return bool(item)
        raise _unusable(label, name, item, "write true or false")
    is_number = isinstance(item, int | float) and not isinstance(item, bool)
    if dtype.is_floating_point:
        most = torch.finfo(dtype).max
        if not is_number:
            raise _unusable(label, name, item, "write numbers")
        if abs(item) > most and not (isinstance(item, float) and math.isinf(item)):
            raise _unusable(label, name, item, f"write numbers from -{most:.6g} to {most:.6g}")
        return item
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    if not is_number or item != item // 1 or not least <= item <= most:
        raise _unusable(label, name, item, f"write whole numbers from {least} to {most}")
    return int(item)


def _unusable(label: str, dtype: str, item: Any, hint: str) -> UsageError:
    text = json.dumps(item)
    shown = text if len(text) <= 40 else f"{text[:39]}…"
    return UsageError(f"{label} is {dtype}, which cannot hold {shown}", where=WHERE, hint=hint)
