"""Dynamic dimensions whose sizes are multiples of a number, for ``torch.export``.

For such a dimension, ``torch.export`` checks none of the conditions on sizes that the model's code depends on. It only
records them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from inspect import Signature as Parameters
from typing import TYPE_CHECKING, Any

from etdev.config.models import Dim
from etdev.errors import ExportError
from etdev.pipeline.project import Project
from etdev.pipeline.stages.inputs import Signature

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_MOST_SIZES = 1_000
"""Maximum number of sizes to check for each dimension: the smallest ones. The largest size is always checked."""
_MOST_FACTOR = 64
"""Largest factor to try for a condition that holds for some multiples only."""
SIZE_OF_INPUT = re.compile(r"L\['(?P<argument>[^']+)'\]\.size\(\)\[(?P<axis>\d+)\]")
"""Size of an input in a condition of ``torch.export``."""


def exported_dim(name: str, dim: Dim) -> Any:
    """Return the dimension for ``torch.export``. Multiples are the product of a number and a dimension ``_NAME``."""
    import torch

    if dim.multiple_of == 1:
        return torch.export.Dim(name, min=dim.min, max=dim.max)
    factors = torch.export.Dim(f"_{name}", min=dim.min // dim.multiple_of, max=dim.max // dim.multiple_of)
    return dim.multiple_of * factors


def check_multiples(project: Project, signature: Signature, program: ExportedProgram, parameters: Parameters) -> None:
    """Raise :class:`~etdev.errors.ExportError` if a size in multiples does not satisfy a condition of the program.

    ``parameters`` are those of the method. Sizes of one factor are left out, as ``torch.export`` does: it assumes
    that they are no broadcasts.
    """
    for name, dim in signature.dims.items():
        if dim.multiple_of == 1 or dim.min == dim.max:
            continue
        sizes = [size for size in dim.sizes if size > dim.multiple_of]
        for code in program._guards_code:
            failing = [size for size in _checked(sizes) if not _holds(code, signature, parameters, {name: size})]
            if failing:
                raise ExportError(
                    f"the model does not work the same way for all sizes {dim.describe()} of {name!r}: with "
                    f"{failing[0]}, it does not satisfy {_described(code, signature, parameters)}",
                    where=project.where("methods", signature.method, "dims", name),
                    hint=_remedy(name, dim, {*_checked(sizes)} - {*failing}, failing),
                )


def _checked(sizes: Sequence[int]) -> list[int]:
    return [*sizes[:_MOST_SIZES], *sizes[_MOST_SIZES:][-1:]]


def _holds(code: str, signature: Signature, parameters: Parameters, choice: Mapping[str, int]) -> bool:
    """Return True if a condition holds for inputs of these sizes. Other dimensions have their largest size."""
    import torch

    sizes = signature.sizes({**signature.largest(), **choice})
    inputs = parameters.bind(*(torch.empty(shape, device="meta") for shape in sizes)).arguments
    try:
        return bool(eval(code, {"L": inputs, "torch": torch}))
    except ZeroDivisionError:
        return False


def _described(code: str, signature: Signature, parameters: Parameters) -> str:
    """Return a condition with the names of dimensions instead of expressions such as ``L['x'].size()[0]``."""
    shapes = parameters.bind(*(item.shape for item in signature.inputs)).arguments
    return SIZE_OF_INPUT.sub(lambda found: str(shapes[found["argument"]][int(found["axis"])]), code)


def _remedy(name: str, dim: Dim, good: set[int], failing: Sequence[int]) -> str:
    for factor in range(2, _MOST_FACTOR + 1):
        step = factor * dim.multiple_of
        if len(good) > 1 and good == {size for size in {*good, *failing} if size % step == 0}:
            return f"only multiples of {step} work: set `multiple_of` of {name!r} to {step}, or fix the size"
    return "narrow the range, fix the size, or write the branch with torch.cond"
