"""From the name of a kernel to the function of torch that computes the same and allocates its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

_DTYPES = frozenset({"dtype", "out_dtype", "output_dtype"})
"""Names of parameters that are element types; files have their numbers."""
_IGNORED = frozenset({"memory_format", "layout", "device", "pin_memory", "non_blocking"})
"""Names of parameters that say how a result lies in memory, which the program's outputs decide."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel, in the order of the file's arguments."""

    name: str
    is_dtype: bool
    is_ignored: bool
    keyword: bool
    """Is it given by name?"""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function that computes what a kernel writes."""

    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    needs_dtype: bool = False
    """Does the function want the element type of the output?"""
    needs_device: bool = False
    """Does it want to know where to compute?"""


@cache
def find_kernel(name: str) -> Kernel | None:
    """The function for a kernel of that name, ``aten::add.out``; None if torch has none.

    Source: an ``out`` variant in torch has the parameters of the function that it belongs to, and the outputs.
    """
    import torch

    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if packet is None or overload not in packet.overloads():
        return None
    schema = getattr(packet, overload)._schema
    given = [argument for argument in schema.arguments if not argument.is_out]
    if len(given) == len(schema.arguments):
        return None
    wanted = [(argument.name, str(argument.type)) for argument in given]
    best: tuple[int, Any, list[str]] | None = None
    for candidate in packet.overloads():
        found = getattr(packet, candidate)
        extra = _extra(found._schema, wanted)
        if extra is not None and (best is None or len(extra) < best[0]):
            best = len(extra), found, extra
    if best is None:
        return None
    _, function, more = best
    keyword = {argument.name for argument in function._schema.arguments if argument.kwarg_only}
    parameters = tuple(
        Parameter(
            argument.name,
            argument.name in _DTYPES,
            argument.name in _IGNORED,
            argument.name in keyword,
        )
        for argument in given
    )
    return Kernel(function, parameters, needs_dtype="dtype" in more, needs_device="device" in more)


def _extra(schema: Any, wanted: list[tuple[str, str]]) -> list[str] | None:
    """Parameters that a function has beyond those ``wanted``; None if it lacks one or its extra ones say something."""
    if any(argument.is_out for argument in schema.arguments):
        return None
    has = [(argument.name, str(argument.type)) for argument in schema.arguments]
    if [item for item in has if item in wanted] != wanted:
        return None
    extra = [name for name, kind in has if (name, kind) not in wanted]
    return extra if all(name in _IGNORED or name in _DTYPES for name in extra) else None
