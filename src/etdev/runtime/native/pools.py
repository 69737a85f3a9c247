"""Measurement of the pools that a program needs when it runs without a heap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from etdev.program import model as m
from etdev.program import read
from etdev.runtime.native.client import NativeRuntime, Pools
from etdev.runtime.native.devices import NO_DEVICES, Devices


def lookup_bytes(plan: m.ExecutionPlan, word: int = 8) -> int:
    """Return the size of the temporary pool from which the runtime takes memory to look up a method's kernels.

    ``word`` is the size of a pointer. For a call with n arguments, ``Method::resolve_operator`` of executorch 1.5.1
    uses this pool only if it has n times the size of a ``TensorMeta`` and of the largest dimension order. Otherwise it
    uses the method pool, to which it never returns the memory.
    """
    calls = (len(call.args) for call in plan.instructions if isinstance(call, m.KernelCall))
    return max(calls, default=0) * (3 * word + m.MAX_RANK)


def measure_pools(
    executable: Path,
    file: Path,
    calls: Iterable[tuple[str, Sequence[Any]]],
    *,
    data: Sequence[Path] = (),
    devices: Devices = NO_DEVICES,
) -> dict[str, Pools]:
    """Return the smallest sizes of the pools with which these calls work, by method.

    ``calls`` are methods with their inputs; a method with dynamic shapes needs a call with its largest sizes. The
    temporary pool has at least :func:`lookup_bytes`, which keeps the method pool small.

    Raises :class:`~etdev.runtime.child.ProgramFailureError` if a call fails.
    """
    temporary = {plan.name: lookup_bytes(plan) for plan in read(file).execution_plan}
    found: dict[str, Pools] = {}
    with NativeRuntime(executable, devices=devices, watch=False) as runtime:
        runtime.load(file, data=data)
        for method, inputs in calls:
            runtime.call(method, inputs)
            assert runtime.called is not None
            found[method] = Pools(runtime.called.method_pool, max(temporary[method], runtime.called.temporary_pool))
    return found
