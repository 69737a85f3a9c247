"""Operators that the reference backend has kernels for, and checks of the names in a config; without torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from etdev.backends.base import OptionIssue
from etdev.backends.kernels import listed_operators
from etdev.errors import MissingRequirementError
from etdev.program.analysis.inplace import nearest_operators, parse_operator

ONLY_OPTIMIZED = frozenset({"aten::linear.out"})
"""Kernels of the optimized library that the portable one does not have."""


def kernels() -> frozenset[str]:
    """Return the kernels for ops of a nested program.

    Raises as :func:`~etdev.backends.kernels.listed_operators` does.
    """
    return listed_operators("portable") | ONLY_OPTIMIZED


def unknown_names(ops: Sequence[str]) -> Iterable[OptionIssue]:
    """Yield issues of names in ``ops`` that have no kernel in any overload. Yield none without executorch.

    An overload's name may differ between graphs and kernels. It is resolved with torch when the graph exists.
    """
    try:
        known = kernels()
    except MissingRequirementError:
        return
    families = {name.partition(".")[0] for name in known}
    for number, text in enumerate(ops):
        if not parse_operator(text, known) and _family(text) not in families:
            yield unknown_name(text, number, known)


def unknown_name(text: str, number: int, known: Iterable[str]) -> OptionIssue:
    """Return the issue of the name at this position of ``ops``."""
    near = nearest_operators(text, known)
    return OptionIssue(
        ("ops", number),
        f"the backend 'reference' has no kernel for the operator {text!r}",
        f"did you mean {near[0]!r}?" if near else "it takes operators of ExecuTorch's portable library",
    )


def _family(text: str) -> str:
    """Return ``aten::add`` for ``aten.add.Tensor``, ``aten::add_.Tensor`` and ``add``."""
    namespace, *rest = text.removeprefix("torch.ops.").replace("::", ".").split(".")
    return f"{namespace}::{rest[0].removesuffix('_')}" if rest else f"aten::{namespace.removesuffix('_')}"
