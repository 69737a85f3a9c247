"""Bytes that the native host fills with poison, found from the data flow of a program's methods."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from etdev.errors import EtdevError, LinkError
from etdev.program import Program, parse
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs
from etdev.program.analysis.flow import flow_graph
from etdev.program.analysis.storage import MethodMemory, method_memory
from etdev.program.analysis.unused import Range, unused_before
from etdev.program.delegates import delegate_inputs

_REFERENCE = "EtdevReferenceBackend"
"""Id of the delegates whose blob is a program. It says how many inputs a call has."""

Unused = Mapping[int, list[Range]]
"""Position of an instruction → bytes that go out of use before it."""


def unused_bytes(program: Program, known: Mapping[str, DelegateInputs], *, shared: bool) -> dict[str, Unused]:
    """Return the unused bytes of each method whose data flow can be followed.

    ``known`` has the number of inputs of delegate calls, by method and position. If methods share their planned buffers
    (``shared``), the state of one is never unused in another, and all data flows must be known.
    """
    memories: dict[str, tuple[m.ExecutionPlan, MethodMemory]] = {}
    for plan in program.execution_plan:
        inputs = _inputs(program, plan, known.get(plan.name, {}))
        if inputs is not None and len(plan.chains) <= 1:
            with suppress(LinkError):
                memories[plan.name] = plan, method_memory(plan, inputs)
    if shared and len(memories) < len(program.execution_plan):
        return {}
    found = {}
    for name, (plan, memory) in memories.items():
        kept = [
            (storage.memory_id, storage.offset, storage.offset + storage.size)
            for other, (_, each) in memories.items()
            for storage in each.storages
            if shared and other != name and storage.persistent
        ]
        found[name] = unused_before(plan, memory, kept)
    return found


def _inputs(program: Program, plan: m.ExecutionPlan, known: DelegateInputs) -> DelegateInputs | None:
    """Return the number of inputs of each delegate call, by position; None if one is not known."""
    found = {**delegate_inputs(plan), **known}
    for position, call in enumerate(flow_graph(plan).instructions):
        if not isinstance(call, m.DelegateCall):
            continue
        delegate = plan.delegates[call.delegate_index]
        if delegate.id == _REFERENCE:
            with suppress(EtdevError):
                found[position] = len(parse(program.delegate_data(delegate)).execution_plan[0].inputs)
        if position not in found:
            return None
    return found
