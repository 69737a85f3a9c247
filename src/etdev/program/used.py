"""Values that a method's instructions, inputs and outputs use."""

from __future__ import annotations

from etdev.program import model as m

_LISTS = m.IntList, m.TensorList, m.OptionalTensorList
"""Types of values that refer to other values."""


def used_values(plan: m.ExecutionPlan) -> list[int]:
    """Return the used value indices, in ascending order.

    A value is used if an instruction, an input, an output or another used value refers to it. A tensor with an initial
    value is also used. The runtime writes the initial value even if no instruction reads the tensor.
    """
    used = {*plan.inputs, *plan.outputs}
    for chain in plan.chains:
        used.update(chain.inputs, chain.outputs)
    for found in plan.instructions:
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
        if isinstance(found_value, _LISTS):
            new = {item for item in found_value.items if item >= 0} - used
            used |= new
            waiting.extend(new)
    return sorted(used)
