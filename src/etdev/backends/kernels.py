"""Operators of ExecuTorch's kernel libraries, from the lists in the executorch wheel."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path

from etdev.errors import MissingRequirementError

_LISTED_OP = re.compile(r"^- (?:op|func): (?P<name>[\w:.]+)", re.MULTILINE)


@cache
def listed_operators(library: str) -> frozenset[str]:
    """Return the operators for which a library has kernels, such as ``aten::add.out``.

    ``library`` must be ``portable``, ``quantized`` or ``cortex-m``, because the wheel has no list for ``optimized``.
    Raises :class:`~etdev.errors.MissingRequirementError` if executorch is not installed.
    """
    if library == "portable":
        return _listed("portable/functions.yaml", "portable/custom_ops.yaml", "portable/et_copy_ops.yaml")
    if library == "cortex-m":
        return _listed("../backends/cortex_m/ops/operators.yaml")
    return _listed("quantized/quantized.yaml")


def _listed(*names: str) -> frozenset[str]:
    spec = importlib.util.find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        raise MissingRequirementError("the lists of kernels are part of the executorch package, which is not installed")
    kernels = Path(next(iter(spec.submodule_search_locations))) / "kernels"
    found = [match["name"] for name in names for match in _LISTED_OP.finditer((kernels / name).read_text())]
    return frozenset(name if "::" in name else f"aten::{name}" for name in found)
