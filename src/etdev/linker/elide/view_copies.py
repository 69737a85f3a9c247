"""Copies whose output has all bytes of their input, in the same order."""

from __future__ import annotations

from etdev.linker.elide.runs import CLONES, IDENTITIES, Numbers, runs
from etdev.linker.merged import Refused
from etdev.program import model as m
from etdev.program.analysis.effects import outputs

VIEW_COPY = "aten::view_copy.out"
_EXPAND_COPY = "aten::expand_copy.out"
_SAME_SHAPE = frozenset({"aten::alias_copy.out", "aten::detach_copy.out", "aten::lift_fresh_copy.out"})
_NEW_SHAPE = frozenset(
    {VIEW_COPY, "aten::unsqueeze_copy.out", "aten::squeeze_copy.dim_out", "aten::squeeze_copy.dims_out"}
)
KEEPS_SHAPE = _SAME_SHAPE | CLONES.keys()
"""Copies whose output always has the shape of their input."""


def is_view(plan: m.ExecutionPlan, call: m.KernelCall, name: str, numbers: Numbers) -> bool:
    """Return whether the output of a call has all bytes of its input, in the same order."""
    if name in _SAME_SHAPE | _NEW_SHAPE:
        return _has_form(plan, call, name)
    if name in CLONES and _is_clone(plan, call):
        return True
    try:
        return name in IDENTITIES and len(runs(plan, call, name, numbers)) == 1
    except Refused:
        return False


def may_be_view(plan: m.ExecutionPlan, call: m.KernelCall, name: str) -> bool:
    """Return whether an ``expand_copy`` may keep the shape: its sizes are dynamic, and at most those of its input."""
    if name != _EXPAND_COPY or len(outputs(plan, call.args)) != 1:
        return False
    source, out = plan.values[call.args[0]], plan.values[call.args[-1]]
    if not isinstance(source, m.Tensor) or not isinstance(out, m.Tensor):
        return False
    return source.sizes == out.sizes and not (source.is_static and out.is_static)


def _is_clone(plan: m.ExecutionPlan, call: m.KernelCall) -> bool:
    """Return whether a ``clone`` or ``to`` keeps both the element type and the dimension order."""
    source_tensor, out = plan.values[call.args[0]], plan.values[call.args[-1]]
    if not isinstance(source_tensor, m.Tensor) or not isinstance(out, m.Tensor) or call.args[-2] != call.args[-1]:
        return False
    return (source_tensor.scalar_type, source_tensor.dim_order) == (out.scalar_type, out.dim_order)


def _has_form(plan: m.ExecutionPlan, call: m.KernelCall, name: str) -> bool:
    """Return whether a call has the arguments that its operator requires. A file may contain wrong arguments."""
    kinds = [type(plan.values[index]) for index in call.args]
    sizes = [m.IntList] if name == VIEW_COPY else kinds[1:-2]
    return kinds == [m.Tensor, *sizes, m.Tensor, m.Tensor] and call.args[-2] == call.args[-1]
