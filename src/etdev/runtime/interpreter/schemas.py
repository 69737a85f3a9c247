"""Search for the PyTorch function that replaces a kernel. The function returns the kernel's results as new tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

_DTYPES = frozenset({"dtype", "out_dtype", "output_dtype"})
"""Names of parameters that take a dtype. Files store a dtype as a number."""
_IGNORED = frozenset({"memory_format", "layout", "device", "pin_memory", "non_blocking"})
"""Names of parameters that are ignored, because the program's outputs determine layout and device of the result."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel. A kernel's parameters have the order of the arguments in a call."""

    name: str
    is_dtype: bool
    is_ignored: bool
    keyword: bool
    """True if the argument is passed by keyword."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """PyTorch's replacement for an ExecuTorch kernel: the function, and the parameters of the kernel."""

    function: Callable[..., Any]
    parameters: tuple[Parameter, ...]
    needs_dtype: bool = False
    """True if the function also needs the dtype of the output."""
    needs_device: bool = False
    """True if the function also needs the device to compute on."""


@cache
def find_kernel(name: str) -> Kernel | None:
    """Return the function for a kernel such as ``aten::add.out``; None if PyTorch has none.

    The function has all parameters of the kernel except the ``out`` parameters.
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
    """Return the names of a function's parameters that are not in ``wanted``.

    Return None if the function lacks a wanted parameter, or needs an argument that the interpreter cannot supply.
    """
    if any(argument.is_out for argument in schema.arguments):
        return None
    has = [(argument.name, str(argument.type)) for argument in schema.arguments]
    if [item for item in has if item in wanted] != wanted:
        return None
    extra = [name for name, kind in has if (name, kind) not in wanted]
    return extra if all(name in _IGNORED or name in _DTYPES for name in extra) else None
