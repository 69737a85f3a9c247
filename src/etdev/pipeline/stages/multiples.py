"""Dynamic dimensions whose sizes are multiples of a number, for ``torch.export``.

For such a dimension, ``torch.export`` checks none of the conditions on sizes that the model's code depends on. It
records them, and exports the code of the example's sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from inspect import Signature as Parameters
from itertools import islice, product, zip_longest
from typing import TYPE_CHECKING, Any

from etdev.config.models import Dim
from etdev.errors import ExportError
from etdev.pipeline.project import Project
from etdev.pipeline.stages.inputs import Signature

if TYPE_CHECKING:
    from types import CodeType

    from torch.export import ExportedProgram
    from torch.fx import Node

_MOST_CHOICES = 1_024
"""Largest number of choices of sizes for which the conditions are evaluated."""
_MOST_FACTOR = 64
"""Largest factor to try for a condition that holds for some multiples only."""
_FACTOR_NAME = "factor_of_{}"
SIZE_OF_INPUT = re.compile(r"L\['(?P<argument>[^']+)'\](?:\[(?P<item>\d+)\])?\.size\(\)\[(?P<axis>\d+)\]")
"""Size of an input in a condition of ``torch.export``."""

Choice = Mapping[str, int]
"""Maps each dynamic dimension to a size."""


def exported_dim(name: str, dim: Dim) -> Any:
    """Return the dimension for ``torch.export``. Multiples are the product of a number and a dimension of its own."""
    import torch

    if dim.multiple_of == 1:
        return torch.export.Dim(name, min=dim.min, max=dim.max)
    factors = torch.export.Dim(
        _FACTOR_NAME.format(name), min=dim.min // dim.multiple_of, max=dim.max // dim.multiple_of
    )
    return dim.multiple_of * factors


def declared_name(name: str, signature: Signature) -> str:
    """Return the text for a dimension that ``torch.export`` names: ``h``, or ``h / 4`` for the factor of ``h``."""
    for declared, dim in signature.dims.items():
        if dim.multiple_of > 1 and name == _FACTOR_NAME.format(declared):
            return f"{declared} / {dim.multiple_of}"
    return name


def check_multiples(
    project: Project,
    signature: Signature,
    program: ExportedProgram,
    parameters: Parameters,
    export_at: Callable[[Choice], ExportedProgram],
) -> None:
    """Raise :class:`~etdev.errors.ExportError` if the program is wrong for some sizes of a dimension in multiples.

    ``parameters`` are those of the method. ``export_at`` exports the method with fixed sizes. A condition that does not
    hold for a choice of sizes is harmless if the method has the same code with these sizes. An example is a condition
    that no size is 1.
    """
    ranges = {name: dim for name, dim in signature.dims.items() if dim.min < dim.max}
    if all(dim.multiple_of == 1 for dim in ranges.values()):
        return
    conditions = {
        text: compile(text, "<condition>", "eval")
        for text in _conditions(program)
        if _is_about_multiples(text, signature, parameters)
    }
    failing: dict[str, list[dict[str, int]]] = {}
    for choice in _choices(ranges):
        arguments = _arguments(signature, parameters, choice)
        for text, code in conditions.items():
            if not _holds(code, arguments):
                failing.setdefault(text, []).append(choice)

    @cache
    def is_harmless(sizes: tuple[int, ...]) -> bool:
        with suppress(Exception):  # The model may not run with these sizes.
            return _is_same_code(program, export_at(dict(zip(ranges, sizes, strict=True))))
        return False

    for text, choices in failing.items():
        for choice in (choices[0], choices[-1]):
            if not is_harmless(tuple(choice.values())):
                raise _refusal(project, signature, parameters, text, conditions[text], choice)


def _conditions(program: ExportedProgram) -> Sequence[str]:
    found: Sequence[str] | None = getattr(program, "_guards_code", None)
    if found is None:
        raise ExportError(
            "this version of torch does not record the conditions on sizes in multiples",
            hint="install the version of torch that etdev requires, or use fixed sizes",
        )
    return found


def _is_about_multiples(text: str, signature: Signature, parameters: Parameters) -> bool:
    """Return True unless a condition only concerns plain dimensions, which ``torch.export`` has checked."""
    sizes = [_size_at(found, signature, parameters) for found in SIZE_OF_INPUT.finditer(text)]
    return not sizes or any(size in signature.dims and signature.dims[size].multiple_of > 1 for size in sizes)


def _size_at(found: re.Match[str], signature: Signature, parameters: Parameters) -> str:
    """Return the declared size, as text, that an expression such as ``L['x'].size()[0]`` refers to."""
    shapes = parameters.bind(*(item.shape for item in signature.inputs)).arguments
    shape = shapes[found["argument"]]
    return str((shape if found["item"] is None else shape[int(found["item"])])[int(found["axis"])])


def _choices(ranges: Mapping[str, Dim]) -> Iterator[dict[str, int]]:
    """Yield choices of sizes: the ends of all ranges, then sizes between them, in steps that grow with the ranges."""
    corners = product(*((dim.min, dim.max) for dim in ranges.values()))
    most = max(int(_MOST_CHOICES ** (1 / len(ranges))), 2)
    spread = product(*(dim.sizes[:: math.ceil(len(dim.sizes) / most)] for dim in ranges.values()))
    for sizes in dict.fromkeys((*islice(corners, _MOST_CHOICES), *islice(spread, _MOST_CHOICES))):
        yield dict(zip(ranges, sizes, strict=True))


def _arguments(signature: Signature, parameters: Parameters, choice: Choice) -> dict[str, Any]:
    """Return inputs without data, by parameter. Dimensions that are not in ``choice`` have their only size."""
    import torch

    sizes = signature.sizes({**signature.largest(), **choice})
    return parameters.bind(*(torch.empty(shape, device="meta") for shape in sizes)).arguments


def _holds(code: CodeType, arguments: Mapping[str, Any]) -> bool:
    import torch

    names = {"L": arguments, "torch": torch, "math": math, "inf": math.inf, **_torch_names()}
    with suppress(Exception):  # Such as a division by zero. An export with these sizes then decides.
        return bool(eval(code, names))
    return False


@cache
def _torch_names() -> dict[str, Any]:
    """Return the functions that ``torch.export`` uses in its conditions, by name."""
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

    return dict(SYMPY_INTERP)


def _is_same_code(dynamic: ExportedProgram, fixed: ExportedProgram) -> bool:
    """Return True if two exports have the same operators on tensors, in the same order, with the same constants.

    Sizes that the program ``dynamic`` computes are not compared.
    """
    pairs = zip_longest(_tensor_calls(dynamic), _tensor_calls(fixed))
    return all(one is not None and other is not None and _is_same_call(one, other) for one, other in pairs)


def _tensor_calls(program: ExportedProgram) -> list[Node]:
    import torch

    nodes = (node for node in program.graph.nodes if node.op == "call_function")
    return [node for node in nodes if not isinstance(node.meta.get("val"), torch.SymInt | torch.SymBool | int | bool)]


def _is_same_call(dynamic: Node, fixed: Node) -> bool:
    import torch
    from torch.utils._pytree import tree_leaves

    if dynamic.target != fixed.target:
        return False
    leaves = [tree_leaves((node.args, node.kwargs)) for node in (dynamic, fixed)]
    return len(leaves[0]) == len(leaves[1]) and all(
        isinstance(one, torch.fx.Node) or one == other for one, other in zip(*leaves, strict=True)
    )


def _refusal(
    project: Project, signature: Signature, parameters: Parameters, text: str, code: CodeType, choice: Choice
) -> ExportError:
    name, dim = next((name, signature.dims[name]) for name in choice if signature.dims[name].multiple_of > 1)
    good: set[int] = set()
    failing: set[int] = set()
    for size in dim.sizes[:_MOST_CHOICES]:
        holds = _holds(code, _arguments(signature, parameters, {**choice, name: size}))
        (good if holds else failing).add(size)
    described = SIZE_OF_INPUT.sub(lambda found: _size_at(found, signature, parameters), text)
    sizes = ", ".join(f"{other} = {size}" for other, size in choice.items())
    return ExportError(
        f"the model does not work the same way for all sizes {dim.describe()} of {name!r}: with {sizes}, it does not "
        f"satisfy {described}",
        where=project.where("methods", signature.method, "dims", name),
        hint=_remedy(name, dim, good, failing),
    )


def _remedy(name: str, dim: Dim, good: set[int], failing: set[int]) -> str:
    for factor in range(2, _MOST_FACTOR + 1):
        step = factor * dim.multiple_of
        if len(good) > 1 and good == {size for size in good | failing if size % step == 0}:
            return f"only multiples of {step} work: set `multiple_of` of {name!r} to {step}, or fix the size"
    if good and failing and max(failing) < min(good):
        return f"set `min` of {name!r} to {min(good)}, fix the size, or write a branch with torch.cond"
    return "narrow the range, fix the size, or write a branch with torch.cond"
