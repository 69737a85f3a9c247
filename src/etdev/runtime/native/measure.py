"""Measurement of a program's memory outside of its planned buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etdev.program import Program
from etdev.program import model as m
from etdev.program.devices import named_devices
from etdev.runtime.native.client import NativeRuntime


@dataclass(frozen=True, slots=True)
class Outside:
    """Memory of a method outside of its planned buffers, in bytes."""

    method_pool: int
    temporary_pool: int
    heap: int | None
    """Largest number of heap bytes in use at once, during loading or calls; None if the heap is not counted."""


class MemoryMeter:
    """The memory of a program's methods, collected from calls in the native runtime."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.found: dict[str, Outside] = {}
        """Maps each method that was added to the memory that its calls need."""

    def add(self, runtime: NativeRuntime, method: str) -> None:
        """Add the call that this thread made last; it must be a call of this method."""
        opened, called = runtime.opened[method], runtime.called
        assert called is not None
        peak = max(opened.heap_peak, opened.heap + called.heap_peak) if runtime.counts_heap else None
        before = self.found.get(method)
        self.found[method] = Outside(
            called.method_pool,
            max(called.temporary_pool, lookup_bytes(self._program.method(method))),
            peak if peak is None or before is None or before.heap is None else max(peak, before.heap),
        )


def measure_memory(
    runtime: NativeRuntime,
    program: Program,
    file: Path,
    calls: Iterable[tuple[str, Sequence[Any]]],
    *,
    data: Sequence[Path] = (),
) -> dict[str, Outside]:
    """Map each method to the memory that it needs for these calls.

    ``calls`` contains pairs: the name of a method, and its inputs. A method with dynamic shapes needs a call with its
    largest sizes. The result for the temporary pool is at least :func:`lookup_bytes`, because a smaller pool would
    require a larger method pool. Unless the program :func:`is_steady`, ``runtime`` must have been created without
    ``watch``, which increases the memory of delegates.

    Raises :class:`~etdev.runtime.child.ProgramFailureError` if a call fails.
    """
    runtime.load(file, data=data)
    meter = MemoryMeter(program)
    for method, inputs in calls:
        runtime.call(method, inputs)
        meter.add(runtime, method)
    return meter.found


def is_steady(program: Program) -> bool:
    """Return whether all calls of a method need the same memory, and ``watch`` does not increase it.

    This holds if each call runs the same kernels on tensors of the same sizes on the host, and no delegates. Only the
    heap can differ by a few bytes, because the allocator rounds sizes.
    """
    delegates = any(plan.delegates for plan in program.execution_plan)
    return not delegates and not named_devices(program) and all(plan.is_fixed for plan in program.execution_plan)


def lookup_bytes(plan: m.ExecutionPlan, word: int = 8) -> int:
    """Return the size of the temporary pool that the runtime needs to look up a method's kernels.

    ``word`` is the size of a pointer in bytes. For each argument of a kernel call, the runtime needs memory for a
    ``TensorMeta`` and the largest dimension order. If the pool is smaller, ``Method::resolve_operator`` of executorch
    1.5.1 allocates from the method pool. That memory is never freed.
    """
    calls = (len(call.args) for call in plan.instructions if isinstance(call, m.KernelCall))
    return max(calls, default=0) * (3 * word + m.MAX_RANK)
