"""Reads of freed tensors. A free resets the pointer of one value; the bytes keep their content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.program import model as m
from etdev.validator.facts import UNLIMITED, Facts
from etdev.validator.report import Violation


def freed_reads(facts: tuple[Facts, Facts], moved: Mapping[int, int]) -> Iterator[Violation]:
    """Yield a violation for each read of a freed tensor, if only the linked program has that read."""
    found = _reads_after_free(facts[1])
    known = {moved.get(position) for position in (_reads_after_free(facts[0]) if found else ())}
    for position, value in found.items():
        if position not in known:
            name = facts[1].code[position].name
            message = f"instruction {position} ({name}) reads value {value}, which was freed"
            yield Violation("content", facts[1].plan.name, message, after=position, operator=name, value=value)


def _reads_after_free(facts: Facts) -> dict[int, int]:
    """Map instructions to the freed tensors that they may read.

    Only tensors in planned memory count, because a write to any other tensor assigns new memory to the tensor.
    """
    code = facts.code
    calls = {item.position: item.call.value_index for item in code if isinstance(item.call, m.FreeCall)}
    planned = sorted({value for value in calls.values() if _is_planned(facts, value)})
    bits = {value: 1 << number for number, value in enumerate(planned)}
    if not bits:
        return {}
    before = [0] * (len(code) + 1)
    waiting = [0]
    seen = {0}
    while waiting:
        position = waiting.pop()
        if position == len(code):
            continue
        after = before[position] | bits.get(calls.get(position, -1), 0)
        for successor in _successors(facts, position):
            if successor not in seen or after & ~before[successor]:
                seen.add(successor)
                before[successor] |= after
                waiting.append(successor)
    return {
        item.position: value
        for item in code
        for value in facts.list_tensors(value for value in (*item.reads, *item.updates) if value >= 0)
        if bits.get(value, 0) & before[item.position]
    }


def _is_planned(facts: Facts, value: int) -> bool:
    tensor = facts.tensors.get(value)
    return tensor is not None and tensor.planned and tensor.nbytes != UNLIMITED


def _successors(facts: Facts, position: int) -> Iterator[int]:
    yield position + 1
    call = facts.code[position].call
    if isinstance(call, m.JumpFalseCall):
        start = max(start for start in facts.starts if start <= position)
        yield start + call.destination_instruction
