"""Measurement of the memory that a program takes outside of its planned buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etdev.program import Program
from etdev.runtime.native.client import NativeRuntime
from etdev.runtime.native.pools import lookup_bytes


@dataclass(frozen=True, slots=True)
class Outside:
    """Memory of a method outside of its planned buffers, in bytes."""

    method_pool: int
    temporary_pool: int
    heap: int | None
    """Largest number of heap bytes in use at once, at load or in a call. None if the heap is not counted."""


def measure_memory(
    runtime: NativeRuntime,
    program: Program,
    file: Path,
    calls: Iterable[tuple[str, Sequence[Any]]],
    *,
    data: Sequence[Path] = (),
) -> dict[str, Outside]:
    """Return the smallest memory with which these calls work, by method.

    ``calls`` are methods with their inputs; a method with dynamic shapes needs a call with its largest sizes. The
    temporary pool has at least :func:`~etdev.runtime.native.pools.lookup_bytes`, which keeps the method pool small.
    ``runtime`` must not watch the instructions, because delegates then take more memory.

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
