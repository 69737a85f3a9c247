"""Traffic of a method: bytes that one call reads from planned memory and writes to it.

Each instruction that reads or writes a tensor counts all bytes of the tensor at its largest size. An instruction that
reads and writes a tensor counts these bytes twice. The caller's writes of inputs and reads of outputs count, too. The
body of a loop counts once for each iteration if the number of iterations is constant, otherwise once.
"""

from __future__ import annotations

from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.analysis.flow import FlowGraph
from etdev.program.analysis.storage import MethodMemory

_COUNT = "executorch_prim::add.Scalar"
_COMPARE = "executorch_prim::eq.Scalar"
_SIZE = "aten::sym_size.int"


def storage_traffic(plan: m.ExecutionPlan, memory: MethodMemory) -> list[int]:
    """Return the number of bytes that one call reads and writes in each storage of a method."""
    times = run_counts(plan, memory.reaching.flow)
    found = [0] * len(memory.storages)
    for use in memory.reaching.uses:
        found[memory.of[use.place]] += _nbytes(plan, use.value) * _times(times, use.position)
    for write in memory.reaching.writes:
        found[memory.of[write.place]] += _nbytes(plan, write.place) * _times(times, write.position)
    return found


def run_counts(plan: m.ExecutionPlan, flow: FlowGraph) -> list[int]:
    """Return, for the instruction at each position, how often it runs in one call.

    An instruction outside of loops, or in loops of unknown length, counts as one run. Branches count as if each of them
    ran.
    """
    counts = [1] * len(flow.instructions)
    for number, block in enumerate(flow.blocks):
        for head in block.successors:
            if head <= number:
                start, end = flow.blocks[head].start, block.end
                rounds = _iterations(plan, flow.instructions[start:end], flow)
                counts[start:end] = [count * rounds for count in counts[start:end]]
    return counts


def _iterations(plan: m.ExecutionPlan, body: tuple[m.Instruction, ...], flow: FlowGraph) -> int:
    """Return the number of iterations of a loop if the number is constant and known, otherwise 1.

    The loop must have the form that ExecuTorch emits. It counts from 0 in steps of 1, until the counter equals the
    limit.
    """
    last = body[-1]
    if not isinstance(last, m.JumpFalseCall):
        return 1
    for call in body:
        if isinstance(call, m.KernelCall) and call.args[-1] == last.cond_value_index:
            counter, limit = call.args[:2]
            if _name(plan, call) == _COMPARE and _steps_by_one(plan, body, counter):
                return max(1, _constant(plan, limit, flow) or 1)
    return 1


def _steps_by_one(plan: m.ExecutionPlan, body: tuple[m.Instruction, ...], counter: int) -> bool:
    start = plan.values[counter]
    steps = [
        call
        for call in body
        if isinstance(call, m.KernelCall) and call.args[-1] == counter and _name(plan, call) == _COUNT
    ]
    if len(steps) != 1 or not isinstance(start, m.Int) or start.int_val:
        return False
    one, other = steps[0].args[:2]
    step = plan.values[other if one == counter else one]
    return counter in (one, other) and isinstance(step, m.Int) and step.int_val == 1


def _constant(plan: m.ExecutionPlan, value: int, flow: FlowGraph) -> int | None:
    """Return the constant number in a value, or None if it may change. For a size of a tensor, return the maximum."""
    found = plan.values[value]
    setters = [call for call in flow.instructions if isinstance(call, m.KernelCall) and call.args[-1] == value]
    moved = any(isinstance(call, m.MoveCall) and call.move_to == value for call in flow.instructions)
    if not isinstance(found, m.Int) or moved or len(setters) > 1 or value in plan.inputs:
        return None
    if not setters:
        return found.int_val
    if _name(plan, setters[0]) != _SIZE:
        return None
    tensor, dim = (plan.values[index] for index in setters[0].args[:2])
    if not isinstance(tensor, m.Tensor) or not isinstance(dim, m.Int):
        return None
    return tensor.sizes[dim.int_val] if -len(tensor.sizes) <= dim.int_val < len(tensor.sizes) else None


def _name(plan: m.ExecutionPlan, call: m.KernelCall) -> str:
    return operator_name(plan.operators[call.op_index])


def _times(times: list[int], position: int) -> int:
    """Return how often the instruction at a position runs; 1 for the positions at which the caller accesses memory."""
    return times[position] if 0 <= position < len(times) else 1


def _nbytes(plan: m.ExecutionPlan, value: int) -> int:
    tensor = plan.values[value]
    return tensor.nbytes if isinstance(tensor, m.Tensor) else 0
