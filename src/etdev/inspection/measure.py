"""Computation of a built program's figures."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

from etdev.errors import LinkError, ProgramError
from etdev.inspection.transfers import transfers_per_call
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.result import MethodResult
from etdev.pipeline.stages.link.nested import device_memory, nested_program, reference_delegates
from etdev.program import Program
from etdev.program.footprint import buffer_sizes, constant_bytes, named_bytes, repeated_bytes


def measure_program(
    program: Program,
    size: int,
    methods: Sequence[MethodResult] = (),
    banks: Mapping[int, str] | None = None,
    *,
    pooled: Collection[str] = (),
) -> Figures:
    """Return the figures of a program whose file has ``size`` bytes.

    ``methods`` contains the build's result for each method. If ``methods`` is empty, the numbers of delegated and
    undelegated ops are unknown. ``banks`` has the names of the memory banks by memory id; omit it for a program without
    banks. ``pooled`` has the same meaning as in :func:`weight_bytes`.
    """
    sizes = buffer_sizes(program)
    return Figures(
        file=size,
        weights=weight_bytes(program, pooled=pooled),
        memory={device: planned + nested for device, (planned, nested) in device_memory(program).items()},
        banks={name: sizes.get(index, 0) for index, name in banks.items()} if banks else None,
        copies=max((transfers_per_call(plan).total for plan in program.execution_plan), default=0),
        delegated_ops=sum(method.delegated_ops for method in methods) if methods else None,
        undelegated_ops=sum(item.count for method in methods for item in method.undelegated) if methods else None,
    )


def weight_bytes(program: Program, *, pooled: Collection[str] = ()) -> int:
    """Return the total size in bytes of a program's constants and named data, each counted once.

    Constants and named data of nested programs in reference delegates are included. ``pooled`` has the names
    of the data in the file of ``external_weights``. This file stores equal bytes once. Therefore, such data does not
    count if a constant has the same bytes.
    """
    total = sum(constant_bytes(each) + named_bytes(each) for each in (program, *nested_programs(program)))
    return total - repeated_bytes(program, pooled)


def nested_programs(program: Program) -> Iterator[Program]:
    """Yield each nested program in a program's reference delegates once; skip programs that cannot be read."""
    seen = set()
    for plan, index, delegate in reference_delegates(program):
        if delegate.processed not in seen:
            seen.add(delegate.processed)
            with suppress(ProgramError, LinkError):
                yield nested_program(program, plan, index)
