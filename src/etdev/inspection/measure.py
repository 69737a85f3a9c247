"""Computation of a built program's figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from etdev.errors import LinkError, ProgramError
from etdev.inspection.transfers import transfers_per_call
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.result import MethodResult
from etdev.pipeline.stages.nested import device_memory, nested_program, reference_delegates
from etdev.program import Program
from etdev.program.footprint import constant_bytes, named_bytes


def measure_program(program: Program, size: int, methods: Sequence[MethodResult] = ()) -> Figures:
    """Return the figures of a program whose file has ``size`` bytes.

    ``methods`` are the build's results. If there are none, the numbers of delegated and undelegated ops are unknown.
    """
    return Figures(
        file=size,
        weights=weight_bytes(program),
        memory={device: planned + nested for device, (planned, nested) in device_memory(program).items()},
        copies=max((transfers_per_call(plan).total for plan in program.execution_plan), default=0),
        delegated_ops=sum(method.delegated_ops for method in methods) if methods else None,
        undelegated_ops=sum(item.count for method in methods for item in method.undelegated) if methods else None,
    )


def weight_bytes(program: Program) -> int:
    """Return the total bytes of constants and named data, including those in reference delegates, each counted once."""
    return sum(constant_bytes(each) + named_bytes(each) for each in (program, *nested_programs(program)))


def nested_programs(program: Program) -> Iterator[Program]:
    """Yield the nested programs in a program's reference delegates, each once; skip those that cannot be read."""
    seen = set()
    for plan, index, delegate in reference_delegates(program):
        if delegate.processed not in seen:
            seen.add(delegate.processed)
            with suppress(ProgramError, LinkError):
                yield nested_program(program, plan, index)
