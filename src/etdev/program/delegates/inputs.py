"""Number of inputs of each delegate call. The instructions of a ``.pte`` do not state it."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from etdev.devices import TARGET_DEVICE
from etdev.errors import EtdevError
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs, tensors
from etdev.program.analysis.flow import flow_graph
from etdev.program.delegates.calls import REFERENCE, XNNPACK, arguments_of
from etdev.program.delegates.xnnpack_graph import xnnpack_graph
from etdev.program.reader import parse


def delegate_inputs(program: m.Program, plan: m.ExecutionPlan) -> DelegateInputs:
    """Map the position of each delegate call to its number of inputs. Leave out calls for which the file is ambiguous.

    The blobs of XNNPACK and of the reference backend state the number. For other backends, it follows from the
    instructions before the call. A call's outputs are its last arguments, and no earlier instruction uses them.
    Emission numbers them at the call. So their value indices are higher than those of the method's inputs, and higher
    than all value indices that earlier instructions use. State may also be unused before the call, but its index is
    lower than the index of any input. A view of fixed sizes may be new at the call, too, because ExecuTorch emits no
    instruction for it. But it has the address of an earlier tensor.

    The result lacks a call in these cases:

    - The call has another number of arguments than its blob states.
    - By these rules, the call has no output.
    - By these rules, one of the call's inputs could also be an output, or one of its outputs a view.
    - The method has no inputs, and no earlier instruction uses a tensor.
    - The call is on a device and has the same tensor twice, so its delegate may write an output over an input.
    """
    found: dict[int, int] = {}
    stated = _stated_ends(program, plan)
    seen, graph = _Seen(plan), flow_graph(plan)
    for block in graph.blocks:
        for position in range(block.start, block.end):
            call = graph.instructions[position]
            if isinstance(call, m.DelegateCall):
                ends = stated[call.delegate_index]
                if ends is None:
                    inputs = seen.inputs_of(call, block.start)
                else:
                    inputs = ends[0] if sum(ends) == len(call.args) else None
                if inputs is not None:
                    found[position] = inputs
            seen.add(position, call)
    return found


def _stated_ends(program: m.Program, plan: m.ExecutionPlan) -> list[tuple[int, int] | None]:
    """Return the numbers of inputs and outputs that each delegate's blob states, or None if it states none."""
    read: dict[tuple[str, m.BackendDelegateDataReference], tuple[int, int] | None] = {}
    for delegate in plan.delegates:
        if (delegate.id, delegate.processed) not in read:
            read[delegate.id, delegate.processed] = _ends(program, delegate)
    return [read[delegate.id, delegate.processed] for delegate in plan.delegates]


def _ends(program: m.Program, delegate: m.BackendDelegate) -> tuple[int, int] | None:
    if delegate.id == XNNPACK:
        graph = xnnpack_graph(program.delegate_data(delegate))
        return None if graph is None else (len(graph.input_ids), len(graph.output_ids))
    if delegate.id == REFERENCE:
        with suppress(EtdevError):
            nested = parse(program.delegate_data(delegate)).method("forward")
            return len(nested.inputs), len(nested.outputs)
    return None


class _Seen:
    """The tensors that the instructions before a call use."""

    def __init__(self, plan: m.ExecutionPlan) -> None:
        self._plan = plan
        self._last_use = dict.fromkeys(tensors(plan, plan.inputs), -1)
        """Maps each tensor to the position of the last instruction that uses it, or to -1."""
        self._highest = max(plan.inputs, default=-1)
        self._at: dict[m.AllocationDetails, list[int]] = defaultdict(list)
        """Maps each address to the tensors at that address."""
        for index, tensor in plan.tensors():
            if tensor.allocation_info is not None:
                self._at[tensor.allocation_info].append(index)
        self._devices = {index for index, delegate in enumerate(plan.delegates) if not _is_on_host(delegate)}

    def add(self, position: int, call: m.Instruction) -> None:
        """Add the tensors of an instruction."""
        values = tensors(self._plan, arguments_of(call))
        self._last_use.update(dict.fromkeys(values, position))
        self._highest = max((self._highest, *values))

    def inputs_of(self, call: m.DelegateCall, block: int) -> int | None:
        """Return the number of inputs of the next instruction, or None if it is ambiguous.

        ``block`` is the first position of the instruction's basic block.
        """
        used = call.args
        inputs = len(used)
        while inputs and self._is_new(used[inputs - 1]):
            inputs -= 1
        doubtful = any(map(self._is_new, used[:inputs]))
        doubtful |= any(self._may_be_view(value, block) for value in used[inputs:-1])
        if call.delegate_index in self._devices:
            doubtful |= len(set(used)) < len(used)
        return inputs if inputs < len(used) and not doubtful and self._highest >= 0 else None

    def _is_new(self, value: int) -> bool:
        tensor = self._plan.values[value]
        return (
            isinstance(tensor, m.Tensor)
            and not tensor.is_constant
            and value not in self._last_use
            and value > self._highest
        )

    def _may_be_view(self, value: int, block: int) -> bool:
        """Return whether a new tensor may be a view of an earlier tensor.

        It is not a view if another tensor has used the bytes since. Uses outside of the block do not count, because
        those instructions may not have run.
        """
        tensor = self._plan.tensor(value)
        if tensor.allocation_info is None or not tensor.is_static:
            return False
        bases = [
            index
            for index in self._at[tensor.allocation_info]
            if index < value and _may_be_base(self._plan.tensor(index), tensor)
        ]
        if not bases:
            return False
        since = max(block - 1, *(self._last_use.get(index, -1) for index in bases))
        return not any(
            last > since and _share(tensor, self._plan.tensor(index)) for index, last in self._last_use.items()
        )


def _share(one: m.Tensor, other: m.Tensor) -> bool:
    """Return whether the planned bytes of two tensors overlap."""
    mine, its = one.allocation_info, other.allocation_info
    if mine is None or its is None or mine.memory_id != its.memory_id:
        return False
    return mine.memory_offset < its.memory_offset + other.nbytes and its.memory_offset < mine.memory_offset + one.nbytes


def _may_be_base(base: m.Tensor, view: m.Tensor) -> bool:
    """Return whether a tensor at the address of another one has its element type, and its size if that is fixed."""
    return base.scalar_type is view.scalar_type and (base.nbytes == view.nbytes or not base.is_static)


def _is_on_host(delegate: m.BackendDelegate) -> bool:
    return all(spec.key != TARGET_DEVICE for spec in delegate.compile_specs)


def unsplit_call(plan: m.ExecutionPlan, inputs: DelegateInputs) -> str | None:
    """Return the reason why a method's data flow is unknown, or None if the data flow is known.

    ``inputs`` maps the position of a delegate call to its number of inputs. If a call is missing, the data flow is
    unknown, because the call's inputs and outputs are unknown.
    """
    for position, call in enumerate(flow_graph(plan).instructions):
        if isinstance(call, m.DelegateCall) and position not in inputs:
            name = plan.delegates[call.delegate_index].id
            return f"the file does not say which arguments of instruction {position} ({name}) are its outputs"
    return None
