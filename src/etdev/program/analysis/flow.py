"""Control flow of a method: basic blocks and their successors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from etdev.program import model as m
from etdev.program.analysis.effects import OUT_NAMESPACES


@dataclass(frozen=True, slots=True)
class Block:
    """A basic block: instructions that always run one after the other."""

    start: int
    """Position of the first instruction."""
    end: int
    """Position after the last instruction."""
    successors: tuple[int, ...]
    """Indices of the successor blocks. An index equal to the number of blocks is the end of the method."""


@dataclass(frozen=True)
class FlowGraph:
    """All instructions of a method in the order of the file, and the basic blocks that they form.

    Positions of instructions are counted across all chains. The blocks include unreachable blocks.
    """

    instructions: tuple[m.Instruction, ...]
    blocks: tuple[Block, ...]

    @property
    def exit(self) -> int:
        """Index that represents the end of the method."""
        return len(self.blocks)

    def order(self) -> list[int]:
        """Return the reachable blocks, sorted so that each block comes after its predecessors.

        The head of a loop is an exception: it comes before the block that jumps back to it.
        """
        return list(self._order)

    @cached_property
    def _order(self) -> tuple[int, ...]:
        seen: set[int] = set()
        order: list[int] = []
        stack = [(0, iter(self.blocks[0].successors))] if self.blocks else []
        seen.update(block for block, _ in stack)
        while stack:
            block, successors = stack[-1]
            following = next((item for item in successors if item != self.exit and item not in seen), None)
            if following is None:
                order.append(block)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(self.blocks[following].successors)))
        return tuple(reversed(order))

    def heads(self) -> frozenset[int]:
        """Return the blocks with a predecessor that comes later in :meth:`order`. Every loop has such a block."""
        rank = {block: number for number, block in enumerate(self.order())}
        return frozenset(
            successor
            for block, number in rank.items()
            for successor in self.blocks[block].successors
            if successor != self.exit and rank[successor] <= number
        )

    def cycles(self) -> tuple[int, ...]:
        """Return, for the instruction at each position, the number of its cycle.

        Two instructions are in one cycle if each may run after the other. An unreachable instruction, or an instruction
        outside of all loops, shares its number only with the instructions of its block. Source: Kosaraju's algorithm.
        """
        reached = self.order()
        before: dict[int, list[int]] = {number: [] for number in reached}
        for number in reached:
            for successor in self.blocks[number].successors:
                if successor != self.exit:
                    before[successor].append(number)
        of = {}
        for first in reached:
            waiting = [first]
            while waiting:
                number = waiting.pop()
                if number not in of:
                    of[number] = first
                    waiting += before[number]
        return tuple(
            of.get(number, number) for number, block in enumerate(self.blocks) for _ in range(block.start, block.end)
        )

    def loops(self) -> frozenset[int]:
        """Return the numbers from :meth:`cycles` whose instructions may run several times in a call."""
        cycles = self.cycles()
        return frozenset(
            cycles[block.start]
            for block in self.blocks
            for successor in block.successors
            if successor != self.exit and cycles[self.blocks[successor].start] == cycles[block.start]
        )


def flow_graph(plan: m.ExecutionPlan) -> FlowGraph:
    """Return the control flow of a method.

    A jump on a constant condition has one successor. Such a jump ends a block only if it skips instructions.
    """
    instructions = plan.instructions
    jumps = any(isinstance(call, m.JumpFalseCall) for call in instructions)
    fixed = _fixed_bools(plan, instructions) if jumps else {}
    targets: dict[int, tuple[int, ...]] = {}
    base = 0
    for chain in plan.chains:
        for number, call in enumerate(chain.instructions):
            if isinstance(call, m.JumpFalseCall):
                follow, jump = base + number + 1, base + call.destination_instruction
                taken = fixed.get(call.cond_value_index)
                ways = {None: (follow, jump), True: (follow,), False: (jump,)}[taken]
                if set(ways) != {follow}:
                    targets[base + number] = tuple(dict.fromkeys(ways))
        base += len(chain.instructions)
    return FlowGraph(instructions, _blocks(len(instructions), targets))


def _blocks(count: int, targets: dict[int, tuple[int, ...]]) -> tuple[Block, ...]:
    heads = {0, *(jump + 1 for jump in targets), *(target for ways in targets.values() for target in ways)}
    starts = sorted(head for head in heads if head < count)
    number = {start: index for index, start in enumerate(starts)}
    number[count] = len(starts)
    blocks = []
    for start, end in zip(starts, [*starts[1:], count], strict=False):
        blocks.append(Block(start, end, tuple(number[way] for way in targets.get(end - 1, (end,)))))
    return tuple(blocks)


def _fixed_bools(plan: m.ExecutionPlan, instructions: tuple[m.Instruction, ...]) -> dict[int, bool]:
    """Map value indices to bools that no input or instruction changes. Jumps on these bools are unconditional."""
    written = set(plan.inputs)
    for call in instructions:
        match call:
            case m.MoveCall():
                written.add(call.move_to)
            case m.DelegateCall():
                written.update(call.args)
            case m.KernelCall():
                # A kernel that returns a number has it as its last argument. An unknown kernel may write any argument.
                namespace = plan.operators[call.op_index].name.partition("::")[0]
                known = namespace in OUT_NAMESPACES or namespace == "executorch_prim"
                written.update(call.args[-1:] if known else call.args)
            case _:
                pass
    return {
        index: value.bool_val
        for index, value in enumerate(plan.values)
        if isinstance(value, m.Bool) and index not in written
    }
