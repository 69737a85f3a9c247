"""Which values of a method matter."""

from __future__ import annotations

from etdev.program import model as m


def used_values(plan: m.ExecutionPlan) -> list[int]:
    """Value indices, in order: all that instructions, inputs, outputs or other such values refer to.

    Tensors with an initial value are among them: the runtime writes it, whether anybody reads it or not.
    """
    used = {*plan.inputs, *plan.outputs}
    for chain in plan.chains:
        used.update(chain.inputs, chain.outputs)
    for found in (call for chain in plan.chains for call in chain.instructions):
        match found:
            case m.KernelCall() | m.DelegateCall():
                used.update(found.args)
            case m.MoveCall():
                used.update((found.move_from, found.move_to))
            case m.JumpFalseCall():
                used.add(found.cond_value_index)
            case m.FreeCall():
                used.add(found.value_index)
    used.update(index for index, tensor in plan.tensors() if tensor.has_initial_value)
    waiting = list(used)
    while waiting:
        found_value = plan.values[waiting.pop()]
        if isinstance(found_value, m.IntList | m.TensorList | m.OptionalTensorList):
            new = {item for item in found_value.items if item >= 0} - used
            used |= new
            waiting.extend(new)
    return sorted(used)
