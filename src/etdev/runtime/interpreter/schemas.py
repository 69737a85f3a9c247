"""Lookup of the PyTorch function that computes a kernel's result and allocates it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

_DTYPES = frozenset({"dtype", "out_dtype", "output_dtype"})
"""Names of parameters that are element types. Files store their numbers."""
_IGNORED = frozenset({"memory_format", "layout", "device", "pin_memory", "non_blocking"})
"""Names of parameters for the layout or device of a result. The program's outputs decide these instead."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a kernel, in the order of the file's arguments."""

    name: str
    is_dtype: bool
    is_ignored: bool
    keyword: bool
    """True if it is passed by name."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """PyTorch function that computes a kernel's result."""

    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    needs_dtype: bool = False
    """True if the function needs the element type of the output."""
    needs_device: bool = False
    """True if the function needs the device to compute on."""


@cache
def find_kernel(name: str) -> Kernel | None:
    """Return the function for a kernel such as ``aten::add.out``, or None if PyTorch has none.

    An ``out`` variant in PyTorch has the parameters of its functional variant, and the outputs.
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
    """Return the names of a function's parameters beyond ``wanted``.

    Return None if the function lacks a wanted parameter, or if an extra one is neither a dtype nor ignored.
    """
    if any(argument.is_out for argument in schema.arguments):
        return None
    has = [(argument.name, str(argument.type)) for argument in schema.arguments]
    if [item for item in has if item in wanted] != wanted:
        return None
    extra = [name for name, kind in has if (name, kind) not in wanted]
    return extra if all(name in _IGNORED or name in _DTYPES for name in extra) else None
