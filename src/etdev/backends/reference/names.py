"""The operators that the reference backend has kernels for, and those that a config names in vain; without torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from etdev.backends.base import OptionIssue
from etdev.backends.kernels import listed_operators
from etdev.errors import MissingRequirementError
from etdev.program.inplace import nearest_operators, parse_operator

ONLY_OPTIMIZED = frozenset({"aten::linear.out"})
"""Kernels that the optimized library has and the portable one has not."""


def kernels() -> frozenset[str]:
    """Kernels that the ops of a nested program may use. Raises as :func:`~etdev.backends.kernels.listed_operators`."""
    return listed_operators("portable") | ONLY_OPTIMIZED


def unknown_names(ops: Sequence[str]) -> Iterable[OptionIssue]:
    """Those of ``ops`` that no kernel is called, whatever the overload; without executorch nothing is known of them.

    An overload may be called otherwise in a graph than among the kernels: torch knows, when the graph is there.
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
    """What to say of the name at this place of ``ops``."""
    near = nearest_operators(text, known)
    return OptionIssue(
        ("ops", number),
        f"the backend 'reference' has no kernel for the operator {text!r}",
        f"did you mean {near[0]!r}?" if near else "it takes operators of ExecuTorch's portable library",
    )


def _family(text: str) -> str:
    """``aten::add`` of ``aten.add.Tensor``, ``aten::add_.Tensor`` and ``add``."""
    namespace, *rest = text.removeprefix("torch.ops.").replace("::", ".").split(".")
    return f"{namespace}::{rest[0].removesuffix('_')}" if rest else f"aten::{namespace.removesuffix('_')}"
