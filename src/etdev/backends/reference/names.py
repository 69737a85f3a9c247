"""Operators for which the reference backend has kernels, and a check of operator names in a config. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from etdev.backends.base import OptionIssue
from etdev.backends.kernels import listed_operators
from etdev.errors import MissingRequirementError
from etdev.program.analysis.inplace import nearest_operators, parse_operator

ONLY_OPTIMIZED = frozenset({"aten::linear.out"})
"""Kernels that the optimized library has and the portable library lacks."""


def kernels() -> frozenset[str]:
    """Return the names of the kernels that a nested program can call.

    Raises the same errors as :func:`~etdev.backends.kernels.listed_operators`.
    """
    return listed_operators("portable") | ONLY_OPTIMIZED


def unknown_names(ops: Sequence[str]) -> Iterable[OptionIssue]:
    """Yield an issue for each name in ``ops`` if no overload of this operator has a kernel.

    Without executorch, yield nothing. An overload may have one name in a graph and another name as a kernel. Therefore,
    this function compares names without overloads. :func:`~etdev.backends.reference.choice.wanted_kernels` checks the
    overloads with torch.
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
    """Return the issue for the name ``text``, which is entry number ``number`` of ``ops``."""
    near = nearest_operators(text, known)
    return OptionIssue(
        ("ops", number),
        f"the backend 'reference' has no kernel for the operator {text!r}",
        f"did you mean {near[0]!r}?" if near else "use operators of ExecuTorch's portable library",
    )


def _family(text: str) -> str:
    """Return an operator's name without its overload, such as ``aten::add`` for ``aten.add.Tensor`` and ``add_``."""
    namespace, *rest = text.removeprefix("torch.ops.").replace("::", ".").split(".")
    return f"{namespace}::{rest[0].removesuffix('_')}" if rest else f"aten::{namespace.removesuffix('_')}"
