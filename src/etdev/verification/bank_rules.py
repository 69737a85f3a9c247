"""Rules of the check *placement* for memory banks: the file must match the sizes and pins in the config.

The rules read only the file and the config. They do not use the link's result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from etdev.config.tables.memory import Memory, Pin
from etdev.errors import LinkError
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs, tensors
from etdev.program.analysis.storage import method_memory
from etdev.program.delegates import delegate_inputs, unsplit_call


def bank_problems(
    program: Program, memory: Memory, inputs: Mapping[str, Sequence[str]], known: Mapping[str, DelegateInputs]
) -> Iterator[str]:
    """Find banks whose content is too large, and tensors that are not in the bank that a pin requires.

    ``memory`` is the config's table. ``inputs`` maps a method to the names of its inputs, and ``known`` maps it to the
    number of inputs of each delegate call. For methods that are not in ``known``, these numbers are derived from the
    file. Without banks in the config, there are no problems.
    """
    if not memory.banks:
        return
    yield from _size_problems(program, memory)
    names = memory.bank_names
    for plan in program.execution_plan:
        pinned = _pinned(plan, memory.pin, inputs.get(plan.name, ()))
        split = known.get(plan.name) or delegate_inputs(program, plan)
        for value, bank, what in chain(pinned, _pinned_state(plan, memory.pin, split)):
            tensor = plan.values[value]
            place = tensor.allocation_info if isinstance(tensor, m.Tensor) and tensor.device.is_host else None
            if place is not None and names.get(place.memory_id) != bank:
                found = names.get(place.memory_id)
                where = f"bank {found!r}" if found else f"buffer {place.memory_id}"
                yield (
                    f"method {plan.name!r}, value {value}: `memory.pin` requires {what} in bank {bank!r}, "
                    f"but the file has it in {where}"
                )


def unknown_state(program: Program, memory: Memory, known: Mapping[str, DelegateInputs]) -> str | None:
    """Return the reason why a pin of all state cannot be checked; None if it can, or if there is no such pin.

    ``known`` has the same meaning as in :func:`bank_problems`.
    """
    if not memory.banks or not isinstance(memory.pin.state, str):
        return None
    for plan in program.execution_plan:
        reason = unsplit_call(plan, known.get(plan.name) or delegate_inputs(program, plan))
        if reason is not None:
            return f"method {plan.name!r}: `memory.pin` requires all state in bank {memory.pin.state!r}, but {reason}"
    return None


def _size_problems(program: Program, memory: Memory) -> Iterator[str]:
    """Find buffers that are larger than their banks, and buffers on the host that belong to no bank."""
    banks = {bank.id: bank for bank in memory.banks}
    for plan in program.execution_plan:
        for index, size in enumerate(plan.non_const_buffer_sizes):
            if not index or not size or not plan.buffer_device(index).is_host:
                continue
            if index not in banks:
                yield f"method {plan.name!r}: buffer {index} on the host belongs to no bank of `memory.banks`"
            elif size > banks[index].size:
                yield (
                    f"method {plan.name!r}: buffer {index} has {size:,} bytes, but bank {banks[index].name!r} has only "
                    f"{banks[index].size:,}"
                )


def _pinned(plan: m.ExecutionPlan, pin: Pin, inputs: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yield each tensor for which a pin requires a bank, as ``(value, bank, description)``."""
    for position, name in enumerate(inputs):
        bank = pin.inputs if isinstance(pin.inputs, str) else pin.inputs.get(name)
        if bank:
            yield from _each(plan, plan.inputs[position : position + 1], bank, f"input {name!r}")
    for position, value in enumerate(plan.outputs):
        bank = pin.outputs if isinstance(pin.outputs, str) else pin.outputs.get(str(position))
        if bank:
            yield from _each(plan, (value,), bank, f"output {position}")
    for call in plan.instructions:
        if isinstance(call, m.DelegateCall):
            backend = plan.delegates[call.delegate_index].id
            if backend in pin.delegates:
                yield from _each(plan, call.args, pin.delegates[backend], f"arguments of {backend}")


def _pinned_state(plan: m.ExecutionPlan, pin: Pin, inputs: DelegateInputs) -> Iterator[tuple[int, str, str]]:
    if not pin.state:
        return
    if isinstance(pin.state, str):
        if unsplit_call(plan, inputs) is not None:
            return  # The state of this method is unknown; see `unknown_state`.
        try:
            memory = method_memory(plan, inputs)
        except LinkError:
            return  # The check `plan` fails for this method.
        for storage in memory.storages:
            if storage.persistent:
                yield from _each(plan, storage.values, pin.state, "all state")
        return
    for value, tensor in plan.tensors():
        if tensor.name in pin.state:
            yield value, pin.state[tensor.name], f"state {tensor.name!r}"


def _each(plan: m.ExecutionPlan, values: Iterable[int], bank: str, what: str) -> Iterator[tuple[int, str, str]]:
    for value in tensors(plan, values):
        yield value, bank, what
