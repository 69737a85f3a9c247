"""Inputs and outputs whose memory the caller provides."""

from __future__ import annotations

from dataclasses import replace

from etdev.errors import LinkError
from etdev.linker.edit import placed_at
from etdev.linker.options import CallerOwned, LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory


class CallerOwnedError(LinkError):
    """Error for an input or output whose memory the caller cannot provide."""

    def __init__(self, message: str, method: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.method = method


def leave_to_caller(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Remove the planned memory of inputs and outputs that the caller owns.

    Raises :class:`CallerOwnedError` for an input or output that cannot be in the caller's memory, such as state.
    """
    plan, owned = method.plan, options.caller.get(method.plan.name, CallerOwned())
    values = list(plan.values)
    for kind, indices, positions in (
        ("input", plan.inputs, owned.inputs),
        ("output", plan.outputs, owned.outputs),
    ):
        for position in sorted(positions):
            where = f"{kind} {position} of method {plan.name!r}"
            if not 0 <= position < len(indices):
                hint = f"choose one of the method's {len(indices)} {kind}s"
                raise CallerOwnedError(f"there is no {where}", plan.name, hint)
            value = indices[position]
            reason = _why_not(plan, method.memory, value, kind)
            if reason is not None:
                hint = f'set this {kind} to "host"'
                raise CallerOwnedError(f"{where} cannot be in the caller's memory: {reason}", plan.name, hint)
            values[value] = placed_at(values[value], None)
    return Changed(replace(method, plan=replace(plan, values=tuple(values))))


def _why_not(plan: m.ExecutionPlan, memory: MethodMemory, value: int, kind: str) -> str | None:
    tensor = plan.values[value]
    if not isinstance(tensor, m.Tensor):
        return f"it is not a tensor but a value of type {type(tensor).__name__}"
    if tensor.is_constant:
        return "it is a constant of the program"
    if (plan.inputs + plan.outputs).count(value) > 1:
        return "it occurs more than once among the inputs and outputs"
    if value in memory.reaching.references:
        return "it may be one of several tensors, depending on the branch taken"
    storage = memory.storages[memory.of[value]] if value in memory.of else None
    if storage is not None and storage.persistent:
        return "it is state, which is kept between calls"
    if storage is not None and len(storage.values) > 1:
        return f"it shares its bytes with other values ({', '.join(map(str, storage.values))})"
    if kind == "output" and storage is not None and not storage.writes:
        return "no instruction writes it"
    return None
