"""Order of instructions: instructions that may run in another order after the link, and effects that keep their order.

Inside a straight region, the two programs may run corresponding instructions in different orders. The validator then
first runs the instruction of the program before the link. It keeps the operands and results until it runs the
counterpart.

The validator compares contents of memory and values, whatever the order is. Some effects are not visible in these
contents. Instructions with the following effects must keep their order:

* effects outside of the arguments: random numbers, and the effects of unknown operators and delegates;
* a delegate's own state: calls of one delegate keep their order;
* memory without an address in the file: the caller may lend the same memory twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Hashable

from etdev.program import model as m
from etdev.validator.facts import CONSTANT, Code, Facts
from etdev.validator.semantics import operators as ops
from etdev.validator.semantics.operators import Act


def region_starts(facts: Facts) -> list[int]:
    """Return the first positions of the straight regions of a method, in ascending order.

    Each jump and each move is a region of its own. All other regions have no jumps and no moves. A jump can only lead
    to the start of a region. A region is inside one chain.
    """
    starts = {0, *facts.starts}
    for code in facts.code:
        if code.act in (Act.JUMP, Act.MOVE):
            starts |= {code.position, code.position + 1}
        if isinstance(code.call, m.JumpFalseCall):
            chain = facts.starts[bisect_right(facts.starts, code.position, hi=len(facts.starts) - 1) - 1]
            starts.add(chain + code.call.destination_instruction)
    return sorted(starts)


def effects(facts: Facts, code: Code) -> dict[Hashable, bool]:
    """Return the effects of an instruction that a comparison of contents would miss.

    The result maps an effect to True for a write, and to False for a read. Two instructions must keep their order if
    they have a common effect, and at least one of them writes.
    """
    found: dict[Hashable, bool] = {}
    if code.act is Act.DELEGATE and code.name in ops.STATELESS:
        assert isinstance(code.call, m.DelegateCall)
        found["delegate", code.call.delegate_index] = True
    elif not code.pure or code.act is Act.ADD_ROW:
        found["unknown"] = True
    read = any(_is_outside(facts, value) for value in facts.list_tensors(value for value in code.reads if value >= 0))
    written = any(_is_outside(facts, value) for value in (*code.writes, *code.updates))
    if code.act not in (Act.SIZE, Act.VIEW) and (read or written):
        found["outside"] = written
    return found


def _is_outside(facts: Facts, value: int) -> bool:
    """Return whether a tensor may use memory without an address in the file."""
    tensor = facts.tensors[value]
    if value in facts.roving:
        return True
    if not tensor.nbytes or (tensor.place is not None and tensor.place[0] == CONSTANT):
        return False
    return tensor.place is None or tensor.place[0] < 0


def conflict(facts: Facts, code: Code, others: Collection[Code]) -> Code | None:
    """Return an instruction of ``others`` that must keep its order relative to ``code``; None if there is none."""
    mine = effects(facts, code)
    for other in others if mine else ():
        theirs = effects(facts, other)
        if any(thing in theirs and (writes or theirs[thing]) for thing, writes in mine.items()):
            return other
    return None
