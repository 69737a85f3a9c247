"""Measurement of a program's memory outside of its planned buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etdev.program import Program
from etdev.program import model as m
from etdev.runtime.native.client import NativeRuntime


@dataclass(frozen=True, slots=True)
class Outside:
    """Memory of a method outside of its planned buffers, in bytes."""

    method_pool: int
    temporary_pool: int
    heap: int | None
    """Largest number of heap bytes in use at once, during loading or calls; None if the heap is not counted."""


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
    require a larger method pool. ``runtime`` must have been created without ``watch``, which increases the
    memory of delegates.

    Raises :class:`~etdev.runtime.child.ProgramFailureError` if a call fails.
    """
    runtime.load(file, data=data)
    found: dict[str, Outside] = {}
    for method, inputs in calls:
        runtime.call(method, inputs)
        opened, called = runtime.opened[method], runtime.called
        assert called is not None
        peak = max(opened.heap_peak, opened.heap + called.heap_peak) if runtime.counts_heap else None
        before = found.get(method)
        found[method] = Outside(
            called.method_pool,
            max(called.temporary_pool, lookup_bytes(program.method(method))),
            peak if peak is None or before is None or before.heap is None else max(peak, before.heap),
        )
    return found


def lookup_bytes(plan: m.ExecutionPlan, word: int = 8) -> int:
    """Return the size of the temporary pool that the runtime needs to look up a method's kernels.

    ``word`` is the size of a pointer in bytes. For each argument of a kernel call, the runtime needs memory for a
    ``TensorMeta`` and the largest dimension order. If the pool is smaller, ``Method::resolve_operator`` of executorch
    1.5.1 allocates from the method pool. That memory is never freed.
    """
    calls = (len(call.args) for call in plan.instructions if isinstance(call, m.KernelCall))
    return max(calls, default=0) * (3 * word + m.MAX_RANK)
